"""The agents that this host knows: the one that comes with it, and the manifests of the project."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from forestay.agents.manifest import AgentManifest, load
from forestay.kernel import Problem, former

ASSISTANT = "core.forestay.assistant"

_ASSISTANT = AgentManifest(
    agent_id=ASSISTANT,
    persona="Assistant",
    model_class="general",
    instructions=(
        "Answer the question from the context you are given, and quote what you rely on with its source. "
        "Use a tool when the context does not answer. Say so when you do not know."
    ),
    tool_allowlist=("*",),
    turns=12,
    description="Answers from the project's files and with its tools.",
)


class Catalogue:
    """Agents by id. The same id twice is a mistake that is told when the host opens."""

    def __init__(self, manifests: Iterable[AgentManifest] = ()) -> None:
        self._agents = {ASSISTANT: _ASSISTANT}
        for manifest in manifests:
            if manifest.agent_id in self._agents:
                raise Problem("already_exists", f"There are two agents {manifest.agent_id}.", agentId=manifest.agent_id)
            self._agents[manifest.agent_id] = manifest

    @classmethod
    def read(cls, root: Path, paths: Iterable[str]) -> Catalogue:
        """Every manifest that `paths` name: a file, or a folder of `*.json` and `*.toml`."""
        return cls(load(file) for text in paths for file in _files(root / text))

    def __iter__(self) -> Iterator[AgentManifest]:
        return iter(self._agents.values())

    def get(self, agent_id: str) -> AgentManifest:
        found = self._agents.get(former.renamed(agent_id))
        if found is None:
            raise Problem(
                "not_found",
                f"There is no agent {agent_id[:128]}.",
                known=sorted(self._agents),
                fix="Use one of `known`.",
            )
        return found


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in (".json", ".toml"))
    if not path.exists():
        raise Problem("not_found", f"There is no agent manifest at {path.name}.", at="agents.paths")
    return [path]

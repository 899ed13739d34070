"""The agents of the host and of the project's folder, each in one or more versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import forestay
from forestay.agents.manifest import AgentManifest, load, precedence
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
    version=forestay.__version__,
    pack="core.forestay",
)


class Catalogue:
    """Agents by id and version. The same version twice is a mistake that is told when the host opens."""

    def __init__(self, manifests: Iterable[AgentManifest] = ()) -> None:
        self._agents = {ASSISTANT: {_ASSISTANT.version: _ASSISTANT}}
        for manifest in manifests:
            versions = self._agents.setdefault(manifest.agent_id, {})
            if manifest.version in versions or manifest.agent_id == ASSISTANT:
                message = f"There are two agents {manifest.agent_id} of version {manifest.version}."
                raise Problem("already_exists", message, agentId=manifest.agent_id)
            versions[manifest.version] = manifest

    @classmethod
    def read(cls, root: Path, paths: Iterable[str]) -> Catalogue:
        """Every manifest that `paths` name: a file, or a folder of `*.json` and `*.toml`."""
        return cls(load(file) for text in paths for file in _files(root / text))

    def __iter__(self) -> Iterator[AgentManifest]:
        """The newest version of each agent."""
        return iter([newest(versions) for versions in self._agents.values()])

    def versions(self, agent_id: str) -> Mapping[str, AgentManifest]:
        """An agent's manifests by version; none for an agent that is not here."""
        return self._agents.get(former.renamed(agent_id), {})

    def get(self, agent_id: str) -> AgentManifest:
        """The newest version of an agent."""
        found = self.versions(agent_id)
        if not found:
            raise no_agent(agent_id, self._agents)
        return newest(found)


def newest(versions: Mapping[str, AgentManifest]) -> AgentManifest:
    return versions[max(versions, key=precedence)]


def no_agent(agent_id: str, known: Iterable[str]) -> Problem:
    return Problem("not_found", f"There is no agent {agent_id[:128]}.", known=sorted(known), fix="Use one of `known`.")


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in (".json", ".toml"))
    if not path.exists():
        raise Problem("not_found", f"There is no agent manifest at {path.name}.", at="agents.paths")
    return [path]

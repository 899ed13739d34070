"""Agent manifests: what an agent is told, which class of model it wants, which tools it may call, what goes in and out.

A manifest is a JSON or TOML file in the words of OpenWOP's AgentManifest; what that contract lacks stands under
`forestay`. Files it refers to lie in its own folder. Every mistake is reported at once, with its place. The catalogue
holds the manifests of the host and of the project's folder, each agent in one or more versions.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec

import forestay
from forestay.agents.prompt_template import KINDS, PromptKind, PromptRef, read_ref
from forestay.kernel import Mistake, Problem, canonical, former, mistakes, schema_mistake

_Reader = Callable[[str], str]
ModelClass = Literal["reasoning", "writing", "coding", "research", "classification", "general"]

_MAX_FILE_BYTES = 1024 * 1024
_TEXT = {"type": "string", "minLength": 1}
VERSION_PATTERN = r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"
_CLOSED = {"type": "object", "additionalProperties": False}

SCHEMA: dict[str, Any] = {
    **_CLOSED,
    "required": ["agentId", "persona", "modelClass"],
    "properties": {
        "agentId": {
            "type": "string",
            "pattern": r"^(core|vendor|community|private|local)\.[a-z][a-z0-9_-]*(\.[a-z][a-zA-Z0-9_-]*)+$",
            "maxLength": 256,
        },
        "persona": {**_TEXT, "maxLength": 200},
        "modelClass": {"enum": ["reasoning", "writing", "coding", "research", "classification", "general"]},
        "systemPrompt": _TEXT,
        "systemPromptRef": _TEXT,
        "toolAllowlist": {"type": "array", "items": _TEXT, "uniqueItems": True},
        "requiresCapabilities": {"type": "array", "items": _TEXT, "uniqueItems": True},
        "memoryShape": {
            **_CLOSED,
            "properties": {name: {"type": "boolean"} for name in ("scratchpad", "conversation", "longTerm")},
        },
        "confidence": {
            **_CLOSED,
            "properties": {"defaultThreshold": {"type": "number", "minimum": 0, "maximum": 1}},
        },
        "handoff": {**_CLOSED, "properties": {"taskSchemaRef": _TEXT, "returnSchemaRef": _TEXT}},
        "label": {**_TEXT, "maxLength": 100},
        "description": {"type": "string", "maxLength": 500},
        "evalSuiteRef": _TEXT,
        "promptLibraryRef": {"type": "string", "pattern": r"^[a-z0-9][a-z0-9._-]{0,127}$"},
        "promptOverrides": {
            **_CLOSED,
            "properties": {kind: {"type": ["string", "object"]} for kind in KINDS},
        },
        "forestay": {
            **_CLOSED,
            "properties": {
                "taskSchema": {"type": "object"},
                "returnSchema": {"type": "object"},
                "version": {"type": "string", "pattern": VERSION_PATTERN, "maxLength": 64},
                "turns": {"type": "integer", "minimum": 1, "maximum": 1000},
                "repairs": {"type": "integer", "minimum": 0, "maximum": 10},
                "maxTokens": {"type": "integer", "minimum": 1},
                "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            },
        },
    },
    "oneOf": [{"required": ["systemPrompt"]}, {"required": ["systemPromptRef"]}],
}


class MemoryShape(msgspec.Struct, frozen=True):
    scratchpad: bool = False
    conversation: bool = False
    long_term: bool = False


class AgentManifest(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, with everything its manifest referred to read in. No allowlist means no tools."""

    agent_id: str
    persona: str
    model_class: ModelClass
    instructions: str
    tool_allowlist: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    memory: MemoryShape = MemoryShape()
    threshold: float | None = None
    task_schema: dict[str, Any] | None = None
    return_schema: dict[str, Any] | None = None
    turns: int = 20
    repairs: int = 2
    max_tokens: int | None = None
    temperature: float | None = None
    description: str = ""
    label: str = ""
    version: str = "0.0.0"
    pack: str = "local.project"
    prompts: dict[PromptKind, PromptRef] = {}  # templates that it prefers, beside its own system prompt

    @property
    def prompt_ref(self) -> str:
        """How its own system prompt is named where prompts are told apart."""
        return f"prompt:{self.agent_id}@sha256-{hashlib.sha256(self.instructions.encode()).hexdigest()[:12]}"

    def allows(self, *names: str) -> bool:
        """Whether one of a tool's names is on the allowlist."""
        return bool(self.allowed(names))

    def allowed(self, names: Iterable[str]) -> set[str]:
        """Which names of tools are on the allowlist; `*` stands for any part of a name (OpenWOP RFC 0077)."""
        if "*" in self.tool_allowlist:
            return set(names)
        return {name for name in names if any(fnmatchcase(name, pattern) for pattern in self.tool_allowlist)}


def load(file: Path) -> AgentManifest:
    """The agent in `file` (.json or .toml)."""
    text = _read(file, file.name)
    if file.suffix == ".toml":
        try:
            document: Any = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise invalid([Mistake("$", f"This is not valid TOML: {error}")]) from error
    else:
        try:
            document = canonical.decode(text)
        except Problem as problem:
            reason = problem.details.get("reason", "")
            raise invalid([Mistake("$", f"{problem.message} {reason}".strip())]) from problem
    return parse(document, folder=file.parent)


def parse(document: Any, *, folder: Path | None = None, files: Mapping[str, str] | None = None) -> AgentManifest:
    """The agent that `document` describes; files it refers to are read from `folder`, or are texts of `files`."""
    read = _reader(folder, files)
    if isinstance(document, dict):
        document = former.manifest(document)
    found = [_worded(mistake) for mistake in mistakes(SCHEMA, document)]
    if found:
        raise invalid(found)
    extra: dict[str, Any] = document.get("forestay", {})
    handoff: dict[str, str] = document.get("handoff", {})
    task_schema = _schema(extra, "taskSchema", handoff, "taskSchemaRef", read, found)
    return_schema = _schema(extra, "returnSchema", handoff, "returnSchemaRef", read, found)
    instructions = document.get("systemPrompt") or _referred(
        document["systemPromptRef"], "$.systemPromptRef", read, found
    )
    prompts = _overrides(document.get("promptOverrides", {}), found)
    if found:
        raise invalid(found)
    memory = document.get("memoryShape", {})
    return AgentManifest(
        agent_id=document["agentId"],
        persona=document["persona"],
        model_class=document["modelClass"],
        instructions=instructions,
        tool_allowlist=tuple(document.get("toolAllowlist", ())),
        requires=tuple(document.get("requiresCapabilities", ())),
        memory=MemoryShape(
            memory.get("scratchpad", False), memory.get("conversation", False), memory.get("longTerm", False)
        ),
        threshold=document.get("confidence", {}).get("defaultThreshold"),
        task_schema=task_schema,
        return_schema=return_schema,
        turns=extra.get("turns", 20),
        repairs=extra.get("repairs", 2),
        max_tokens=extra.get("maxTokens"),
        temperature=extra.get("temperature"),
        description=document.get("description", ""),
        label=document.get("label", ""),
        version=extra.get("version", "0.0.0"),
        prompts=prompts,
    )


def _overrides(given: dict[str, Any], found: list[Mistake]) -> dict[PromptKind, PromptRef]:
    prompts: dict[PromptKind, PromptRef] = {}
    for kind in KINDS:
        try:
            if kind in given:
                prompts[kind] = read_ref(given[kind])
        except Problem as problem:
            found.append(Mistake(f"$.promptOverrides.{kind}", problem.message))
    return prompts


def _schema(
    extra: dict[str, Any], name: str, handoff: dict[str, str], ref: str, read: _Reader, found: list[Mistake]
) -> dict[str, Any] | None:
    """The schema given inline or by reference; both at once is a mistake."""
    at = f"$.forestay.{name}"
    schema: Any = extra.get(name)
    if ref in handoff:
        if schema is not None:
            found.append(Mistake(at, f"Give either this or handoff.{ref}, not both."))
        at = f"$.handoff.{ref}"
        text = _referred(handoff[ref], at, read, found)
        if not text:
            return None
        try:
            schema = canonical.decode(text)
        except Problem as problem:
            found.append(Mistake(at, f"{handoff[ref]}: {problem.message}"))
            return None
    if schema is None:
        return None
    if mistake := schema_mistake(schema):
        found.append(Mistake(at, f"This is not a usable JSON Schema: {mistake}"))
        return None
    return dict(schema)


def _reader(folder: Path | None, files: Mapping[str, str] | None) -> _Reader:
    """How a manifest's references become texts: from its folder, or from the files of its pack."""

    def of_folder(name: str) -> str:
        if folder is None:
            raise invalid([Mistake("$", "A manifest without a folder cannot refer to files.")])
        root = folder.resolve()
        file = (root / name).resolve()
        if not file.is_relative_to(root):
            raise invalid([Mistake("$", f"{name} lies outside the manifest's folder.")])
        return _read(file, name)

    def of_pack(name: str) -> str:
        if files is None or name not in files:
            raise invalid([Mistake("$", f"{name} is no file of the pack.")])
        return files[name]

    return of_folder if files is None else of_pack


def _referred(name: str, at: str, read: _Reader, found: list[Mistake]) -> str:
    """The text of a file that a manifest refers to; what cannot be read is a mistake at the reference."""
    try:
        return read(name)
    except Problem as problem:
        found.extend(Mistake(at, error["message"]) for error in problem.details["errors"])
        return ""


def _read(file: Path, name: str) -> str:
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise invalid([Mistake("$", f"{name} is larger than {_MAX_FILE_BYTES} bytes.")])
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise invalid([Mistake("$", f"{name} cannot be read: {reason}.")]) from error


def _worded(mistake: Mistake) -> Mistake:
    """The `oneOf` of the two prompts, in words."""
    if (mistake.at == "$" and "oneOf" in mistake.message) or "valid under" in mistake.message:
        return Mistake("$", "Exactly one of systemPrompt and systemPromptRef is needed.")
    return mistake


def invalid(found: list[Mistake]) -> Problem:
    first = found[0]
    return Problem(
        "agent_invalid",
        f"The agent manifest has a mistake at {first.at}: {first.message}",
        at=first.at,
        errors=[{"at": mistake.at, "message": mistake.message} for mistake in found],
    )


def precedence(version: str) -> tuple[tuple[int, int, str], ...]:
    """A key that orders versions as SemVer 2.0 §11 does; other texts stand before them, by their letters."""
    core, _, pre = version.partition("+")[0].partition("-")
    numbers = core.split(".")
    if len(numbers) != 3 or not all(part.isdecimal() for part in numbers):
        return ((-1, 0, version),)
    parts = [(1, int(part), "") for part in numbers]
    if not pre:
        return (*parts, (2, 0, ""))
    named = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in pre.split(".")]
    return (*parts, (1, 0, ""), *named)


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
    """Agents by id and version. The same version twice is a Problem when the host opens."""

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
        return self._agents.get(agent_id) or self._agents.get(former.renamed(agent_id), {})

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

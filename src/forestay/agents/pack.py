"""Agent packs (OpenWOP RFC 0003): agents that are installed, and exported, together under one name and version.

A pack is one JSON document: `name`, `version`, `agents` (manifests), and `files`, the texts that the manifests refer
to by name. The installation reads everything from the pack: nothing is read later or from outside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from forestay.agents.manifest import VERSION_PATTERN, AgentManifest, invalid, parse
from forestay.kernel import Mistake, Problem, canonical, mistakes

PACK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "version", "agents"],
    "properties": {
        "name": {
            "type": "string",
            "pattern": r"^(core|vendor|community|private|local)(\.[a-z][a-z0-9_-]*)+$",
            "maxLength": 128,
        },
        "version": {"type": "string", "pattern": VERSION_PATTERN, "maxLength": 64},
        "agents": {"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "object"}},
        "files": {"type": "object", "maxProperties": 200, "additionalProperties": {"type": "string"}},
    },
}


class AgentPack(msgspec.Struct, frozen=True):
    """An installed pack; each of its agents has the pack's name and version."""

    name: str
    version: str
    agents: tuple[AgentManifest, ...]


def read_pack(document: Any) -> AgentPack:
    """Read the pack that `document` describes; a Problem locates every mistake."""
    if found := list(mistakes(PACK_SCHEMA, document)):
        raise invalid(found)
    files: dict[str, str] = document.get("files", {})
    agents: list[AgentManifest] = []
    for index, item in enumerate(document["agents"]):
        at = f"$.agents[{index}]"
        try:
            manifest = parse(item, files=files)
        except Problem as problem:
            errors = problem.details["errors"]
            raise invalid([Mistake(at + error["at"].removeprefix("$"), error["message"]) for error in errors]) from None
        if "version" in item.get("forestay", {}) and manifest.version != document["version"]:
            raise invalid([Mistake(f"{at}.forestay.version", "An agent of a pack must have the version of its pack.")])
        if any(manifest.agent_id == other.agent_id for other in agents):
            raise invalid([Mistake(f"{at}.agentId", f"There are two agents {manifest.agent_id}.")])
        agents.append(msgspec.structs.replace(manifest, version=document["version"], pack=document["name"]))
    return AgentPack(document["name"], document["version"], tuple(agents))


class Exported(msgspec.Struct, frozen=True):
    """Agents as manifests of the contract, and the texts that they refer to by name: `agents` and `files` of a pack.
    It leaves out fields that the contract does not have, such as the number of turns."""

    manifests: list[dict[str, Any]]
    files: dict[str, str]


def exported(agents: Iterable[AgentManifest]) -> Exported:
    """Return the agents in the form of a pack."""
    made = Exported([], {})
    for agent in agents:
        made.files.update(_files(agent))
        made.manifests.append(_document(agent))
    return made


def _files(agent: AgentManifest) -> dict[str, str]:
    schemas = {"task": agent.task_schema, "return": agent.return_schema}
    found = {_name(agent, kind): canonical.encode(schema).decode() for kind, schema in schemas.items() if schema}
    return {_name(agent, "system"): agent.instructions, **found}


def _name(agent: AgentManifest, kind: str) -> str:
    return f"{agent.agent_id}/{kind}.{'md' if kind == 'system' else 'json'}"


def _document(agent: AgentManifest) -> dict[str, Any]:
    """Return the manifest, with a reference for each text."""
    made: dict[str, Any] = {
        "agentId": agent.agent_id,
        "persona": agent.persona,
        "modelClass": agent.model_class,
        "systemPromptRef": _name(agent, "system"),
        "toolAllowlist": list(agent.tool_allowlist),
    }
    memory = agent.memory
    shape = {"scratchpad": memory.scratchpad, "conversation": memory.conversation, "longTerm": memory.long_term}
    handoff = {"taskSchemaRef": agent.task_schema, "returnSchemaRef": agent.return_schema}
    refs = {ref: _name(agent, ref.removesuffix("SchemaRef")) for ref, schema in handoff.items() if schema}
    optional: dict[str, Any] = {
        "requiresCapabilities": list(agent.requires),
        "memoryShape": shape if any(shape.values()) else None,
        "confidence": None if agent.threshold is None else {"defaultThreshold": agent.threshold},
        "handoff": refs,
        "label": agent.label,
        "description": agent.description,
        "promptOverrides": {kind: msgspec.to_builtins(ref) for kind, ref in agent.prompts.items()},
    }
    return made | {name: value for name, value in optional.items() if value}

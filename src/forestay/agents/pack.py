"""Agent packs (OpenWOP RFC 0003): agents that are installed together under one name and version.

A pack is one JSON document: `name`, `version`, `agents` (manifests), and `files`, the texts that the manifests refer
to by name. Everything is read in when the pack is installed: nothing is looked up later, and nothing outside the pack.
"""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.agents.manifest import AgentManifest, invalid, parse
from forestay.agents.versions import VERSION_PATTERN
from forestay.kernel import Mistake, Problem, mistakes

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
    """The pack that `document` describes; a located Problem for every mistake in it."""
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
            raise invalid([Mistake(f"{at}.forestay.version", "An agent of a pack has the version of its pack.")])
        if any(manifest.agent_id == other.agent_id for other in agents):
            raise invalid([Mistake(f"{at}.agentId", f"There are two agents {manifest.agent_id}.")])
        agents.append(msgspec.structs.replace(manifest, version=document["version"], pack=document["name"]))
    return AgentPack(document["name"], document["version"], tuple(agents))

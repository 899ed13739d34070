"""Agents that are written out as a pack may hold them, and read in again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forestay.agents import exported, read_pack
from tests.runs.events import check_document

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
PLAIN = {"agentId": "local.house.cook", "persona": "Cook", "modelClass": "general", "systemPrompt": "Cook."}
RICH: dict[str, Any] = {
    **PLAIN,
    "agentId": "local.house.critic",
    "toolAllowlist": ["read", "ext:notes/*"],
    "requiresCapabilities": ["memory"],
    "memoryShape": {"longTerm": True},
    "confidence": {"defaultThreshold": 0.0},
    "label": "The critic",
    "description": "Says what it thinks.",
    "promptOverrides": {"user": "prompt:house.user@1.0.0"},
    "forestay": {"taskSchema": SCHEMA, "returnSchema": {"type": "string"}},
}


@pytest.mark.parametrize("documents", [[PLAIN], [RICH], [PLAIN, RICH]])
def test_what_is_exported_is_the_contracts_manifest_and_reads_in_as_the_same_agents(documents: list[Any]) -> None:
    pack = read_pack({"name": "local.house", "version": "1.2.0", "agents": documents})
    made = exported(pack.agents)
    for manifest in made.manifests:
        check_document("agent-manifest", manifest)
        assert "forestay" not in manifest
    again = {"name": pack.name, "version": pack.version, "agents": made.manifests, "files": made.files}
    assert read_pack(again) == pack


def test_what_the_contract_has_no_word_for_is_not_exported() -> None:
    document = {**PLAIN, "forestay": {"turns": 3}}
    pack = read_pack({"name": "local.house", "version": "1.2.0", "agents": [document]})
    made = exported(pack.agents)
    again = read_pack({"name": pack.name, "version": pack.version, "agents": made.manifests, "files": made.files})
    (before,), (after,) = pack.agents, again.agents
    assert (before.turns, after.turns) == (3, 20)
    assert msgspec.structs.replace(before, turns=20) == after

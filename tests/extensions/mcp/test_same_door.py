"""A JavaScript extension, a component and a server itself call the same tool: one decision, one kind of evidence.

Everything is real: QuickJS, wasmtime, the server's program in its sandbox, policy, dispatcher, ledger.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.components.guests import component
from tests.extensions.dispatcher_world import ENVIRON
from tests.extensions.mcp.world import ECHO, TOOL, configured

from forestay.extensions.evidence import stream_of
from forestay.extensions.extensions import Extensions
from forestay.extensions.guests import Guest
from forestay.extensions.manifest import SCHEMA, Manifest
from forestay.extensions.mcp.pins import ServerStanding
from forestay.extensions.settings import Settings
from forestay.kernel import ExtensionConfig, ExtensionPolicy, Ledger, Mode, Problem

SCRIPT = """export default (pi) => pi.registerTool({ name: "ask", label: "ask", description: "",
  parameters: { type: "object" },
  execute: async (_id, given) => ({ content: [], details: await pi.tool(given.name, given.input) }) })"""
MANIFEST = Manifest(SCHEMA, "twin.wasm", "twin", "1.0.0", "1.0", "wasm", "twin.wasm")
KINDS = ("host_call.start", "policy.decision", "host_call.end")
UNSTEADY = ("duration_ms", "runtime", "call_id", "extension")
POLICIES: list[tuple[Mode, list[str], list[str], bool]] = [
    ("strict", ["tool"], [], True),
    ("strict", ["tool:probe/*"], [], True),
    ("strict", ["tool:probe/echo"], [], True),
    ("strict", [], [], False),
    ("strict", ["tool:other/*", "tool:probe"], [], False),
    ("strict", ["read", "write", "exec"], [], False),
    ("strict", ["tool"], ["tool"], False),
    ("permissive", [], [], True),
    ("permissive", [], ["tool"], False),
    ("prompt", [], [], False),  # nobody is there to ask
]


@pytest.mark.parametrize(("mode", "grants", "denied", "allowed"), POLICIES)
def test_the_same_call_has_the_same_decision_and_evidence(
    tmp_path: Path, mode: Mode, grants: list[str], denied: list[str], allowed: bool
) -> None:
    left = asyncio.run(_left(tmp_path, ExtensionPolicy(mode=mode, default_caps=grants, deny_caps=denied)))
    assert [item.pop("runtime") for item in left] == ["js", "wasm", "mcp"]
    assert left[0] == left[1] == left[2]
    assert [kind for kind, _ in left[0]["records"]] == list(KINDS)
    assert left[0]["error"] is (not allowed)
    decision = json.loads(left[0]["records"][1][1])
    assert decision["resource"] == "probe/echo" and (decision["effect"] == "allow") is allowed


async def _left(folder: Path, policy: ExtensionPolicy) -> list[dict[str, Any]]:
    """How the call ended for each kind of guest, and its records."""
    project, script = folder / "project", folder / "twin" / "index.js"
    for place in (project, script.parent, folder / "data"):
        place.mkdir()
    script.write_text(SCRIPT)
    (folder / "twin.wasm").write_bytes(component(MANIFEST))
    config = configured(project, "good")
    settings = Settings(config=ExtensionConfig(policy), environ=ENVIRON, data=folder / "data")
    async with Ledger.open(folder / "l.db") as ledger, Extensions(ledger, root=project, settings=settings) as suite:
        server = await suite.add_server(config, ServerStanding(config.fingerprint, {ECHO.name: ECHO}))
        (javascript,) = await suite.load(script.parent)
        (wasm,) = await suite.load(folder / "twin.wasm")
        given = {"name": TOOL, "input": {"text": "seven"}}
        calls: list[tuple[Guest, str, Any]] = [
            (javascript.extension, "ask", given),
            (wasm.extension, "tool", given),
            (server.extension, TOOL, given["input"]),
        ]
        return [await _called(suite, ledger, *call) for call in calls]


async def _called(suite: Extensions, ledger: Ledger, guest: Guest, tool: str, given: Any) -> dict[str, Any]:
    before = (await ledger.head(stream_of(guest.name))).next
    try:
        failed = (await guest.call_tool(tool, given)).is_error
    except Problem as problem:
        failed = problem.key in ("capability_denied", "consent_required")
    await suite.recorded()
    kept = [item for item in await ledger.read(stream_of(guest.name)) if item.seq >= before and item.type in KINDS]
    steady = [{key: value for key, value in item.payload.items() if key not in UNSTEADY} for item in kept]
    texts = [json.dumps(item, sort_keys=True).replace(guest.name, "twin") for item in steady]
    return {
        "runtime": guest.runtime,
        "error": failed,
        "records": [(item.type, text) for item, text in zip(kept, texts, strict=True)],
    }

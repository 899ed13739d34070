"""Decision and evidence are the same for a component and for JavaScript, over every method."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.components.guests import REGISTRATION, component
from tests.extensions.dispatcher_world import World

from forestay.extensions import Extensions
from forestay.extensions.api_table import FILE_READS, FILE_WRITES, METHODS
from forestay.extensions.evidence import stream_of
from forestay.extensions.manifest import SCHEMA, Manifest
from forestay.extensions.settings import Settings
from forestay.kernel import Ledger

GRANTS: list[list[str]] = [[], ["read"], ["read:src/**", "env:LANG"], ["read", "write", "env", "log", "session"]]
CASES: list[tuple[str, dict[str, Any]]] = [
    *(("fs", {"op": op, "path": "src/a.txt"}) for op in (*sorted(FILE_READS), *sorted(FILE_WRITES), "no such")),
    ("fs", {"op": "read", "path": "/etc/passwd"}),
    ("fs", {"op": "read", "path": "../outside/secret.txt"}),
    *(
        ("tool", {"name": name, "input": {"path": "src", "pattern": "x"}})
        for name in ("read", "grep", "find", "ls", "write")
    ),
    ("tool", {"name": "bash", "input": {"command": "true"}}),
    ("tool", {"name": "deploy", "input": {}}),
    ("exec", {"command": "true", "args": []}),
    ("http", {"url": "https://example.com/"}),
    ("env", {"op": "get", "name": "LANG"}),
    ("env", {"op": "get", "name": "OPENAI_API_KEY"}),
    ("session", {"op": "getName"}),
    ("ui", {"op": "notify", "message": "x"}),
    ("model", {"op": "list"}),
    ("events", {"op": "emit", "channel": "c", "data": 1}),
    ("log", {"level": "info", "message": "x"}),
    ("log", {"level": "loud", "message": "x"}),
    ("crypto", {"op": "hash", "algorithm": "sha256", "base64": ""}),
    ("nothing", {}),
]
_UNSTEADY = ("duration_ms", "runtime")


def test_every_method_of_the_door_is_among_the_cases() -> None:
    assert {method for method, _ in CASES} >= set(METHODS)


class Session:
    async def request(self, operation: str, params: Any) -> Any:
        return operation


@pytest.mark.parametrize("grants", GRANTS, ids=lambda grants: ",".join(grants) or "none")
async def test_the_same_call_leaves_the_same_evidence(running: Any, tmp_path: Path, grants: list[str]) -> None:
    """`watch` streams without end, and `mkdtemp` chooses a name: those two are left out here."""
    cases = [case for case in CASES if case[1].get("op") not in ("watch", "mkdtemp")]
    registration = {**REGISTRATION, "tools": [{"name": name} for name in (*METHODS, "nothing", "host_call")]}
    left: list[Any] = []
    for kind in ("javascript", "component", "payload"):
        folder = tmp_path / kind
        folder.mkdir()
        world = {"grants": grants, "session": Session()}
        async with running(folder=folder, world=world, registration=registration) as it:
            _fill(it.world)
            answers = [await _asked(it, kind, method, params) for method, params in cases]
            it.world.evidence.flush()
            records = await it.world.ledger.read(stream_of("ext.test"))
            seen = [json.dumps([record.type, _steady(record.payload)], sort_keys=True) for record in records]
            left.append((answers, [text.replace(str(folder), "") for text in seen]))
            assert {item.payload["runtime"] for item in records} == {"js" if kind == "javascript" else "wasm"}
    for other in left[1:]:
        assert other[0] == left[0][0]
        for one, two in zip(left[0][1], other[1], strict=True):
            assert one == two


def _fill(world: World) -> None:
    (world.project / "src").mkdir()
    (world.project / "src" / "a.txt").write_text("hello x")


async def _asked(it: Any, kind: str, method: str, params: dict[str, Any]) -> Any:
    """As the driver of JavaScript hands a synchronous call to the door, or through a component: how it ended."""
    if kind == "javascript":
        subject = it.world.dispatcher.authority.subject("ext.test")
        it.world.dispatcher.admit(type(subject)(subject.id, subject.roots, "js", subject.correlation, subject.methods))
        result = await asyncio.to_thread(it.world.dispatcher.call_sync, it.world.request(method, params), "ext.test")
        return result.error.code if result.error is not None else None
    given = params
    if kind == "payload":
        given = {"call_id": "x", "capability": "", "method": method, "params": params}
    outcome = await it.guest.call_tool("host_call" if kind == "payload" else method, given)
    return outcome.hostcall if outcome.is_error else None


def _steady(payload: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key not in _UNSTEADY}


async def test_a_real_javascript_extension_leaves_the_same_records(tmp_path: Path) -> None:
    """The same tool calls by QuickJS and by a component, through `Extensions`, policy and ledger."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "a.txt").write_text("hello x")
    (tmp_path / "data").mkdir()
    script = tmp_path / "twin" / "index.js"
    script.parent.mkdir()
    script.write_text("""export default (pi) => pi.registerTool({ name: "ask", label: "ask", description: "",
      parameters: { type: "object" },
      execute: async (_id, given) => ({ content: [], details: await pi.tool(given.name, given.input) }) })""")
    manifest = Manifest(SCHEMA, "twin.wasm", "twin", "1.0.0", "1.0", "wasm", "twin.wasm")
    made = tmp_path / "twin.wasm"
    made.write_bytes(component(manifest))
    calls = [
        {"name": "read", "input": {"path": "src/a.txt"}},
        {"name": "read", "input": {"path": "/etc/passwd"}},
        {"name": "write", "input": {"path": "src/b.txt", "content": "x"}},
        {"name": "bash", "input": {"command": "true"}},
    ]
    ledger = Ledger.open(tmp_path / "ledger.db")
    settings = Settings(environ={}, data=tmp_path / "data")
    left = []
    async with Extensions(ledger, root=project, mode="strict", grants=["read"], settings=settings) as extensions:
        for path, tool in ((script.parent, "ask"), (made, "tool")):
            (member,) = await extensions.load(path)
            outcomes = [await member.extension.call_tool(tool, call) for call in calls]
            await extensions.recorded()
            records = await ledger.read(stream_of(member.extension.name))
            kept = [
                record for record in records if record.type in ("host_call.start", "policy.decision", "host_call.end")
            ]
            text = json.dumps([(record.type, _steady(record.payload)) for record in kept], sort_keys=True)
            ends = [(outcome.is_error, outcome.hostcall) for outcome in outcomes]
            left.append((ends, text.replace(member.extension.name, "twin")))
    ledger.close()
    assert left[0] == left[1]

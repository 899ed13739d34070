"""The protocol's messages (Pi §3): written as the schema says, and read back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest

from forestay.extensions import protocol
from forestay.extensions.manifest import CapabilityManifest, Requirement, Scope
from forestay.extensions.protocol import (
    Chunk,
    HostCall,
    HostResult,
    Message,
    MessageType,
)
from forestay.extensions.registry import Registrations

SCHEMA = Path(__file__).parents[2].parent / "shared" / "spec" / "pi-extension-protocol.schema.json"


def _registered() -> Registrations:
    registrations = Registrations("ext")
    registrations.add("tool", {"name": "t", "label": "T", "description": "d", "parameters": {"type": "object"}})
    registrations.add("command", {"name": "c"})
    registrations.add("handler", {"event": "input", "count": 2})
    return registrations


MANIFEST = CapabilityManifest("pi.ext.cap.v1", (Requirement("read", ("tool",), Scope(paths=("src/**",))),))
EXAMPLES: list[tuple[str, Any]] = [
    ("register", _registered().message("1.2.3", MANIFEST)),
    ("register", Registrations("empty").message("0")),
    ("host_call", HostCall("c1", "read", "tool", {"name": "grep", "input": {}}, 2500, "token", {"x": 1})),
    ("host_call", HostCall("c1", "", "log", {})),
    ("host_result", HostResult.ok("c1", {"content": []})),
    ("host_result", HostResult.failed("c1", "denied", "no", capability="exec")),
    ("host_result", HostResult("c1", {}, False, None, Chunk(0, False, protocol.Backpressure(4, 10)))),
    ("tool_call", protocol.ToolCall("t1", "go", {"a": 1})),
    ("tool_result", protocol.ToolResult("t1", {"content": []}, False)),
    ("slash_command", protocol.SlashCommand("go", ["a"])),
    ("slash_result", protocol.SlashResult({}, True)),
    ("event_hook", protocol.EventHook("input", {"text": "x"})),
    ("error", protocol.ErrorBody("internal", "broken")),
]


@pytest.mark.parametrize(("kind", "payload"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else "")
def test_messages_come_back_as_they_were(kind: str, payload: Any) -> None:
    message = Message("m1", "1.0", kind, msgspec.json.decode(msgspec.json.encode(payload)))  # type: ignore[arg-type]
    again = msgspec.json.decode(msgspec.json.encode(message), type=Message)
    assert again == message
    assert msgspec.convert(again.payload, type(payload)) == payload


@pytest.mark.skipif(not SCHEMA.exists(), reason="the published schema is not here")
@pytest.mark.parametrize(("kind", "payload"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else "")
def test_messages_are_valid_by_the_published_schema(kind: str, payload: Any) -> None:
    validator = jsonschema_rs.validator_for(msgspec.json.decode(SCHEMA.read_bytes()))
    message = {"id": "m1", "version": "1.0", "type": kind, "payload": msgspec.to_builtins(payload)}
    assert [error.message for error in validator.iter_errors(message)] == []


@pytest.mark.skipif(not SCHEMA.exists(), reason="the published schema is not here")
def test_the_types_are_those_of_the_published_schema() -> None:
    schema = msgspec.json.decode(SCHEMA.read_bytes())
    assert set(get_args(MessageType)) == set(schema["properties"]["type"]["enum"])
    assert set(get_args(protocol.HostCode)) == set(schema["$defs"]["host_call_error_code"]["enum"])
    for name, kind in (("host_call", HostCall), ("host_result", HostResult), ("register", protocol.Register)):
        assert set(kind.__struct_fields__) == set(schema["$defs"][name]["properties"]), name


@pytest.mark.parametrize(
    ("code", "retryable"),
    [("timeout", True), ("denied", False), ("io", False), ("invalid_request", False), ("internal", False)],
)
def test_an_error_is_there_exactly_when_the_result_is_one(code: Any, retryable: bool) -> None:
    failed = msgspec.to_builtins(HostResult.failed("c", code, "m", at="x"))
    assert failed == {
        "call_id": "c", "output": {}, "is_error": True,
        "error": {"code": code, "message": "m", "details": {"at": "x"}, "retryable": retryable},
    }  # fmt: skip
    assert "error" not in msgspec.to_builtins(HostResult.ok("c", {}))


@pytest.mark.parametrize(
    "bad",
    [
        b'{"id":"1","version":"2.0","type":"log","payload":{}}',
        b'{"id":"1","version":"1.0","type":"launch","payload":{}}',
    ],
)
def test_other_versions_and_types_are_refused(bad: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(bad, type=Message)

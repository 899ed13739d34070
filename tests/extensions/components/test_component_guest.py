"""A component through the real door: registrations, tools, commands, events, host calls in both forms (P13)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.extensions.components.conftest import Run

from forestay.extensions.evidence import stream_of
from forestay.kernel import Problem


async def test_init_registers_tools_commands_and_events(running: Run) -> None:
    async with running() as it:
        found = it.guest.registrations
        assert "echo" in found.tools and found.tools["echo"].label == "echo"
        assert list(found.commands) == ["greet"]
        assert found.handlers == {"tool_call": 1, "session_start": 1}


async def test_a_tool_answers_with_what_it_was_given(running: Run) -> None:
    async with running() as it:
        given = {"content": [{"type": "text", "text": "hej ☃"}], "details": {"a": [1, None]}}
        outcome = await it.guest.call_tool("echo", given)
        assert outcome.content == given["content"] and outcome.details == given["details"]
        assert not outcome.is_error


async def test_both_forms_of_a_host_call_take_the_same_way(running: Run) -> None:
    async with running(world={"grants": ["read"]}) as it:
        (it.world.project / "note.txt").write_text("hello")
        plain = await it.guest.call_tool("fs", {"op": "read", "path": "note.txt", "encoding": "utf8"})
        payload = {
            "call_id": "mine",
            "capability": "read",
            "method": "fs",
            "params": {"op": "read", "path": "note.txt", "encoding": "utf8"},
        }
        whole = await it.guest.call_tool("host_call", payload)
        assert plain.details["text"] == "hello"
        assert whole.details == plain.details  # the whole host_result is a tool_result: its output counts
        it.world.evidence.flush()
        records = await it.world.ledger.read(stream_of("ext.test"))
        calls = [record.payload for record in records if record.type == "host_call.start"]
        assert [record.type for record in records] == 2 * ["host_call.start", "policy.decision", "host_call.end"]
        assert {record.payload["runtime"] for record in records} == {"wasm"}
        assert calls[0] == calls[1]


async def test_a_denied_call_is_the_tools_error_with_its_code(running: Run) -> None:
    async with running() as it:
        outcome = await it.guest.call_tool("fs", {"op": "read", "path": "/etc/passwd"})
        assert outcome.is_error and outcome.hostcall == "denied"


async def test_a_claim_that_differs_is_refused(running: Run) -> None:
    async with running(world={"grants": ["read", "write"]}) as it:
        payload = {
            "call_id": "x",
            "capability": "read",
            "method": "fs",
            "params": {"op": "write", "path": "a", "data": ""},
        }
        outcome = await it.guest.call_tool("host_call", payload)
        assert outcome.is_error and outcome.hostcall == "invalid_request"
        assert not (it.world.project / "a").exists()


@pytest.mark.parametrize(
    "name, given",
    [
        ("tool", {"call_id": "x", "capability": "read", "method": "fs", "params": {}}),
        ("host_call", {"call_id": 3, "capability": "read", "method": "fs", "params": {}}),
        ("host_call", {"op": "read", "path": "x"}),
        ("env", {"op": "no such"}),
    ],
)
async def test_a_forged_or_malformed_call_is_an_invalid_request(running: Run, name: str, given: Any) -> None:
    async with running(world={"grants": ["read", "env"]}) as it:
        outcome = await it.guest.call_tool(name, given)
        assert outcome.is_error and outcome.hostcall == "invalid_request", outcome


async def test_a_command_gets_its_words_and_its_text(running: Run) -> None:
    async with running() as it:
        assert await it.guest.run_command("greet", 'Ada "two words"') == {"text": 'Ada "two words"'}
        with pytest.raises(Problem) as caught:
            await it.guest.run_command("other")
        assert caught.value.key == "not_found"


async def test_an_event_reaches_it_as_the_protocols_payload(running: Run) -> None:
    body = "(call $answer (i32.const 0) (local.get 0) (local.get 1))"
    async with running(event=body) as it:
        outcome = await it.guest.hook({"type": "tool_call", "toolName": "bash", "input": {"a": 1}}, 0)
        assert outcome.value == {
            "event": "tool_call",
            "data": {"type": "tool_call", "toolName": "bash", "input": {"a": 1}},
        }


async def test_an_error_of_a_tool_is_an_outcome_and_the_instance_lives(running: Run) -> None:
    body = "(call $answer (i32.const 1) (local.get 2) (local.get 3))"
    async with running(tool=body) as it:
        outcome = await it.guest.call_tool("echo", {"message": "no such town"})
        assert outcome.is_error and outcome.content[0]["text"] == "no such town"
        assert it.guest.traps == 0


async def test_calls_are_done_one_at_a_time_in_order(running: Run) -> None:
    async with running() as it:
        answers = await asyncio.gather(*(it.guest.call_tool("echo", {"n": n}) for n in range(50)))
        assert [answer.details["n"] for answer in answers] == list(range(50))


async def test_two_runs_with_equal_inputs_leave_equal_traces(running: Run) -> None:
    traces: list[list[bytes]] = []
    for _ in range(2):
        lines: list[bytes] = []
        async with running(world={"grants": ["read"]}, options={"record": lines.append}) as it:
            (it.world.project / "note.txt").write_text("hello")
            await it.guest.call_tool("echo", {"a": 1})
            await it.guest.call_tool("fs", {"op": "read", "path": "note.txt", "encoding": "utf8"})
            await it.guest.run_command("greet", "you")
        traces.append(lines)
    assert traces[0] == traces[1] and len(traces[0]) >= 8
    assert json.loads(traces[0][0])[1]["format"] == "forestay.trace.v1"

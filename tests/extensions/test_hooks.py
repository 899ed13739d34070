# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""Events across extensions: in order, merged as pi does, and nobody breaks anybody else (H1 to H3)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.extensions.runtime_world import extension

from forestay.extensions.engine.limits import Limits
from forestay.extensions.hooks import Hooks, merge_for
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.outcomes import HookOutcome
from forestay.kernel import Problem


class House:
    """Some extensions and the hooks over them."""

    def __init__(self, *sources: str, limits: Limits | None = None) -> None:
        self.extensions: list[JavaScriptGuest] = [
            extension(f"export default (pi) => {{ {source} }}", name=f"e{n}", limits=limits)
            for n, source in enumerate(sources)
        ]
        self.failed: list[tuple[str, str, str]] = []
        self.hooks = Hooks(
            self.extensions, timeout=2.0, report=lambda e, event, problem: self.failed.append((e, event, problem.key))
        )

    async def __aenter__(self) -> House:
        for subject in self.extensions:
            await subject.load()
        return self

    async def __aexit__(self, *_: object) -> None:
        for subject in self.extensions:
            await subject.close()


CALL = {"type": "tool_call", "toolCallId": "c", "toolName": "bash", "input": {"command": "ls"}}


async def test_h1_handlers_run_in_order_and_see_the_changed_input() -> None:
    add = "pi.on('tool_call', (e) => { e.input.command += ' %s' })"
    async with House(add % "one" + ";" + add % "two", add % "three") as house:
        assert await house.hooks.emit(CALL) == {
            "block": False,
            "reason": None,
            "input": {"command": "ls one two three"},
        }


async def test_a_block_ends_the_event() -> None:
    async with House(
        "pi.on('tool_call', (e) => { e.input.seen = true })",
        "pi.on('tool_call', () => ({ block: true, reason: 'not today' }))",
        "pi.on('tool_call', (e) => { e.input.reached = true })",
    ) as house:
        assert await house.hooks.emit(CALL) == {
            "block": True,
            "reason": "not today",
            "input": {"command": "ls", "seen": True},
        }


@pytest.mark.parametrize(
    "handler",
    [
        "() => { throw new Error('broken') }",
        "async () => { await 0; throw new Error('broken') }",
        "() => { for (;;); }",
        "() => new Promise(() => {})",
        "() => { JSON.parse('['.repeat(1e6)) }",
    ],
)
async def test_h3_a_tool_call_handler_that_cannot_answer_blocks(handler: str) -> None:
    async with House(f"pi.on('tool_call', {handler})", limits=Limits(memory_mb=32, slice_ms=300)) as house:
        result = await house.hooks.emit(CALL)
        assert result["block"] is True
        assert result["reason"].startswith("Extension failed, blocking execution")
        assert [entry[:2] for entry in house.failed] == [("e0", "tool_call")]


@pytest.mark.parametrize("handler", ["() => { throw 1 }", "() => { for (;;); }", "() => new Promise(() => {})"])
async def test_h2_a_failing_handler_of_another_event_stops_nobody(handler: str) -> None:
    good = "pi.on('input', (e) => ({ action: 'transform', text: e.text + '%s' }))"
    async with House(
        good % 1, f"pi.on('input', {handler})", good % 2, limits=Limits(memory_mb=32, slice_ms=300)
    ) as house:
        result = await house.hooks.emit({"type": "input", "text": "x", "source": "interactive"})
        assert result == {"action": "transform", "text": "x12", "images": None}
        assert [entry[:2] for entry in house.failed] == [("e1", "input")]


async def test_tool_results_are_replaced_part_by_part() -> None:
    async with House(
        "pi.on('tool_result', (e) => ({ content: [{ type: 'text', text: e.content[0].text + '!' }] }))",
        "pi.on('tool_result', (e) => ({ details: e.content[0].text }))",
        "pi.on('tool_result', () => undefined)",
    ) as house:
        event = {"type": "tool_result", "content": [{"type": "text", "text": "x"}], "details": None, "isError": False}
        assert await house.hooks.emit(event) == {
            "content": [{"type": "text", "text": "x!"}],
            "details": "x!",
            "isError": False,
        }
        assert event["content"] == [{"type": "text", "text": "x"}], "the caller's event is its own"


async def test_context_may_be_replaced_or_changed_in_place() -> None:
    async with House(
        "pi.on('context', (e) => { e.messages.push({ n: 1 }) })",
        "pi.on('context', (e) => ({ messages: [...e.messages, { n: 2 }] }))",
    ) as house:
        given = [{"n": 0}]
        assert await house.hooks.emit({"type": "context", "messages": given}) == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert given == [{"n": 0}]


async def test_the_system_prompt_is_passed_on_and_messages_are_collected() -> None:
    handler = "pi.on('before_agent_start', (e, ctx) => ({ systemPrompt: ctx.getSystemPrompt() + '+%s', message: { customType: '%s' } }))"
    async with House(handler % ("a", "a"), handler % ("b", "b")) as house:
        event = {"type": "before_agent_start", "prompt": "p", "systemPrompt": "base"}
        assert await house.hooks.emit(event) == {
            "messages": [{"customType": "a"}, {"customType": "b"}],
            "systemPrompt": "base+a+b",
        }


async def test_before_events_can_be_cancelled() -> None:
    async with House(
        "pi.on('session_before_fork', () => ({ cancel: true }))",
        "pi.on('session_before_fork', () => ({ cancel: false }))",
    ) as house:
        assert await house.hooks.emit({"type": "session_before_fork", "entryId": "e"}) == {"cancel": True}


async def test_resources_are_collected_with_their_owner() -> None:
    async with House(
        "pi.on('resources_discover', () => ({ skillPaths: ['a'] }))",
        "pi.on('resources_discover', () => ({ skillPaths: ['b'], themePaths: ['t'] }))",
    ) as house:
        result = await house.hooks.emit({"type": "resources_discover", "cwd": "/", "reason": "startup"})
        assert result == {
            "skillPaths": [{"path": "a", "extensionPath": "e0"}, {"path": "b", "extensionPath": "e1"}],
            "promptPaths": [],
            "themePaths": [{"path": "t", "extensionPath": "e1"}],
        }


async def test_older_names_still_hear_of_new_sessions() -> None:
    source = "const heard = []; for (const name of ['session_start', 'session_switch', 'session_fork', 'session_branch']) pi.on(name, (e) => { heard.push(e.type + ':' + e.reason) }); pi.registerCommand('heard', { handler: async () => heard })"
    async with House(source) as house:
        for reason in ("startup", "resume", "fork"):
            await house.hooks.emit({"type": "session_start", "reason": reason})
        assert await house.extensions[0].run_command("heard") == [
            "session_start:startup", "session_start:resume", "session_switch:resume", "session_start:fork", "session_fork:fork", "session_branch:fork",
        ]  # fmt: skip


async def test_nobody_listens() -> None:
    async with House("") as house:
        assert not house.hooks.listening("input")
        assert await house.hooks.emit({"type": "input", "text": "x"}) == {"action": "continue"}
        assert await house.hooks.emit({"type": "agent_start"}) is None
        assert await house.hooks.emit(CALL) == {"block": False, "reason": None, "input": {"command": "ls"}}


def _fold(event: dict[str, Any], *values: Any) -> Any:
    merge = merge_for(event)
    for value in values:
        if merge.take("e", HookOutcome(value, None, value is not None)):
            break
    return merge.result()


@pytest.mark.parametrize(
    ("event", "values", "wanted"),
    [
        ({"type": "user_bash", "command": "x"}, [None, {"result": 1}, {"result": 2}], {"result": 1}),
        (
            {"type": "input", "text": "x"},
            [{"action": "transform", "text": "y"}, {"action": "handled"}],
            {"action": "handled"},
        ),
        ({"type": "input", "text": "x"}, [{"action": "continue"}, "nonsense", 5], {"action": "continue"}),
        ({"type": "before_provider_request", "payload": 1}, [None, 2], 2),
        (
            {"type": "message_end", "message": {"role": "user", "t": 1}},
            [{"message": {"role": "user", "t": 2}}],
            {"role": "user", "t": 2},
        ),
        ({"type": "message_end", "message": {"role": "user"}}, [None], None),
        ({"type": "tool_result", "content": [], "details": 1, "isError": False}, ["nonsense", []], None),
        ({"type": "tool_call", "input": {}}, ["nonsense"], {"block": False, "reason": None, "input": {}}),
        ({"type": "session_before_switch"}, ["cancel", ["cancel"], 1], None),
        ({"type": "user_bash", "command": "x"}, ["nonsense", {"result": 1}], {"result": 1}),
        ({"type": "session_before_tree"}, [{"label": "a"}, {"label": "b"}], {"label": "b"}),
        ({"type": "agent_end"}, [{"anything": 1}], None),
    ],
)
def test_folds(event: dict[str, Any], values: list[Any], wanted: Any) -> None:
    assert _fold(event, *values) == wanted


async def test_a_message_may_not_change_its_role() -> None:
    async with House(
        "pi.on('message_end', () => ({ message: { role: 'system' } }))",
        "pi.on('message_end', (e) => ({ message: { ...e.message, ok: 1 } }))",
    ) as house:
        assert await house.hooks.emit({"type": "message_end", "message": {"role": "user"}}) == {"role": "user", "ok": 1}
        assert house.failed == [("e0", "message_end", "extension_failed")]


async def test_an_extension_that_is_gone_blocks_tool_calls_only() -> None:
    async with House("pi.on('tool_call', () => {}); pi.on('agent_start', () => {})") as house:
        await house.extensions[0].close()
        assert (await house.hooks.emit(CALL))["block"] is True
        assert await house.hooks.emit({"type": "agent_start"}) is None


def test_a_problem_of_hooks_names_extension_and_event() -> None:
    with pytest.raises(ValueError, match="same role"):
        _fold({"type": "message_end", "message": {"role": "user"}}, {"message": {"role": "tool"}})
    assert Problem("extension_failed", "x").key == "extension_failed"

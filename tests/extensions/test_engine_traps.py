# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""Extensions that try to take the host down: each ends in its Problem, and the neighbour answers meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from tests.extensions.runtime_world import extension, text_of, tool

from forestay.extensions.engine.limits import Limits
from forestay.kernel import Problem

TIGHT = Limits(memory_mb=24, slice_ms=400)

# name: (what the tool does, the Problem's key, what the message says)
HOSTILE = {
    "endless loop": ("while (true) {}", "extension_timeout", "more than 400 ms"),
    "endless loop in finally": ("try { while (true) {} } finally { while (true) {} }", "extension_timeout", "400 ms"),
    "endless microtasks": ("const f = () => queueMicrotask(f); f(); await new Promise(() => {})", "extension_timeout", "400 ms"),
    # Each promise of the chain waits for the next one: it ends with the memory, not with the time.
    "endless promise chain": ("const f = () => Promise.resolve().then(f); await f()", "extension_memory", "memory"),
    "endless await": ("for (;;) await 0", "extension_timeout", "400 ms"),
    "endless async generator": ("async function* g() { for (;;) yield 1 } for await (const x of g());", "extension_timeout", "400 ms"),
    "regular expression bomb": ("/(a+)+$/.test('a'.repeat(50) + 'b')", "extension_timeout", "400 ms"),
    "sort that never ends": ("[3,2,1].sort(() => { while (true); })", "extension_timeout", "400 ms"),
    "getter that never ends": ("return { content: [], get details() { for (;;); } }", "extension_timeout", "400 ms"),
    "toJSON that never ends": ("return { content: [], details: { toJSON() { for (;;); } } }", "extension_timeout", "400 ms"),
    "thenable that never ends": ("return { then() { for (;;); } }", "extension_timeout", "400 ms"),
    "memory bomb": ("const a = []; for (;;) a.push(new Array(10000).fill(1.5))", "extension_memory", "memory"),
    "array buffer bomb": ("const a = []; for (;;) a.push(new ArrayBuffer(1e6))", "extension_memory", "memory"),
    "one huge buffer": ("new ArrayBuffer(1e9)", "extension_memory", "memory"),
    "string repeat bomb": ("'x'.repeat(2 ** 29).toUpperCase()", "extension_memory", "memory"),
    "map bomb": ("const m = new Map(); for (let i = 0; ; i++) m.set(i, 'v'.repeat(100) + i)", "extension_memory", "memory"),
    "closure bomb": ("let f = () => 0; for (;;) { const g = f; f = () => g() + 1 }", "extension_memory", "memory"),
    "deep JSON.parse": ("JSON.parse('['.repeat(1e6))", "extension_trapped", "stack"),
    "deep eval": ("(0, eval)('('.repeat(1e6))", "extension_trapped", "stack"),
}  # fmt: skip
# What JavaScript itself can refuse is an error of the tool, and the VM lives.
REFUSED = {
    "deep recursion": ("const f = () => f() + 1; f()", "Maximum call stack size exceeded"),
    "mutual recursion through natives": ("const f = (x) => [1].map(() => f(x)); f()", "Maximum call stack size exceeded"),
    "recursion in a proxy": ("const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x", "Maximum call stack size exceeded"),
    "string doubling": ("let s = 'x'; for (;;) s += s", "string too long"),
    "module import": ("await import('std')", "could not load module"),
    "cyclic result": ("const a = { content: [] }; a.details = a; return a", "circular"),
    "big integer result": ("return { content: [], details: 1n }", "BigInt"),
    "invalid regular expression": ("new RegExp('('.repeat(1e5))", "too many captures"),
    "no atomics": ("Atomics.wait()", "not defined"),
    "no webassembly": ("WebAssembly.compile()", "not defined"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_tool_ends_in_its_problem_and_the_neighbour_answers(name: str) -> None:
    body, key, message = HOSTILE[name]
    reports: list[tuple[str, dict[str, object]]] = []
    limits = Limits(memory_mb=24, slice_ms=20_000) if key == "extension_memory" else TIGHT
    bad = extension(tool(body), name="bad", limits=limits, report=lambda event, data: reports.append((event, data)))
    good = extension(tool("return 'fine'"), name="good")
    await bad.load()
    await good.load()
    try:
        hostile = asyncio.create_task(bad.call_tool("go", {}))
        assert text_of(await good.call_tool("go", {})) == "fine"
        with pytest.raises(Problem) as caught:
            await hostile
        assert caught.value.key == key
        assert message in caught.value.message
        assert caught.value.details["extension"] == "bad"
        if key != "extension_memory":
            assert [event for event, _ in reports] == ["trap"]
            assert caught.value.details["hostcall"] in ("timeout", "internal")
        assert text_of(await good.call_tool("go", {})) == "fine"
    finally:
        await bad.close()
        await good.close()


@pytest.mark.parametrize("name", REFUSED)
async def test_what_javascript_refuses_is_an_error_of_the_tool(name: str) -> None:
    body, message = REFUSED[name]
    bad = extension(tool(body), limits=TIGHT)
    await bad.load()
    try:
        outcome = await bad.call_tool("go", {})
        assert outcome.is_error
        assert message in text_of(outcome)
        assert bad.traps == 0
    finally:
        await bad.close()


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("while (true) {}", "extension_timeout"),
        ("export default () => { for (;;); }", "extension_timeout"),
        ("export default async () => { for (;;) await 0 }", "extension_timeout"),
        ("export default () => new Promise(() => {})", "extension_timeout"),
        ("export default () => { const a = []; for (;;) a.push(new Array(1e4).fill(1)) }", "extension_memory"),
        ("export default () => { JSON.parse('['.repeat(1e6)) }", "extension_trapped"),
        ("throw new Error('at the top')", "extension_failed"),
        ("export default () => { throw new Error('in the factory') }", "extension_failed"),
        ("export default async () => { await 0; throw new Error('later') }", "extension_failed"),
        ("export default class {}", "extension_failed"),
        ("export default 42", "extension_failed"),
        ("export const x = 1", "extension_failed"),
        ("this is no JavaScript", "extension_failed"),
        ("import fs from 'fs'; export default () => {}", "extension_failed"),
        ("await new Promise(() => {}); export default () => {}", "extension_timeout"),
    ],
)
async def test_a_load_that_fails_is_a_problem_and_leaves_nothing(source: str, key: str) -> None:
    limits = Limits(memory_mb=24, slice_ms=20_000) if key == "extension_memory" else TIGHT
    bad = extension(source, limits=limits, deadline=1.0)
    with pytest.raises(Problem) as caught:
        await bad.load()
    assert caught.value.key == key
    with pytest.raises(Problem, match="is not loaded"):
        await bad.hook({"type": "agent_start"}, 0)


async def test_x2_a_trapped_extension_is_loaded_again_with_fresh_state() -> None:
    source = """let count = 0;
    export default (pi) => {
      const add = (name, execute) => pi.registerTool({ name, description: "d", parameters: { type: "object" }, execute });
      add("count", async () => "" + ++count);
      add("hang", async () => { for (;;); });
    }"""
    subject = extension(source, limits=TIGHT)
    await subject.load()
    try:
        assert [text_of(await subject.call_tool("count", {})) for _ in range(2)] == ["1", "2"]
        with pytest.raises(Problem):
            await subject.call_tool("hang", {})
        assert subject.traps == 1
        assert text_of(await subject.call_tool("count", {})) == "1"
    finally:
        await subject.close()


async def test_a_call_while_an_extension_is_loaded_again_waits_for_its_tools_and_commands() -> None:
    subject = extension(
        """export default async (pi) => {
          await 0;
          pi.registerTool({ name: "hang", description: "d", parameters: { type: "object" }, execute: async () => { for (;;); } });
          pi.registerTool({ name: "go", description: "d", parameters: { type: "object" }, execute: async () => "went" });
          pi.registerCommand("greet", { handler: async () => "hello" });
        }""",
        limits=TIGHT,
    )
    await subject.load()
    try:
        for ask in (lambda: subject.call_tool("go", {}), lambda: subject.run_command("greet")):
            with pytest.raises(Problem):
                await subject.call_tool("hang", {})
            while subject.registrations.tools:  # the new VM is there, and has registered nothing yet
                await asyncio.sleep(0)
            assert await ask()
    finally:
        await subject.close()


async def test_everybody_who_waits_hears_of_the_trap() -> None:
    subject = extension(
        """export default (pi) => {
          const add = (name, execute) => pi.registerTool({ name, description: "d", parameters: { type: "object" }, execute });
          add("wait", () => new Promise(() => {}));
          add("hang", async () => { for (;;); });
        }""",
        limits=TIGHT,
    )
    await subject.load()
    try:
        waiting = [asyncio.create_task(subject.call_tool("wait", {})) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Problem):
            await subject.call_tool("hang", {})
        for task in waiting:
            with pytest.raises(Problem) as caught:
                await task
            assert caught.value.key == "extension_timeout"
    finally:
        await subject.close()


async def test_an_extension_that_always_traps_is_switched_off() -> None:
    subject = extension(tool("for (;;);"), limits=Limits(memory_mb=24, slice_ms=60))
    await subject.load()
    try:
        for _ in range(12):
            with pytest.raises(Problem) as caught:
                await subject.call_tool("go", {})
        assert caught.value.key == "extension_trapped"
        assert "stays off" in caught.value.message
    finally:
        await subject.close()

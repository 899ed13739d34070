# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""Extensions that do too much of something allowed: the host keeps its memory, its threads and its time."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.extensions.runtime_world import TableDispatcher, extension, text_of, tool

from forestay.extensions.engine.limits import Limits
from forestay.extensions.hooks import Hooks
from forestay.extensions.protocol import HostCall, HostResult
from forestay.extensions.vm_driver import MAX_CALLS
from forestay.kernel import ManualClock, Problem


def _with_pi(body: str) -> str:
    return f"""export default (pi) => pi.registerTool({{ name: "go", description: "d", parameters: {{ type: "object" }},
      async execute(id, params, signal, onUpdate, ctx) {{ {body} }} }})"""


async def test_a_flood_of_host_calls_is_refused_beyond_the_limit() -> None:
    released = asyncio.Event()

    async def slow(call: HostCall) -> dict[str, Any]:
        await released.wait()
        return {}

    dispatcher = TableDispatcher(tool=slow)
    source = _with_pi(
        "const calls = [...Array(3000).keys()].map(() => pi.tool('x').then(() => 'ok', (e) => e.code));"
        "const first = await Promise.race(calls); setTimeout(() => pi.log('info', 'go'), 1);"
        "const all = await Promise.all(calls); return first + ':' + all.filter((c) => c === 'ok').length + ':' + all.filter((c) => c === 'denied').length"
    )

    def log(call: HostCall) -> dict[str, Any]:
        released.set()
        return {}

    dispatcher.answers["log"] = log
    subject = extension(source, dispatcher)
    await subject.load()
    # One of the refused is the log call's place: it comes when some are done.
    asyncio.get_running_loop().call_later(5, released.set)
    assert text_of(await subject.call_tool("go", {})) == f"denied:{MAX_CALLS}:{3000 - MAX_CALLS}"
    await subject.close()


async def test_an_extension_that_keeps_its_loop_busy_still_answers_and_so_do_others() -> None:
    busy = extension(
        "export default (pi) => { const spin = () => setImmediate(spin); pi.registerCommand('spin', { handler: async () => spin() }); pi.registerCommand('alive', { handler: async () => 'alive' }) }",
        name="busy",
    )
    other = extension(tool("return 'fine'"), name="other")
    await busy.load()
    await other.load()
    await busy.run_command("spin")
    assert await busy.run_command("alive") == "alive"
    assert text_of(await other.call_tool("go", {})) == "fine"
    await busy.close()
    await other.close()


async def test_too_many_handlers_are_refused() -> None:
    subject = extension("export default (pi) => { for (let i = 0; i < 5000; i++) pi.on('input', () => {}) }")
    with pytest.raises(Problem, match="more than 100 handlers"):
        await subject.load()


async def test_registering_the_same_again_and_again_keeps_one() -> None:
    subject = extension(
        "export default (pi) => { pi.registerCommand('again', { handler: async () => { for (let i = 0; i < 5000; i++) pi.registerCommand('again', { description: '' + i, handler() {} }) } }) }"
    )
    await subject.load()
    await subject.run_command("again")
    assert len(subject._specs) == 1
    assert subject.registrations.commands["again"].description == "4999"
    await subject.close()


async def test_updates_are_kept_up_to_a_limit_and_all_are_heard() -> None:
    subject = extension(tool("for (let i = 0; i < 12000; i++) onUpdate(i); return 'done'"))
    await subject.load()
    heard: list[Any] = []
    outcome = await subject.call_tool("go", {}, on_update=heard.append)
    assert (len(outcome.updates), len(heard)) == (10_000, 12_000)
    await subject.close()


async def test_an_outbox_that_is_too_large_ends_the_vm() -> None:
    subject = extension(
        tool("const big = 'x'.repeat(2 ** 20); for (let i = 0; i < 80; i++) onUpdate(big); return ''"),
        limits=Limits(memory_mb=1024, slice_ms=20_000),
    )
    await subject.load()
    with pytest.raises(Problem) as caught:
        await subject.call_tool("go", {})
    assert caught.value.key == "extension_memory"
    await subject.close()


async def test_a_synchronous_call_may_last_no_longer_than_whoever_asked_waits() -> None:
    limits: list[int | None] = []

    def session(call: HostCall) -> HostResult:
        limits.append(call.timeout_ms)
        return HostResult.failed(call.call_id, "timeout", "too long")

    subject = extension(
        _with_pi("try { ctx.sessionManager.getLeafId() } catch (e) { return e.code }"), TableDispatcher(session=session)
    )
    await subject.load()
    assert text_of(await subject.call_tool("go", {}, timeout=3.0)) == "timeout"
    assert limits[0] is not None
    assert 2_000 <= limits[0] <= 3_000
    await subject.close()


async def test_closing_cancels_the_synchronous_call_that_blocks_the_thread() -> None:
    entered, released = threading.Event(), threading.Event()

    class Blocking(TableDispatcher):
        def call_sync(self, call: HostCall, extension: str) -> HostResult:
            entered.set()
            released.wait(30)
            return HostResult.failed(call.call_id, "timeout", "cancelled")

        def cancel(self, call_id: str) -> None:
            super().cancel(call_id)
            released.set()

    dispatcher = Blocking()
    subject = extension(_with_pi("ctx.sessionManager.getLeafId()"), dispatcher)
    await subject.load()
    waiting = asyncio.create_task(subject.call_tool("go", {}, timeout=1e9))
    await asyncio.to_thread(entered.wait)
    await subject.close()
    with pytest.raises(Problem):
        await waiting
    assert dispatcher.cancelled == ["test/1.1"]


async def test_v3_time_in_a_synchronous_call_is_not_the_guests() -> None:
    import time

    def slow(call: HostCall) -> dict[str, Any]:
        time.sleep(0.6)  # a real wait of a real thread: the deadline that must not count it is real as well
        return {"value": "late"}

    subject = extension(
        _with_pi("return ctx.sessionManager.getLeafId()"),
        TableDispatcher(session=slow),
        limits=Limits(memory_mb=32, slice_ms=300),
    )
    await subject.load()
    assert text_of(await subject.call_tool("go", {})) == "late"
    assert subject.traps == 0
    await subject.close()


async def test_h4_all_handlers_of_an_extension_share_one_limit(clock: ManualClock) -> None:
    subject = extension(
        "export default (pi) => { for (let i = 0; i < 50; i++) pi.on('agent_start', () => new Promise(() => {})) }",
        clock=clock,
    )
    await subject.load()
    before = clock.monotonic()
    await Hooks([subject], timeout=4.0).emit({"type": "agent_start"})
    assert clock.monotonic() - before < 10
    await subject.close()


@pytest.mark.sweep
async def test_sweep_memory_stays_flat_over_many_calls() -> None:
    subject = extension(tool("return { content: [{ type: 'text', text: 'x'.repeat(100) + params.n }] }"))
    await subject.load()
    for n in range(2_000):
        await subject.call_tool("go", {"n": n})
    start = await subject.memory_bytes()
    for n in range(50_000):
        await subject.call_tool("go", {"n": n})
    assert await subject.memory_bytes() == start
    await subject.close()

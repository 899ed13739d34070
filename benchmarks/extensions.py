"""The extension runtime: loading, calling, dispatching, and the memory of an extension.

Each latency is measured in five stretches. The percentiles are those of the stretch with the lowest median, because
the machine also does other work. The percentiles of all five together stand beside them.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from typing import Any

from benchmarks import extension_corpus, pi_runtime
from benchmarks.measure import duration, percentile, percentiles, rate, resident, stretches
from forestay.extensions import HostCall, HostResult, JavaScriptGuest, Program, Surroundings, compile_module
from forestay.extensions.engine.image import base_image
from forestay.extensions.engine.limits import Limits
from forestay.extensions.engine.native import native
from forestay.extensions.engine.pool import Pool
from forestay.extensions.engine.snapshot import Nobody, restore
from forestay.extensions.hooks import Hooks

Row = tuple[str, str, str]
STRETCHES = 5
SOAK = 1_000_000
MIX = ("echo", "echo", "sync", "echo", "event", "echo", "sync", "echo", "echo", "event")

SOURCE = """export default (pi) => {
  const add = (name, execute) => pi.registerTool({ name, description: "d", execute,
    parameters: { type: "object", properties: { n: { type: "number" } } } });
  add("echo", async (id, params) => ({ content: [{ type: "text", text: "" + params.n }] }));
  add("call", async () => ({ content: [], details: await pi.tool("read", { path: "a" }) }));
  add("sync", async (id, params, signal, update, ctx) => ({ content: [], details: ctx.sessionManager.getLeafId() }));
  pi.on("turn_start", () => {});
}"""


class Answering:
    """A dispatcher that answers immediately, so that only the way there and back is measured."""

    async def call(self, call: HostCall, extension: str) -> AsyncIterator[HostResult]:
        yield HostResult.ok(call.call_id, {"value": 1})

    def call_sync(self, call: HostCall, extension: str) -> HostResult:
        return HostResult.ok(call.call_id, {"value": 1})

    def cancel(self, call_id: str) -> None:
        pass


def run() -> list[Row]:
    return asyncio.run(_run())


async def _run() -> list[Row]:
    entries = pi_runtime.examples()
    real = pi_runtime.measure(entries)
    artifacts = extension_corpus.compiled(entries)
    rows = [_engine()]
    memory = [
        await extension_corpus.memory(artifacts),
        await _memory(),
    ]  # first: later, freed memory would be used again
    rows += await extension_corpus.cold_loads(artifacts, real)
    rows += await _loads()
    rows += await _calls()
    rows += await extension_corpus.file_calls(real)
    rows += await _dispatch()
    rows += extension_corpus.real_calls(real)
    return [*rows, *memory, await _soak()]


def _extension(name: str = "bench", **options: Any) -> JavaScriptGuest:
    artifact = Program("index.js", hashlib.sha256(SOURCE.encode()).hexdigest(), SOURCE, _bytecode())
    return JavaScriptGuest(artifact, Surroundings(name, "/project"), Answering(), **options)


_compiled: list[bytes] = []


def _bytecode() -> bytes:
    if not _compiled:
        _compiled.append(compile_module(SOURCE, "index.js"))
    return _compiled[0]


def _engine() -> Row:
    native(), base_image()
    times = []
    for _ in range(60):
        started = time.perf_counter()
        vm = restore(base_image(), Nobody(), Limits())
        times.append(time.perf_counter() - started)
        vm.close()
    size = sum(len(data) for _, data in base_image().blocks)
    return (
        "VM from the prelude's image",
        f"p50 {duration(percentile(times, 0.5))}, p95 {duration(percentile(times, 0.95))}",
        f"{size // 1024} KB, mapped and not copied where the system can",
    )


async def _loads() -> list[Row]:
    cold: list[float] = []
    for _ in range(60):
        subject = _extension()
        started = time.perf_counter()
        await subject.load()
        cold.append(time.perf_counter() - started)
        await subject.close()
    pool = Pool(spares=2)
    first = _extension(pool=pool)
    await first.load()
    await first.close()
    warm: list[float] = []
    for _ in range(120):
        pool.wait()
        subject = _extension(pool=pool)
        started = time.perf_counter()
        await subject.load()
        warm.append(time.perf_counter() - started)
        await subject.close()
    pool.close()
    return [
        (
            "load, cold, the smallest (compiled artifact, no VM)",
            percentiles(cold),
            "bar: p95 60 ms; limited by the new instance, mapping the image, and the thread",
        ),
        ("load, warm (from the pool)", percentiles(warm), "bar: p95 1 ms; limited by mapping and adopting the VM"),
    ]


async def _calls() -> list[Row]:
    subject = _extension()
    await subject.load()
    rows = []
    for tool, what, beside in (
        ("echo", "tool call, no host call", "bars: p50 80 us, p95 200 us; limited by the engine: two thirds of it"),
        (
            "call",
            "tool call with one host call",
            "limited by the engine, which is entered twice, and a task for the call",
        ),
        (
            "sync",
            "tool call with one synchronous host call",
            "limited by the engine; the call itself stays on the thread",
        ),
    ):
        best, everything = await stretches(lambda tool=tool: subject.call_tool(tool, {"n": 4}), 600)  # type: ignore[misc]
        rows.append((what, percentiles(best), f"all: {percentiles(everything, 0.5, 0.95)}; {beside}"))
    rows.append(
        (
            "tool call while a neighbour loops without end",
            percentiles(await _beside_a_loop(subject)),
            "the neighbour's thread does not hold the interpreter; limited by waking the other thread",
        )
    )
    await subject.close()
    return [*rows, await _together()]


async def _together(count: int = 8, calls: int = 400) -> Row:
    """Measure several callers at once, each with its own extension, so that no caller waits for another."""
    everybody = [_extension(f"bench{n}", limits=Limits(memory_mb=64)) for n in range(count)]
    for subject in everybody:
        await subject.load()

    async def calling(subject: JavaScriptGuest) -> None:
        for _ in range(calls):
            await subject.call_tool("echo", {"n": 4})

    best = 0.0
    for _ in range(STRETCHES):
        started = time.perf_counter()
        await asyncio.gather(*(calling(subject) for subject in everybody))
        best = max(best, count * calls / (time.perf_counter() - started))
    for subject in everybody:
        await subject.close()
    return (
        f"tool calls of {count} callers to {count} extensions",
        rate(best),
        "limited by the interpreter lock: only JavaScript runs side by side",
    )


async def _beside_a_loop(subject: JavaScriptGuest) -> list[float]:
    """Latencies while another extension spends its whole slice in an endless loop."""
    hostile = "export default (pi) => { pi.registerCommand('spin', { handler: () => { for (;;); } }) }"
    spinning = JavaScriptGuest(
        Program("index.js", "spin", hostile), Surroundings("spin", "/"), Answering(), limits=Limits(slice_ms=1_500)
    )
    await spinning.load()
    task = asyncio.create_task(spinning.run_command("spin"))
    times = []
    while not task.done():
        started = time.perf_counter()
        await subject.call_tool("echo", {"n": 4})
        times.append(time.perf_counter() - started)
    await asyncio.gather(task, return_exceptions=True)
    await spinning.close()
    return times


async def event_times(count: int, times: int) -> list[float]:
    """Return the seconds of an event to `count` extensions: the best of five stretches."""
    return (await _events(count, times))[0]


async def _events(count: int, times: int) -> tuple[list[float], list[float]]:
    pool = Pool(spares=0)
    everybody = [_extension(f"bench{n}", pool=pool, limits=Limits(memory_mb=64)) for n in range(count)]
    for subject in everybody:
        await subject.load()
    hooks = Hooks(everybody)
    found = await stretches(lambda: hooks.emit({"type": "turn_start", "turnIndex": 1}), times)
    for subject in everybody:
        await subject.close()
    pool.close()
    return found


async def _dispatch() -> list[Row]:
    rows = []
    for count in (1, 10, 100):
        times, everything = await _events(count, max(20, 400 // count))
        each = percentile(times, 0.99) / count
        limit = "limited by the engine" if count == 1 else "one after the other, as pi does: limited by the caches"
        rows.append(
            (
                f"event to {count} extension{'s' * (count > 1)}",
                percentiles(times, 0.5, 0.99),
                f"{duration(each)} each, bar: 1 ms each; all: {percentiles(everything, 0.5, 0.99)}; {limit}",
            )
        )
    return rows


async def _memory() -> Row:
    before = resident()
    everybody = [_extension(f"bench{n}") for n in range(20)]
    for subject in everybody:
        await subject.load()
    each = (resident() - before) / len(everybody)
    for subject in everybody:
        await subject.close()
    return (
        "memory per loaded extension, the smallest",
        f"{each / 1024 / 1024:.1f} MB",
        "limited by the pages that it has written to; the rest is the image, shared by all",
    )


async def _soak(calls: int = SOAK) -> Row:
    """Make as many tool calls and events as hours of use bring; memory must not grow."""
    subject = _extension()
    await subject.load()
    hooks = Hooks([subject])
    for _ in range(2_000):
        await _mixed(subject, hooks)
    points, started = [], time.perf_counter()
    for part in range(5):
        points.append((resident(), await subject.memory_bytes()))
        for _ in range(0 if part == 4 else calls // 4 // len(MIX)):
            await _mixed(subject, hooks)
    speed = calls / (time.perf_counter() - started)
    await subject.close()
    process = ", ".join(f"{(now - points[0][0]) / 1024:+,.0f}" for now, _ in points)
    inside = ", ".join(f"{(now - points[0][1]) / 1024:+,.0f}" for _, now in points)
    return (
        f"soak: {calls:,} calls, at 0, 25, 50, 75 and 100 %",
        f"process {process} KB; VM {inside} KB",
        f"{rate(speed)}, one after the other: of {len(MIX)}, {MIX.count('echo')} plain calls, {MIX.count('sync')} with "
        f"a synchronous host call, {MIX.count('event')} events; from {points[0][0] / 1048576:.0f} MB and "
        f"{points[0][1] / 1048576:.1f} MB",
    )


async def _mixed(subject: JavaScriptGuest, hooks: Hooks) -> None:
    for kind in MIX:
        if kind == "event":
            await hooks.emit({"type": "turn_start", "turnIndex": 1})
        else:
            await subject.call_tool(kind, {"n": 1})

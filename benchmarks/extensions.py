"""The extension runtime: loading, calling, dispatching, and what an extension costs in memory.

Latencies are percentiles of the best of several stretches: on a machine that does other things as well, the best
stretch is the one that measured this.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import duration, percentile, rate
from holdfast.extensions.engine.bytecode import compile_module
from holdfast.extensions.engine.image import base_image
from holdfast.extensions.engine.limits import Limits
from holdfast.extensions.engine.native import native
from holdfast.extensions.engine.pool import Pool
from holdfast.extensions.engine.snapshot import Nobody, restore
from holdfast.extensions.hooks import Hooks
from holdfast.extensions.isolate import Artifact
from holdfast.extensions.protocol import HostCall, HostResult
from holdfast.extensions.runtime import Extension, Surroundings

Row = tuple[str, str, str]
STRETCHES = 5

SOURCE = """export default (pi) => {
  const add = (name, execute) => pi.registerTool({ name, description: "d", execute,
    parameters: { type: "object", properties: { n: { type: "number" } } } });
  add("echo", async (id, params) => ({ content: [{ type: "text", text: "" + params.n }] }));
  add("call", async () => ({ content: [], details: await pi.tool("read", { path: "a" }) }));
  add("sync", async (id, params, signal, update, ctx) => ({ content: [], details: ctx.sessionManager.getLeafId() }));
  pi.on("turn_start", () => {});
}"""


class Answering:
    """A dispatcher that answers at once: what is measured is the way there and back."""

    async def call(self, call: HostCall, extension: str) -> AsyncIterator[HostResult]:
        yield HostResult.ok(call.call_id, {"value": 1})

    def call_sync(self, call: HostCall, extension: str) -> HostResult:
        return HostResult.ok(call.call_id, {"value": 1})

    def cancel(self, call_id: str) -> None:
        pass


def run() -> list[Row]:
    return asyncio.run(_run())


async def _run() -> list[Row]:
    rows = [_engine()]
    memory = await _memory_and_soak()  # first: later, freed memory would be used again and not be seen
    rows += await _loads()
    rows += await _calls()
    rows += await _dispatch()
    return rows + memory


def _extension(name: str = "bench", **options: Any) -> Extension:
    artifact = Artifact("index.js", hashlib.sha256(SOURCE.encode()).hexdigest(), SOURCE, _bytecode())
    return Extension(artifact, Surroundings(name, "/project"), Answering(), **options)


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
            "load, cold (compiled artifact, no VM)",
            _p(cold),
            "bar: p95 60 ms; new instance, image, bytecode, factory, thread",
        ),
        ("load, warm (from the pool)", _p(warm), "bar: p95 1 ms; a restored instance and a new thread"),
    ]


async def _best(work: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Latencies of the stretch with the lowest median."""
    best: list[float] = []
    for _ in range(STRETCHES):
        times = []
        for _ in range(count):
            started = time.perf_counter()
            await work()
            times.append(time.perf_counter() - started)
        if not best or percentile(times, 0.5) < percentile(best, 0.5):
            best = times
    return best


async def _calls() -> list[Row]:
    subject = _extension()
    await subject.load()
    rows = []
    for tool, what, beside in (
        ("echo", "tool call, no host call", "bars: p50 80 us, p95 200 us; two thread switches are a third of it"),
        ("call", "tool call with one host call", "two trips through the thread"),
        ("sync", "tool call with one synchronous host call", "one trip"),
    ):
        times = await _best(lambda tool=tool: subject.call_tool(tool, {"n": 4}), 600)  # type: ignore[misc]
        rows.append((what, _p(times), beside))
    times = await _beside_a_loop(subject)
    rows.append(
        (
            "tool call while a neighbour loops without end",
            _p(times),
            "the neighbour's thread does not hold the interpreter",
        )
    )
    await subject.close()
    return rows


async def _beside_a_loop(subject: Extension) -> list[float]:
    """Latencies while another extension spends its whole slice in an endless loop."""
    hostile = "export default (pi) => { pi.registerCommand('spin', { handler: () => { for (;;); } }) }"
    spinning = Extension(
        Artifact("index.js", "spin", hostile), Surroundings("spin", "/"), Answering(), limits=Limits(slice_ms=1_500)
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


async def _dispatch() -> list[Row]:
    rows = []
    for count in (1, 10, 100):
        pool = Pool(spares=0)
        everybody = [_extension(f"bench{n}", pool=pool, limits=Limits(memory_mb=64)) for n in range(count)]
        for subject in everybody:
            await subject.load()
        hooks = Hooks(everybody)
        times = await _best(
            lambda hooks=hooks: hooks.emit({"type": "turn_start", "turnIndex": 1}), max(20, 400 // count)
        )  # type: ignore[misc]
        each = percentile(times, 0.99) / count
        rows.append(
            (
                f"event to {count} extension{'s' * (count > 1)}",
                f"p99 {duration(percentile(times, 0.99))}",
                f"{duration(each)} each; bar: 1 ms each",
            )
        )
        for subject in everybody:
            await subject.close()
        pool.close()
    return rows


async def _memory_and_soak(calls: int = 20_000) -> list[Row]:
    before = _resident()
    everybody = [_extension(f"bench{n}") for n in range(20)]
    for subject in everybody:
        await subject.load()
    each = (_resident() - before) / len(everybody)
    subject = everybody[0]
    for _ in range(2_000):
        await subject.call_tool("call", {"n": 1})
    start, vm_start = _resident(), await subject.memory_bytes()
    started = time.perf_counter()
    for _ in range(calls):
        await subject.call_tool("echo", {"n": 1})
    speed = calls / (time.perf_counter() - started)
    grown, vm_grown = _resident() - start, await subject.memory_bytes() - vm_start
    for subject in everybody:
        await subject.close()
    return [
        (
            "memory per loaded extension",
            f"{each / 1024 / 1024:.1f} MB",
            "the pages that it has written to; the rest is the image, shared by all",
        ),
        (
            f"soak: {calls:,} tool calls",
            f"{grown / 1024:+,.0f} KB in the process, {vm_grown / 1024:+,.0f} KB in the VM",
            f"{rate(speed)}, one after the other",
        ),
    ]


def _p(times: list[float]) -> str:
    return ", ".join(f"p{int(share * 100)} {duration(percentile(times, share))}" for share in (0.5, 0.95, 0.99))


def _resident() -> int:
    """Memory of this process, what it shares counted by its share."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0

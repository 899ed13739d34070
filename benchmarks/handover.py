"""Measures what watching for another thread saves (`engine/handover.py`), and what checking the loop's queue costs.

Short stretches of each way alternate in one process, so that other work of the machine disturbs all ways alike; the
figure is the best median of a way.

watching   the default: each side watches a word of memory for a moment before it sleeps
sleeping   the same without watching: every hand-over wakes a thread
blind      watching even when the event loop has other work (asyncio's own queue is not checked)
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.extensions import _extension
from benchmarks.measure import duration, rate
from forestay.extensions.engine import owner
from forestay.extensions.hooks import Hooks

Row = tuple[str, str, str]
ROUNDS, CALLS = 12, 120


class Ways:
    """Switches the running event loop from one way to another."""

    def __init__(self) -> None:
        self._attention = owner._attention_of(asyncio.get_running_loop())
        self._watcher, self._queue = self._attention.watcher, self._attention._ready
        self._watching = owner.Runner._next

    def take(self, way: str) -> None:
        self._attention.watcher = None if way == "sleeping" else self._watcher
        self._attention._ready = () if way == "blind" else self._queue
        owner.Runner._next = _slept if way == "sleeping" else self._watching  # type: ignore[method-assign]


def _slept(runner: owner.Runner, answered: bool) -> Any:
    if answered and runner.line is not None:
        runner.line.answer()
    return runner._given.get()


def run() -> list[Row]:
    return asyncio.run(_run())


async def _run() -> list[Row]:
    subject = _extension()
    await subject.load()
    hooks, ways = Hooks([subject]), Ways()
    if ways._watcher is None:
        await subject.close()
        return [("hand-over between threads", "not measured", "this machine has one core, or no shared memory")]
    work: dict[str, Callable[[], Awaitable[Any]]] = {
        "tool call, no host call": lambda: subject.call_tool("echo", {"n": 4}),
        "tool call with one host call": lambda: subject.call_tool("call", {"n": 4}),
        "tool call with one synchronous host call": lambda: subject.call_tool("sync", {"n": 4}),
        "event to 1 extension": lambda: hooks.emit({"type": "turn_start", "turnIndex": 1}),
    }
    rows = [await _alternating(ways, name, call) for name, call in work.items()]
    rows.append(await _beside_others(ways, work["tool call, no host call"]))
    ways.take("watching")
    await subject.close()
    return rows


async def _alternating(ways: Ways, name: str, call: Callable[[], Awaitable[Any]]) -> Row:
    found: dict[str, list[float]] = {"watching": [], "sleeping": []}
    for _ in range(ROUNDS):
        for way, medians in found.items():
            ways.take(way)
            times = []
            for _ in range(CALLS):
                started = time.perf_counter()
                await call()
                times.append(time.perf_counter() - started)
            medians.append(statistics.median(times))
    watching, sleeping = min(found["watching"]), min(found["sleeping"])
    saved = 100 * (sleeping - watching) / sleeping
    return (
        f"{name}, watching",
        f"p50 {duration(watching)}",
        f"sleeping: {duration(sleeping)}; watching saves {saved:.0f} %",
    )


async def _beside_others(ways: Ways, call: Callable[[], Awaitable[Any]]) -> Row:
    """Measure how much other work the event loop does while an extension is called all the time."""
    found: dict[str, list[float]] = {"watching": [], "blind": []}
    for _ in range(ROUNDS):
        for way, speeds in found.items():
            ways.take(way)
            done = 0

            async def busy() -> None:
                nonlocal done
                while True:
                    sum(range(600))
                    done += 1
                    await asyncio.sleep(0)

            tasks = [asyncio.create_task(busy()) for _ in range(4)]
            started = time.perf_counter()
            for _ in range(CALLS):
                await call()
            speeds.append(done / (time.perf_counter() - started))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    looking, blind = statistics.median(found["watching"]), statistics.median(found["blind"])
    return "other tasks beside tool calls, the loop's queue looked at", rate(looking), f"not looked at: {rate(blind)}"

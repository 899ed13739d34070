"""Functions that measure, and that write figures."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path


def per_second(work: Callable[[], object], *, seconds: float = 0.5, least: int = 5) -> float:
    """Return how often `work` runs per second: the best of three stretches."""
    work()
    best = 0.0
    for _ in range(3):
        gc.collect()
        count, started = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds / 3 or count < least:
            work()
            count += 1
        best = max(best, count / elapsed)
    return best


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def rate(value: float) -> str:
    return f"{value:,.0f}/s"


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.1f} times"


def percentiles(values: list[float], *shares: float) -> str:
    return ", ".join(
        f"p{share * 100:.0f} {duration(percentile(values, share))}" for share in shares or (0.5, 0.95, 0.99)
    )


async def stretches(
    work: Callable[[], Awaitable[object]], count: int, times: int = 5
) -> tuple[list[float], list[float]]:
    """Measure `times` stretches of `count` calls; return the latencies of the stretch with the lowest median, and of
    all."""
    best: list[float] = []
    everything: list[float] = []
    for _ in range(times):
        taken = []
        for _ in range(count):
            started = time.perf_counter()
            await work()
            taken.append(time.perf_counter() - started)
        everything += taken
        if not best or percentile(taken, 0.5) < percentile(best, 0.5):
            best = taken
    return best, everything


async def in_turns(
    works: Sequence[Callable[[], Awaitable[object]]], between: Callable[[], Awaitable[object]], count: int, times: int
) -> list[list[float]]:
    """Return the median latencies of `count` calls of each work, measured `times` times in turns.

    Every second round has the opposite order. `between` finishes the work that a turn left to do.
    """
    medians: list[list[float]] = [[] for _ in works]
    for round in range(times):
        for at in range(len(works))[:: 1 if round % 2 == 0 else -1]:
            taken = []
            for _ in range(count):
                started = time.perf_counter()
                await works[at]()
                taken.append(time.perf_counter() - started)
            medians[at].append(percentile(taken, 0.5))
            await between()
    return medians


def resident() -> int:
    """Return the private memory that this process has written; 0 if the system does not tell.

    Shared memory (libraries, the prelude's image) does not count: its share would change with the other processes.
    """
    rollup = Path("/proc/self/smaps_rollup")
    if rollup.exists():
        for line in rollup.read_text().splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
    return 0

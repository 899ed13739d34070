"""How things are measured here."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def per_second(work: Callable[[], object], *, seconds: float = 0.5, least: int = 5) -> float:
    """How often `work` can be done in a second: the best of three stretches."""
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

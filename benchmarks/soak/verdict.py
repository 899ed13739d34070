"""What a soak found: the table by minute, and what is wrong. Pure, so that its tests need no host.

S1  Any operation that failed, or that could not begin, fails the soak.
S2  Memory after the warm-up may grow by `SLOPE_MIB` a minute; growth below `NOISE_MIB` in all is not looked at.
S3  For each kind the p99 of the last third is at most twice that of the first.
S4  The ledger verifies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.measure import percentile
from benchmarks.soak.load import KINDS, Done

SLOPE_MIB = 2.0
NOISE_MIB = 6.0
_TIMES = 2.0


class Memory(NamedTuple):
    at: float  # on the same clock as Done.due
    resident: float  # MiB
    private: float  # MiB that no file stands behind: where a leak shows


class Soak(NamedTuple):
    """One soak: the open loop began at `began`, took `seconds`, at `rate` operations a second."""

    began: float
    seconds: float
    capacity: float
    rate: float
    done: Sequence[Done]
    memory: Sequence[Memory]
    behind: int
    ledger_ok: bool
    records: int


def slope(memory: Sequence[Memory]) -> float:
    """MiB a minute: the least-squares line through the private memory."""
    if len(memory) < 2:
        return 0.0
    middle = sum(item.at for item in memory) / len(memory)
    level = sum(item.private for item in memory) / len(memory)
    spread = sum((item.at - middle) ** 2 for item in memory)
    rise = sum((item.at - middle) * (item.private - level) for item in memory)
    return 60 * rise / spread if spread else 0.0


def faults(soak: Soak) -> list[str]:
    """What is wrong, in words; nothing when all held."""
    found = []
    errors = Counter(item.error for item in soak.done if item.error)
    found += [f"S1 {count} times {error}" for error, count in errors.most_common(5)]
    if soak.behind:
        found.append(f"S1 {soak.behind} operations could not begin: the host did not keep up")
    growth = slope(soak.memory)
    if growth > SLOPE_MIB and growth * soak.seconds / 60 > NOISE_MIB:
        found.append(f"S2 memory grows by {growth:.1f} MiB a minute; {SLOPE_MIB:.0f} are allowed")
    for kind in KINDS:
        first, last = (_p99(soak, kind, third) for third in (0, 2))
        if first is not None and last is not None and last > _TIMES * first:
            found.append(f"S3 {kind}: p99 was {first:.0f} ms in the first third and {last:.0f} ms in the last")
    if not soak.ledger_ok:
        found.append("S4 the ledger does not verify")
    return found


def table(soak: Soak) -> list[str]:
    """A row a minute: operations, errors, memory, and p50 and p99 of each kind in milliseconds."""
    lines = [
        "| minute | operations | errors | RSS MiB | own MiB | " + " | ".join(f"{k} p50/p99 ms" for k in KINDS) + " |",
        "|---" * (5 + len(KINDS)) + "|",
    ]
    minutes = max(1, round(soak.seconds / 60))
    length = soak.seconds / minutes
    for minute in range(minutes):
        low, high = soak.began + minute * length, soak.began + (minute + 1) * length
        done = [item for item in soak.done if low <= item.due < high]
        held = [item for item in soak.memory if low <= item.at < high]
        cells = [
            str(minute + 1),
            f"{len(done):,}",
            str(sum(item.error is not None for item in done)),
            f"{held[-1].resident:.0f}" if held else "-",
            f"{held[-1].private:.0f}" if held else "-",
            *(_cell([item.seconds for item in done if item.kind == kind]) for kind in KINDS),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _cell(seconds: list[float]) -> str:
    return f"{percentile(seconds, 0.5) * 1000:.0f} / {percentile(seconds, 0.99) * 1000:.0f}" if seconds else "-"


def _p99(soak: Soak, kind: str, third: int) -> float | None:
    low = soak.began + third * soak.seconds / 3
    taken = [item.seconds for item in soak.done if item.kind == kind and low <= item.due < low + soak.seconds / 3]
    return percentile(taken, 0.99) * 1000 if taken else None

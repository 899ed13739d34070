"""The results of a soak, and their verdict. Pure, so that its tests need no host.

S1  Every operation that failed, or that could not begin, fails the soak; so does one that had to be repeated although
    the host was not restarting.
S2  Memory may grow by `slope_mib` per minute within a life of the host, without its first third; a total growth below
    `NOISE_MIB` is ignored.
S3  For each kind the p99 of the last third is at most twice that of the first, without operations that met a restart.
S4  The ledger verifies.
S5  At the end at most `MORE_FILES` more descriptors are open than after the warm-up.
S6  Files are bounded: in the last third, the ledger's growth per operation and the size of its write-ahead log are at
    most `_MORE` times those of the first third, and everything else grows by at most `OTHER_MIB`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.measure import percentile

SLOPE_MIB = 2.0
NOISE_MIB = 6.0
OTHER_MIB = 8.0
LOG_MIB = 16.0  # a smaller write-ahead log, and a smaller growth of the ledger, is ignored
MORE_FILES = 64  # for the changing connections of clients
_TIMES = 2.0
_MORE = 1.5


class Done(NamedTuple):
    """One operation: when it was due, how long it took from then on, and how often its requests were repeated.

    When `seconds` use another clock than `due`, `lasted` is the duration on the clock of `due`."""

    kind: str
    due: float
    seconds: float
    error: str | None
    repeats: int = 0
    lasted: float | None = None


class Sample(NamedTuple):
    """The host's memory and files at one moment. Sizes are in MiB."""

    at: float  # on the same clock as Done.due
    resident: float
    private: float  # memory without a file behind it, where a leak shows
    files: int = 0  # open descriptors
    life: int = 0
    ledger: float = 0.0
    log: float = 0.0
    other: float = 0.0


class Restart(NamedTuple):
    """A restart: the host was stopped at `at`, and served again `seconds` later."""

    at: float
    how: str
    seconds: float


class Soak(NamedTuple):
    """One soak: the open loop began at `began`, took `seconds`, at `rate` operations a second."""

    began: float
    seconds: float
    capacity: float
    rate: float
    done: Sequence[Done]
    samples: Sequence[Sample]
    behind: int
    ledger_ok: bool
    records: int
    restarts: Sequence[Restart] = ()
    slope_mib: float = SLOPE_MIB  # the growth of memory that a minute may bring
    measured: str = "latency"  # the name of what `Done.seconds` measures

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(item.kind for item in self.done))

    def met(self, item: Done) -> bool:
        """Whether the host was away at any time during an operation."""
        end = item.due + (item.seconds if item.lasted is None else item.lasted)
        return any(item.due <= away.at + away.seconds and away.at <= end for away in self.restarts)


def slope(samples: Sequence[Sample]) -> float:
    """Return MiB per minute: one least-squares slope of private memory for all lives, each at its own level. With more
    than one life, the first third of each, its warm-up, is left out."""
    lives: defaultdict[int, list[Sample]] = defaultdict(list)
    for item in samples:
        lives[item.life].append(item)
    spread = rise = 0.0
    for held in lives.values():
        warm = held[len(held) // 3 :] if len(lives) > 1 else held
        middle = sum(item.at for item in warm) / len(warm)
        level = sum(item.private for item in warm) / len(warm)
        spread += sum((item.at - middle) ** 2 for item in warm)
        rise += sum((item.at - middle) * (item.private - level) for item in warm)
    return 60 * rise / spread if spread else 0.0


def faults(soak: Soak) -> list[str]:
    """Describe what is wrong; an empty list when everything holds."""
    found = []
    errors = Counter(item.error for item in soak.done if item.error)
    found += [f"S1 {count} times {error}" for error, count in errors.most_common(5)]
    if soak.behind:
        found.append(f"S1 {soak.behind} operations could not begin: the host did not keep up")
    if repeated := sum(item.repeats > 0 and not soak.met(item) for item in soak.done):
        found.append(f"S1 {repeated} operations had to be repeated although the host did not restart")
    growth = slope(soak.samples)
    if growth > soak.slope_mib and growth * soak.seconds / 60 > NOISE_MIB:
        found.append(f"S2 memory grows by {growth:.3g} MiB a minute; {soak.slope_mib:g} are allowed")
    for kind in soak.kinds:
        first, last = (_p99(soak, kind, third) for third in (0, 2))
        if first is not None and last is not None and last > _TIMES * first:
            found.append(f"S3 {kind}: p99 was {first:.0f} ms in the first third and {last:.0f} ms in the last")
    if soak.samples and soak.samples[-1].files > soak.samples[0].files + MORE_FILES:
        found.append(f"S5 {soak.samples[0].files} files were open at first, and {soak.samples[-1].files} at the end")
    if not soak.ledger_ok:
        found.append("S4 the ledger does not verify")
    return [*found, *_files(soak)]


def _files(soak: Soak) -> list[str]:
    """Return the faults of S6."""
    found: list[str] = []
    early, late = (_third(soak, third) for third in (0, 2))
    if len(early) < 2 or len(late) < 2:
        return found
    first, last = (_growth_each(soak, held) for held in (early, late))
    grown = late[-1].ledger - late[0].ledger
    if first is not None and last is not None and last > _MORE * first and grown > LOG_MIB:
        found.append(f"S6 an operation took {first:.1f} KiB of ledger in the first third and {last:.1f} in the last")
    before, after = (max(item.log for item in held) for held in (early, late))
    if after > LOG_MIB and after > _MORE * before:
        found.append(f"S6 the write-ahead log had {before:.0f} MiB in the first third and {after:.0f} in the last")
    if late[-1].other - early[0].other > OTHER_MIB:
        found.append(f"S6 other files grew from {early[0].other:.0f} to {late[-1].other:.0f} MiB")
    return found


def _third(soak: Soak, third: int) -> list[Sample]:
    low = soak.began + third * soak.seconds / 3
    return [item for item in soak.samples if low <= item.at < low + soak.seconds / 3]


def _growth_each(soak: Soak, held: Sequence[Sample]) -> float | None:
    """Return the KiB that the ledger and its log grew for each operation that was due in that time."""
    count = sum(held[0].at <= item.due < held[-1].at for item in soak.done)
    grown = held[-1].ledger + held[-1].log - held[0].ledger - held[0].log
    return grown * 1024 / count if count else None


def _p99(soak: Soak, kind: str, third: int) -> float | None:
    low = soak.began + third * soak.seconds / 3
    taken = [
        item.seconds
        for item in soak.done
        if item.kind == kind and low <= item.due < low + soak.seconds / 3 and not soak.met(item)
    ]
    return percentile(taken, 0.99) * 1000 if taken else None

"""What a loaded extension has written, kept once and shared by every VM that starts from it.

A kept extension is needed three times: in the VM that runs it, in the pool, and in the spare that the pool has ready.
Where the system can map memory, the pages that differ from the prelude's image lie in one anonymous file instead. Each
VM maps them privately, the one that wrote them too: a page is copied when its VM writes to it again.

G1  A file is written once, before anybody maps it.
G2  A file lives as long as the pool or a VM needs it; `held_bytes` counts all of them.
G3  All VMs together map `MAX_MAPPED` runs at most: the system has a limit, which threads and allocators need as well.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from forestay.extensions.engine.mapping import available, map_file

if TYPE_CHECKING:
    from forestay.extensions.engine.vm import Memory

MAX_RUNS = 64  # of one VM that are mapped; shorter ones are copied
MAX_MAPPED = 12_000  # each splits a mapping in up to three, of which Linux allows some 65,000
Run = tuple[int, int]  # from address, to address
Placed = tuple[int, int, int]  # place in the file, from address, to address


class _Counts:
    """Of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # the collector may forget a VM while its thread counts another
        self.held = 0
        self.mapped = 0


_counts = _Counts()


class KeptPages:
    """Runs of pages, one behind the other in an anonymous file."""

    def __init__(self, memory: Memory, runs: list[Run]) -> None:
        self._mapped, self._copied = _placed(runs)
        self.size = sum(end - start for start, end in runs)
        self._file = os.memfd_create("forestay-kept", os.MFD_CLOEXEC)
        weakref.finalize(self, _forget, self._file, self.size)
        _count(self.size, 0)
        for at, start, end in (*self._mapped, *self._copied):
            _write(self._file, memory.view(start, end), at)

    def share(self, memory: Memory) -> None:
        """Let the VM whose pages these are have them in common with others."""
        if _may_map(memory, len(self._mapped)):
            for at, start, end in self._mapped:
                map_file(self._file, at, memory.base + start, end - start)

    def lay(self, memory: Memory) -> None:
        """Make these pages part of the memory of a new VM."""
        may_map = _may_map(memory, len(self._mapped))
        for at, start, end in self._mapped:
            if not may_map or not map_file(self._file, at, memory.base + start, end - start):
                memory.write(start, os.pread(self._file, end - start, at))
        for at, start, end in self._copied:
            memory.write(start, os.pread(self._file, end - start, at))


def keep(memory: Memory, runs: list[Run]) -> KeptPages | None:
    """Keep these pages of a VM that does not run, and let it share them; None where that cannot be done."""
    if not available():
        return None
    try:
        kept = KeptPages(memory, runs)
    except OSError:  # no file left: a VM that needs the pages copies them
        return None
    kept.share(memory)
    return kept


def _placed(runs: list[Run]) -> tuple[list[Placed], list[Placed]]:
    """The longest runs, which are mapped, and the others, which are copied; each with its place in the file."""
    longest = sorted(runs, key=lambda run: run[0] - run[1])
    placed, at = [], 0
    for start, end in longest:
        placed.append((at, start, end))
        at += end - start
    return placed[:MAX_RUNS], placed[MAX_RUNS:]


def held_bytes() -> int:
    """Bytes of all files of this process: memory that no VM counts as its own."""
    return _counts.held


def _may_map(memory: Memory, runs: int) -> bool:
    """Whether a VM may map so many runs; they are counted until its memory is gone (G3)."""
    with _counts.lock:
        if _counts.mapped + runs > MAX_MAPPED:
            return False
        _counts.mapped += runs
    weakref.finalize(memory, _count, 0, -runs)
    return True


def _write(file: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written


def _forget(file: int, size: int) -> None:
    os.close(file)
    _count(-size, 0)


def _count(held: int, mapped: int) -> None:
    with _counts.lock:
        _counts.held += held
        _counts.mapped += mapped


__all__ = ["KeptPages", "held_bytes", "keep"]

"""Stores the memory pages of a loaded extension once, and shares them between all VMs that start from it.

A kept extension is needed three times: in the VM that runs it, in the pool, and in the pool's spare. Where the system
can map memory, one anonymous file has the pages that differ from the prelude's image. Each VM maps them privately, also
the VM that wrote them: the system copies a page when a VM writes to it.

G1  A file is written once, before any VM maps it.
G2  A file lives as long as the pool or a VM needs it; `held_bytes` counts all of them.
G3  All VMs together map at most `MAX_MAPPED` runs: threads and allocators need the system's limit too.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from forestay.extensions.engine.mapping import available, map_file

if TYPE_CHECKING:
    from forestay.extensions.engine.memory import Memory

MAX_RUNS = 64  # mapped runs of one VM; its shorter runs are copied
MAX_MAPPED = 12_000  # each splits one mapping into up to three; Linux allows about 65,000
Run = tuple[int, int]  # from address, to address
Placed = tuple[int, int, int]  # offset in the file, from address, to address


class _Counts:
    """The totals of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # the garbage collector may finalize a VM while its thread counts another
        self.held = 0
        self.mapped = 0


_counts = _Counts()


class KeptPages:
    """Runs of pages, one after the other in an anonymous file."""

    def __init__(self, memory: Memory, runs: list[Run]) -> None:
        self._mapped, self._copied = _placed(runs)
        self.size = sum(end - start for start, end in runs)
        self._file = os.memfd_create("forestay-kept", os.MFD_CLOEXEC)
        weakref.finalize(self, _forget, self._file, self.size)
        _count(self.size, 0)
        for at, start, end in (*self._mapped, *self._copied):
            _write(self._file, memory.view(start, end), at)

    def share(self, memory: Memory) -> None:
        """Map the file into the VM that wrote the pages, so that it shares them."""
        if _may_map(memory, len(self._mapped)):
            for at, start, end in self._mapped:
                map_file(self._file, at, memory.base + start, end - start)

    def lay(self, memory: Memory) -> None:
        """Put these pages into the memory of a new VM."""
        may_map = _may_map(memory, len(self._mapped))
        for at, start, end in self._mapped:
            if not may_map or not map_file(self._file, at, memory.base + start, end - start):
                memory.write(start, os.pread(self._file, end - start, at))
        for at, start, end in self._copied:
            memory.write(start, os.pread(self._file, end - start, at))


def keep(memory: Memory, runs: list[Run]) -> KeptPages | None:
    """Store these pages of a stopped VM, and let it share them; return None where that is not possible."""
    if not available():
        return None
    try:
        kept = KeptPages(memory, runs)
    except OSError:  # no free file: each VM copies the pages instead
        return None
    kept.share(memory)
    return kept


def _placed(runs: list[Run]) -> tuple[list[Placed], list[Placed]]:
    """Split into the longest runs, which are mapped, and the others, which are copied; each gets an offset."""
    longest = sorted(runs, key=lambda run: run[0] - run[1])
    placed, at = [], 0
    for start, end in longest:
        placed.append((at, start, end))
        at += end - start
    return placed[:MAX_RUNS], placed[MAX_RUNS:]


def held_bytes() -> int:
    """Return the bytes of all files of this process; no VM counts this memory as its own."""
    return _counts.held


def _may_map(memory: Memory, runs: int) -> bool:
    """Whether a VM may map `runs` runs; they count until its memory is freed (G3)."""
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

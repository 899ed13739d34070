"""One host at a time has a data folder open.

- O1  A second host is refused before it touches the ledger: it has the first one's name and would take over its runs.
- O2  The operating system holds the lock and frees it when the process ends in any way: a killed host leaves nothing to
      clean up.
- O3  Commands that open the folder for a moment wait for each other. When the wait takes too long, a Problem names the
      process that has the folder. A standby waits without a limit: it is the next host of the folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from forestay.kernel import Problem, kept_in

LOCK = "host.lock"
_PATIENCE_SECONDS = 5.0
_LOOK_SECONDS = 0.05


@asynccontextmanager
async def sole_host(folder: Path, *, standby: bool = False) -> AsyncIterator[None]:
    """Hold the folder's lock while the block runs. Raise `state_conflict` when another host keeps it; a `standby`
    waits instead."""
    with kept_in(folder):
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        await _locked(file, folder, standby)
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(file)


async def _locked(file: int, folder: Path, standby: bool) -> None:
    looks = 0
    while standby or looks < _PATIENCE_SECONDS / _LOOK_SECONDS:
        if _lock(file):
            return
        looks += 1
        await asyncio.sleep(_LOOK_SECONDS)
    holder = os.pread(file, 20, 0).decode("ascii", "replace")
    raise Problem(
        "state_conflict",
        f"Another host has this folder open: process {holder or 'unknown'}.",
        at=str(folder),
        fix="Wait until it ends, stop it, or name another data folder.",
    )


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks: only the engine's heartbeat tells two hosts apart
    return True

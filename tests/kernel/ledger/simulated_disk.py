"""The disk under a ledger: slow, full, failing, and torn when its machine loses power.

SQLite is real and so are its files. A commit is written when the simulation says so, and acknowledged later; in
between the machine may die. Then the write-ahead log keeps, of the last commit, as many bytes as the seed says (the
order in which sectors reach a disk is not promised, so some of them may be missing in the middle), and SQLite's own
recovery reads what is left. Without `synchronous=FULL` nothing of the log has to be there.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from forestay.kernel import Problem, Record
from forestay.kernel.ledger.ledger import BACKENDS
from forestay.kernel.ledger.sqlite import SqliteLedger
from forestay.kernel.ledger.sqlite_writer import SqliteWriter
from forestay.kernel.ledger.writer import Deliveries, Ticket, settle
from tests.simulation.machine import Process, this_process

_SECTOR = 512
_FULL_SYNC = 2


class Disk:
    """One data folder's disk."""

    def __init__(self, folder: Path, chance: Random) -> None:
        self.folder = folder
        self.chance = chance
        self.full = False
        self.failing = False
        self.slow = 0.0
        self.tears_after: int | None = None  # commits until the power is cut inside one
        self.written: Callable[[list[Record]], None] = lambda records: None

    @property
    def log(self) -> Path:
        return self.folder / "ledger.db-wal"

    def lose_power(self) -> None:
        """Go on with a copy of what is on the disk now: the dead may still hold the files that they had open."""
        left, self.folder = self.folder, self.folder.with_name(f"{self.folder.name}-on")
        self.folder.mkdir()
        for file in left.iterdir():
            if file.is_file() and file.name not in ("host.lock", "ledger.db-shm"):
                shutil.copyfile(file, self.folder / file.name)

    def delay(self) -> float:
        return self.chance.choice((0.0, 0.0002, 0.001, 0.004)) + self.slow * self.chance.random()

    def is_torn_now(self) -> bool:
        if self.tears_after is None:
            return False
        self.tears_after -= 1
        return self.tears_after < 0

    def torn(self, before: bytes, after: bytes) -> bytes:
        """What is left of `after` when the power fails while the disk turns `before` into it."""
        same = 0
        while before[same : same + _SECTOR] == after[same : same + _SECTOR] and same < len(after):
            same += _SECTOR
        same = min(same, len(after))
        cut = self.chance.randint(same, len(after))
        left = bytearray(after[:cut] + before[cut:])
        if cut > same and self.chance.random() < 0.3:  # a sector that came later than those behind it
            start = self.chance.randrange(same, cut)
            end = min(start - start % _SECTOR + _SECTOR, cut)
            old = before[start:end]
            left[start:end] = old + bytes(end - start - len(old))
        return bytes(left)


class SimulatedWriter(SqliteWriter):
    """Writes as a thread would, in steps of the loop."""

    checkpoint_commits = 24
    disk: Disk  # of the simulation that runs

    def __init__(self, *arguments: Any, **options: Any) -> None:
        process = this_process()
        assert process is not None, "a ledger is opened by a process"
        self._process: Process = process
        self._waiting: list[Ticket] = []
        self._written: tuple[list[Ticket], Deliveries] | None = None
        self._busy = False
        super().__init__(*arguments, **options)

    def start(self) -> None:
        pass

    def put(self, ticket: Ticket, *, later: bool = False) -> None:
        if self._closed or not self._process.alive:
            raise Problem("ledger_closed", "The ledger is closed.")
        if ticket.future is not None and not later:  # its caller is a thread, which waits for it
            self._write_group([ticket])
            return
        self._waiting.append(ticket)
        if not later:
            self.write_now()

    def write_now(self) -> None:
        if self._waiting and not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_later(self.disk.delay(), self._flush)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._settle()
        if self._process.alive:
            while self._waiting:
                self._write_group(self._taken())
        self._release()

    def sync_level(self) -> int:
        return int(self._connection.execute("PRAGMA synchronous").fetchone()[0]) if self._connection else _FULL_SYNC

    def _taken(self) -> list[Ticket]:
        count = next((at for at, ticket in enumerate(self._waiting) if ticket.job is not None), len(self._waiting))
        count = min(max(count, 1), self._group_tickets)
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    def _flush(self) -> None:
        if self._closed or not self._process.alive:
            return
        group = self._taken()
        if self.disk.is_torn_now():
            self._write_and_die(group)
            return
        records = self._write(group)
        self.disk.written(records)
        self._written = (group, self._announced(records) if records else {})
        asyncio.get_running_loop().call_later(self.disk.delay(), self._settle)

    def _write_and_die(self, group: list[Ticket]) -> None:
        """The power is cut while this group is on its way to the disk."""
        before = self.disk.log.read_bytes() if self.disk.log.exists() else b""
        self._write(group)
        after = self.disk.log.read_bytes() if self.disk.log.exists() else b""
        synced = self.sync_level() >= _FULL_SYNC
        self._process.die()
        self.disk.log.write_bytes(self.disk.torn(before, after) if synced else b"")

    def _settle(self) -> None:
        written, self._written = self._written, None
        if written is not None:
            settle(*written)
            self._tidy()
        self._busy = bool(self._waiting)
        if self._busy and not self._closed:
            asyncio.get_running_loop().call_later(self.disk.delay(), self._flush)

    def _begin(self) -> sqlite3.Connection:
        if self.disk.failing:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        connection = super()._begin()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages if self.disk.full else 1_000_000}")
        return connection


class SimulatedLedger(SqliteLedger):
    writer_type = SimulatedWriter


@contextmanager
def simulated_ledgers(disk: Disk) -> Iterator[None]:
    """Hosts that are opened meanwhile have their ledger on `disk`."""
    real = BACKENDS["file"]
    BACKENDS["file"] = f"{__name__}:{SimulatedLedger.__name__}"
    SimulatedWriter.disk = disk
    try:
        yield
    finally:
        BACKENDS["file"] = real

"""The ledger on one SQLite file: the embedded default.

Reading is done on a thread for reading, but a look-up of a few rows is done where it is asked for. It takes a sixth of
the time of waking another thread and being woken by it, and a reader of this file waits for no writer.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from forestay.kernel.clock import Clock, SystemClock, outside_work
from forestay.kernel.ids import Ids
from forestay.kernel.ledger import delivery, tables, transfer, verify
from forestay.kernel.ledger import projections as folds
from forestay.kernel.ledger.delivery import Ticket, ticket_of
from forestay.kernel.ledger.ledger import Ledger
from forestay.kernel.ledger.projections import Database, Projection
from forestay.kernel.ledger.records import Append, Draft, Head, Record, Verification
from forestay.kernel.ledger.sqlite_file import SqliteFile, as_problem, is_failure_of_disk
from forestay.kernel.ledger.sqlite_writer import Writer
from forestay.kernel.problems import Problem

T = TypeVar("T")
_PAGE = 1000
_FEW = 32


class SqliteLedger(Ledger):
    """A ledger on one file: one thread writes, any thread reads."""

    def __init__(
        self,
        path: Path | str,
        *,
        projections: Sequence[Projection] = (),
        clock: Clock | None = None,
        ids: Ids | None = None,
        lock_timeout: float = 5.0,
        readers: int = 2,
    ) -> None:
        clock = clock or SystemClock()
        self._file = SqliteFile(Path(path), lock_timeout=lock_timeout)
        self._file.create()
        self._feeds = delivery.Feeds()
        self._writer = Writer(self._file, projections, clock, ids or Ids(clock), self._feeds.announced)
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="forestay-ledger-read")
        if not self.read_only:
            self._write(lambda tx: _build(tx, projections)).result()

    @classmethod
    def open(cls, address: Path | str, **options: Any) -> Self:
        return cls(address, **options)

    @property
    def read_only(self) -> bool:
        return self._file.read_only

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        self._writer.close()
        self._closed = True
        self._readers.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def observe(self, watch: Callable[[list[Record], float], None]) -> None:
        self._writer.observe = watch

    # Writing

    async def append(self, stream: str, drafts: Sequence[Draft], expect: int | None = None) -> list[Record]:
        return await self.commit(Append(stream, drafts, expect))

    async def commit(self, *appends: Append) -> list[Record]:
        ticket = ticket_of(appends)
        ticket.loop = asyncio.get_running_loop()
        ticket.waiter = ticket.loop.create_future()
        with outside_work(ticket.loop):
            self._writer.put(ticket)
            records: list[Record] = await ticket.waiter
        return records

    def submit(self, *appends: Append) -> Future[list[Record]]:
        ticket = ticket_of(appends)
        ticket.future = Future()
        self._writer.put(ticket)
        return ticket.future

    def _write(self, job: Callable[[Database], T]) -> Future[T]:
        ticket = Ticket((), (), job)
        ticket.future = Future()
        self._writer.put(ticket)
        return ticket.future

    # Reading

    async def read(
        self, stream: str, start: int = 0, limit: int | None = None, *, reverse: bool = False
    ) -> list[Record]:
        there = self._read_now(lambda db: tables.head(db, stream)).seq - start + 1
        if there <= 0:
            return []
        if min(there, there if limit is None else limit) <= _FEW:
            return self._read_now(lambda db: tables.read(db, stream, start, limit, reverse))
        return await self._read(lambda db: tables.read(db, stream, start, limit, reverse))

    async def head(self, stream: str) -> Head:
        return self._read_now(lambda db: tables.head(db, stream))

    async def streams(self, prefix: str = "", after: str = "", limit: int = 1000) -> dict[str, Head]:
        few = self._read_now(lambda db: tables.streams(db, prefix, after, min(limit, _FEW)))
        return few if len(few) < _FEW else await self._read(lambda db: tables.streams(db, prefix, after, limit))

    async def read_all(self, prefix: str = "", after: int = 0, limit: int = _PAGE) -> list[tuple[int, Record]]:
        return await self._read(lambda db: tables.read_all(db, prefix, after, limit))

    async def position(self) -> int:
        return await self._read(tables.position)

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return await self._read(lambda db: db.execute(sql, parameters).fetchall())

    def look_up(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._read_now(lambda db: db.execute(sql, parameters).fetchall())

    def follow(self, stream: str, start: int = 0, *, poll: float | None = None) -> AsyncGenerator[Record, None]:
        return delivery.follow(self, self._feeds, stream, start, poll)

    def follow_all(
        self, prefix: str = "", after: int | None = None, *, poll: float | None = None
    ) -> AsyncGenerator[tuple[int, Record], None]:
        return delivery.follow_all(self, self._feeds, prefix, after, poll)

    # The whole

    async def verify(self, prefix: str = "", trusted: Mapping[str, Head] | None = None) -> Verification:
        return await self._read(lambda db: verify.verify(db, prefix, trusted or {}, is_failure_of_disk))

    def export(self, prefix: str = "") -> AsyncIterator[bytes]:
        return transfer.export(self, prefix)

    async def import_lines(self, lines: Iterable[bytes]) -> int:
        projections = self._writer.projections
        return await asyncio.wrap_future(self._write(lambda tx: transfer.take_in(tx, lines, projections)))

    async def _read(self, work: Callable[[Database], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_now, work)

    def _read_now(self, work: Callable[[Database], T]) -> T:
        """Run `work` on this thread's reading connection."""
        try:
            return work(self._reader())
        except sqlite3.Error as error:
            raise as_problem(error) from error

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if self._closed:
            raise Problem("ledger_closed", "The ledger is closed.")
        if connection is None:
            connection = self._local.connection = self._file.reader()
            self._connections.append(connection)
        return connection


def _build(tx: Database, projections: Sequence[Projection]) -> None:
    """Bring the projections' tables up to date; a row stands in the index of its key."""
    for item in projections:
        page = partial(tables.read_all, tx, limit=_PAGE)
        folds.build(tx, item, page, lambda statement: statement.rstrip() + " WITHOUT ROWID")

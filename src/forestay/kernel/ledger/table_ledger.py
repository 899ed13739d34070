"""The common part of the backends: tickets for the writer, and reads with one SQL text."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

from forestay.kernel.ambient import count_outside
from forestay.kernel.ledger import archives, follow, tables, transfer
from forestay.kernel.ledger import verify as checks
from forestay.kernel.ledger.archives import RETENTION, Removal
from forestay.kernel.ledger.ledger import Ledger
from forestay.kernel.ledger.projections import Database
from forestay.kernel.ledger.records import Append, Draft, Head, Place, Record, Verification
from forestay.kernel.ledger.workers import Queue, Workers
from forestay.kernel.ledger.writer import Feeds, Ticket, Writer, ticket_of
from forestay.kernel.problems import Problem

T = TypeVar("T")
PAGE = 1000


class TableLedger(Ledger):
    """A ledger on tables: one thread writes, any thread reads. `horizon` is an SQL expression for the position that
    readers of everything stay below (empty: none)."""

    horizon = ""

    def __init__(self, feeds: Feeds, writer: Writer, readers: int) -> None:
        self._feeds = feeds
        self._writer = writer
        self._closed = False
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="forestay-ledger-read")

    @abstractmethod
    def _read_now(self, work: Callable[[Database], T]) -> T:
        """Run `work` on this thread's reading connection."""

    @abstractmethod
    def _snapshot(self, work: Callable[[Database], T]) -> T:
        """Like `_read_now`, on one snapshot of the database."""

    @abstractmethod
    def _take_in(self, tx: Database, lines: Iterable[bytes]) -> int: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def observe(self, watch: Callable[[list[Record], float], None]) -> None:
        self._writer.observe = watch

    @property
    def shared(self) -> bool:
        return False

    def workers(self, name: str, queue: Queue) -> Workers | None:
        return None

    # Writing

    def append(
        self, stream: str, drafts: Sequence[Draft], expect: int | None = None
    ) -> Coroutine[Any, Any, list[Record]]:
        return self.commit(Append(stream, drafts, expect))

    async def commit(self, *appends: Append) -> list[Record]:
        ticket = ticket_of(appends)
        ticket.loop = loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[Record]] = loop.create_future()
        ticket.waiter = waiter
        self._writer.put(ticket)
        if waiter.done():  # a lone caller: it is written already
            return waiter.result()
        count_outside(loop, 1)
        try:
            return await waiter
        finally:
            count_outside(loop, -1)

    def submit(self, *appends: Append, later: bool = False) -> Future[list[Record]]:
        ticket = ticket_of(appends)
        ticket.future = Future()
        self._writer.put(ticket, later=later)
        return ticket.future

    def write_now(self) -> None:
        self._writer.write_now()

    def _write(self, job: Callable[[Database], T]) -> Future[T]:
        ticket = Ticket((), (), job)
        ticket.future = Future()
        self._writer.put(ticket)
        return ticket.future

    # Retention

    async def seal(self, *streams: str) -> int:
        parts = await self._read(lambda db: [part for name in streams if (part := archives.next_part(db, name))])
        if not parts:
            return 0
        await asyncio.wrap_future(self._write(lambda tx: self._keep(tx, parts)))
        await self.append(RETENTION, [Draft(archives.SEALED, {"archives": [part.told() for part in parts]})])
        return sum(part.last - part.first + 1 for part in parts)

    def _keep(self, tx: Database, parts: Sequence[archives.Part]) -> None:
        archives.keep(tx, parts)

    async def remove(self, *streams: str, policy: dict[str, Any]) -> list[str]:
        def ends(db: Database) -> list[dict[str, Any]]:
            found = ((name, archives.sealed_up_to(db, name), tables.head(db, name)) for name in streams)
            return [
                {"stream": name, "last": end[0], "hash": end[1].hex()}
                for name, end, head in found
                if end is not None and end[0] == head.seq
            ]

        told = await self._read(ends)
        if told:
            await self.append(RETENTION, [Draft(archives.REMOVED, {"streams": told, "policy": policy})])
        return [item["stream"] for item in told]

    # Reading

    async def read(
        self, stream: str, start: int = 0, limit: int | None = None, *, reverse: bool = False
    ) -> list[Record]:
        return await self._read(lambda db: tables.read(db, stream, start, limit, reverse))

    async def head(self, stream: str) -> Head:
        return await self._read(lambda db: tables.head(db, stream))

    async def streams(self, prefix: str = "", after: str = "", limit: int = 1000) -> dict[str, Head]:
        return await self._read(lambda db: tables.streams(db, prefix, after, limit))

    async def read_all(self, prefix: str = "", after: int = 0, limit: int = PAGE) -> list[tuple[int, Record]]:
        return await self._read(lambda db: tables.read_all(db, prefix, after, limit, self.horizon))

    async def places(self, after: int = 0, limit: int = PAGE) -> list[Place]:
        return await self._read(lambda db: tables.places(db, after, limit, self.horizon))

    async def place(self, stream: str, seq: int) -> Place | None:
        return await self._read(lambda db: tables.place_of(db, stream, seq))

    async def removal(self, stream: str) -> Removal | None:
        return await self._read(lambda db: archives.removal(db, stream))

    async def position(self) -> int:
        return await self._read(lambda db: tables.position(db, self.horizon))

    async def count(self) -> int:
        return await self.position()  # for backends that number records one by one

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return await self._read(lambda db: db.execute(sql, parameters).fetchall())

    async def look_up(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return await self._read(lambda db: db.execute(sql, parameters).fetchall())

    def follow(self, stream: str, start: int = 0, *, poll: float | None = None) -> AsyncGenerator[Record, None]:
        return follow.follow(self, self._feeds, stream, start, poll)

    def follow_all(
        self, prefix: str = "", after: int | None = None, *, poll: float | None = None
    ) -> AsyncGenerator[tuple[int, Record], None]:
        return follow.follow_all(self, self._feeds, prefix, after, poll, self._hidden)

    async def _hidden(self, prefix: str, position: int) -> bool:
        """Whether a record under `prefix` behind `position` is written but not yet below the horizon."""
        return bool(self.horizon) and bool(await self._read(lambda db: tables.read_all(db, prefix, position, 1)))

    # The whole

    async def verify(self, prefix: str = "", trusted: Mapping[str, Head] | None = None) -> Verification:
        def work(db: Database) -> Verification:
            return checks.verify(db, prefix, trusted or {}, self._unreadable)

        return await asyncio.get_running_loop().run_in_executor(self._readers, self._snapshot, work)

    @staticmethod
    @abstractmethod
    def _unreadable(error: Exception) -> bool:
        """Whether `error` means that a stored page cannot be read."""

    def export(self, prefix: str = "") -> AsyncIterator[bytes]:
        return transfer.export(self, prefix)

    async def import_lines(self, lines: Iterable[bytes]) -> int:
        return await asyncio.wrap_future(self._write(lambda tx: self._take_in(tx, lines)))

    async def _read(self, work: Callable[[Database], T]) -> T:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_now, work)

    def _check_open(self) -> None:
        if self._closed:
            raise Problem("ledger_closed", "The ledger is closed.")

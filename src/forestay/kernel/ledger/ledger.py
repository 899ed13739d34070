"""The ledger: append-only streams of hash-chained records, on one SQLite file.

Invariants:

- L1  A stream's sequences are 0, 1, 2, … without a gap.
- L2  When `append` returns, the records are on disk; what it did not acknowledge may or may not be there.
- L3  A record's hash covers all its fields and the hash of the record before it.
- L4  With `expect`, records are written only if the stream stands exactly there.
- L5  What goes into several streams in one call goes in whole or not at all.
- L6  A projection has seen exactly the records that are there: it changes in the same transaction.
- L7  What one caller appends first comes first.
- L8  A follower gets every record from its start on, once, in order, however slow it is.
- L9  When writing fails, a Problem says so, reading goes on, and the next write starts clean.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from forestay.kernel import canonical
from forestay.kernel.clock import Clock, SystemClock, outside_work
from forestay.kernel.ids import Ids
from forestay.kernel.ledger import transfer, verify
from forestay.kernel.ledger.database import Database, as_problem
from forestay.kernel.ledger.feeds import Feeds
from forestay.kernel.ledger.records import (
    GENESIS,
    Append,
    Draft,
    Head,
    Projection,
    Record,
    Verification,
    check_stream,
    encode_draft,
)
from forestay.kernel.ledger.writer import Ticket, Writer
from forestay.kernel.problems import Problem

T = TypeVar("T")
_PAGE = 1000
_FEW = 32


class Ledger:
    """One ledger file. Use `async with Ledger.open(path) as ledger`, or `close()` it yourself."""

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
        self._database = Database(Path(path), lock_timeout=lock_timeout)
        self._database.create()
        self._feeds = Feeds()
        self._writer = Writer(self._database, projections, clock, ids or Ids(clock), self._feeds.announced)
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="forestay-ledger-read")
        if not self._database.read_only:
            for projection in projections:
                self._write(lambda tx, item=projection: _bring_up_to_date(tx, item)).result()  # type: ignore[misc]

    @classmethod
    def open(cls, path: Path | str, **options: Any) -> Self:
        return cls(path, **options)

    @property
    def read_only(self) -> bool:
        return self._database.read_only

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Write what is waiting, then let the file go."""
        self._writer.close()
        self._closed = True
        self._readers.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def observe(self, watch: Callable[[list[Record], float], None]) -> None:
        """Have `watch` called on the writer's thread after each commit, with its records and the seconds it took."""
        self._writer.observe = watch

    # Writing

    async def append(self, stream: str, drafts: Sequence[Draft], expect: int | None = None) -> list[Record]:
        """Append `drafts` to `stream`; the records are on disk when this returns (L2)."""
        return await self.commit(Append(stream, drafts, expect))

    async def commit(self, *appends: Append) -> list[Record]:
        """Append to several streams, all or nothing (L5). A cancelled caller does not take its records back."""
        ticket = _ticket(appends)
        ticket.loop = asyncio.get_running_loop()
        ticket.waiter = ticket.loop.create_future()
        with outside_work(ticket.loop):
            self._writer.put(ticket)
            records: list[Record] = await ticket.waiter
        return records

    def submit(self, *appends: Append) -> Future[list[Record]]:
        """As `commit`, for threads: the future is done when the records are on disk."""
        ticket = _ticket(appends)
        ticket.future = Future()
        self._writer.put(ticket)
        return ticket.future

    def _write(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        ticket = Ticket((), (), job)
        ticket.future = Future()
        self._writer.put(ticket)
        return ticket.future

    # Reading: on a thread for reading, but a look-up of a few rows is done where it is asked for. It takes a sixth of
    # the time of waking another thread and being woken by it, and a reader of this file waits for no writer.

    async def read(
        self, stream: str, start: int = 0, limit: int | None = None, *, reverse: bool = False
    ) -> list[Record]:
        """Records of `stream` from sequence `start` on; with `reverse`, the last ones, newest first."""
        there = self.read_now(lambda db: _head(db, stream)).seq - start + 1
        if there <= 0:
            return []
        if min(there, there if limit is None else limit) <= _FEW:
            return self.read_now(lambda db: _read(db, stream, start, limit, reverse))
        return await self._read(lambda db: _read(db, stream, start, limit, reverse))

    async def head(self, stream: str) -> Head:
        return self.read_now(lambda db: _head(db, stream))

    async def streams(self, prefix: str = "", after: str = "", limit: int = 1000) -> dict[str, Head]:
        """Streams whose name starts with `prefix`, by name, with their heads."""
        few = self.read_now(lambda db: _streams(db, prefix, after, min(limit, _FEW)))
        return few if len(few) < _FEW else await self._read(lambda db: _streams(db, prefix, after, limit))

    async def read_all(self, prefix: str = "", after: int = 0, limit: int = _PAGE) -> list[tuple[int, Record]]:
        """Records of all streams under `prefix` in the order they were written, each with its position."""
        return await self._read(lambda db: _read_all(db, prefix, after, limit))

    async def position(self) -> int:
        """The position of the last record of all."""
        return await self._read(lambda db: int(db.execute("SELECT coalesce(max(pos), 0) FROM records").fetchone()[0]))

    async def query(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Ask a projection's tables. Reads only."""
        return await self._read(lambda db: db.execute(sql, parameters).fetchall())

    def look_up(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """As `query`, at once and on this thread: for a few rows that an index leads to."""
        return self.read_now(lambda db: db.execute(sql, parameters).fetchall())

    async def follow(self, stream: str, start: int = 0, *, poll: float | None = None) -> AsyncIterator[Record]:
        """Records of `stream` from `start` on, and then each new one as it is written (L8).

        Records written by this process arrive without polling; to see those of another process, give `poll` seconds.
        """
        feed = self._feeds.open(stream, prefix=False)
        try:
            behind = True
            while True:
                while behind:
                    page = await self.read(stream, start, _PAGE)
                    for record in page:
                        start = record.seq + 1
                        yield record
                    behind = len(page) == _PAGE
                await feed.wait(poll)
                records, behind = feed.take()
                behind = behind or poll is not None
                for record in records:
                    if record.seq > start:
                        behind = True
                        break
                    if record.seq == start:
                        start += 1
                        yield record
        finally:
            self._feeds.close(stream, feed, prefix=False)

    async def follow_all(
        self, prefix: str = "", after: int | None = None, *, poll: float | None = None
    ) -> AsyncIterator[tuple[int, Record]]:
        """Records of every stream under `prefix` in written order, each with its position, and then each new one."""
        feed = self._feeds.open(prefix, prefix=True)
        try:
            position = await self.position() if after is None else after
            while True:
                page = await self.read_all(prefix, position, _PAGE)
                for position, record in page:
                    yield position, record
                if len(page) < _PAGE:
                    await feed.wait(poll)
                    feed.take()
        finally:
            self._feeds.close(prefix, feed, prefix=True)

    # The whole

    async def verify(self, prefix: str = "", trusted: Mapping[str, Head] | None = None) -> Verification:
        """Check every chain under `prefix`, or only what came after the heads in `trusted` (L1, L3)."""
        return await self._read(lambda db: verify.verify(db, prefix, trusted or {}))

    async def export(self, prefix: str = "") -> AsyncIterator[bytes]:
        """Every record as one line of canonical JSON, in written order."""
        after = 0
        while page := await self.read_all(prefix, after):
            after = page[-1][0]
            for _, record in page:
                yield canonical.encode(record) + b"\n"

    async def import_lines(self, lines: Iterable[bytes]) -> int:
        """Take in what `export` wrote: whole, with its hashes, or not at all. Streams must go on where they stand."""
        projections = self._writer.projections
        return await asyncio.wrap_future(self._write(lambda tx: transfer.take_in(tx, lines, projections)))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.read_now, work)

    def read_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
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
            connection = self._local.connection = self._database.reader()
            self._connections.append(connection)
        return connection


def _ticket(appends: Sequence[Append]) -> Ticket:
    names = set()
    for item in appends:
        check_stream(item.stream)
        if item.stream in names:
            raise Problem(
                "invalid_request", f"The stream {item.stream} stands twice in one commit.", stream=item.stream
            )
        names.add(item.stream)
    return Ticket(appends, [[encode_draft(draft) for draft in item.drafts] for item in appends])


_COLUMNS = "r.seq, r.id, r.type, r.ts, r.payload, r.attrs, r.hash"


def _read(db: sqlite3.Connection, stream: str, start: int, limit: int | None, reverse: bool) -> list[Record]:
    found = db.execute("SELECT id FROM streams WHERE name = ?", (stream,)).fetchone()
    if found is None:
        return []
    count = -1 if limit is None else limit
    if reverse:
        first = db.execute(
            "SELECT min(seq) FROM (SELECT seq FROM records WHERE stream = ? AND seq >= ? ORDER BY seq DESC LIMIT ?)",
            (found[0], start, count),
        ).fetchone()[0]
        if first is None:
            return []
        return list(_rows(db, found[0], stream, first, -1))[::-1]
    return list(_rows(db, found[0], stream, start, count))


def _rows(db: sqlite3.Connection, stream_id: int, stream: str, start: int, count: int) -> Iterator[Record]:
    before = db.execute("SELECT hash FROM records WHERE stream = ? AND seq = ?", (stream_id, start - 1)).fetchone()
    prev = (before[0] if before else GENESIS).hex()
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM records r WHERE r.stream = ? AND r.seq >= ? ORDER BY r.seq LIMIT ?",  # noqa: S608
        (stream_id, start, count),
    )
    with contextlib.closing(rows):  # left in the middle it would hold this connection to what it saw then
        for seq, id, type, ts, payload, attrs, digest in rows:
            hash = digest.hex()
            yield Record(stream, seq, id, type, ts, *_decoded(stream, seq, payload, attrs), prev, hash)
            prev = hash


def _decoded(stream: str, seq: int, payload: bytes, attrs: bytes | None) -> tuple[Any, Any]:
    try:
        return msgspec.json.decode(payload), msgspec.json.decode(attrs) if attrs else {}
    except msgspec.DecodeError as error:
        raise Problem("chain_broken", f"Record {seq} of {stream} is damaged.", stream=stream, seq=seq) from error


def _read_all(db: sqlite3.Connection, prefix: str, after: int, limit: int) -> list[tuple[int, Record]]:
    rows = db.execute(
        f"SELECT r.pos, s.name, {_COLUMNS}, "  # noqa: S608 - the columns are ours
        "(SELECT p.hash FROM records p WHERE p.stream = r.stream AND p.seq = r.seq - 1) "
        "FROM records r JOIN streams s ON s.id = r.stream "
        "WHERE r.pos > ? AND substr(s.name, 1, ?) = ? ORDER BY r.pos LIMIT ?",
        (after, len(prefix), prefix, limit),
    ).fetchall()
    return [
        (
            pos,
            Record(
                name,
                seq,
                id,
                type,
                ts,
                *_decoded(name, seq, payload, attrs),
                (prev or GENESIS).hex(),
                digest.hex(),
            ),
        )
        for pos, name, seq, id, type, ts, payload, attrs, digest, prev in rows
    ]


def _head(db: sqlite3.Connection, stream: str) -> Head:
    row = db.execute("SELECT head, hash FROM streams WHERE name = ?", (stream,)).fetchone()
    return Head(row[0], row[1].hex()) if row else Head(-1, GENESIS.hex())


_BEHIND = "\x7f"  # sorts behind every character of a stream's name


def _streams(db: sqlite3.Connection, prefix: str, after: str, limit: int) -> dict[str, Head]:
    rows = db.execute(
        "SELECT name, head, hash FROM streams WHERE name >= ? AND name < ? AND name > ? ORDER BY name LIMIT ?",
        (prefix, prefix + _BEHIND, after, limit),
    )
    return {name: Head(head, digest.hex()) for name, head, digest in rows}


def _bring_up_to_date(tx: sqlite3.Connection, projection: Projection) -> None:
    """Build a projection that is new, or that changed its version, from the log."""
    row = tx.execute("SELECT version FROM projections WHERE name = ?", (projection.name,)).fetchone()
    if row is not None and row[0] == projection.version:
        return
    for statement in (*transfer.statements(projection.reset), *transfer.statements(projection.schema)):
        tx.execute(statement)
    cursor = tx.cursor()
    after = 0
    while page := _read_all(tx, projection.prefix, after, _PAGE):
        for after, record in page:  # noqa: B007 - the last position is where the next page starts
            projection.apply(cursor, record)
    tx.execute(
        "INSERT OR REPLACE INTO projections (name, version) VALUES (?, ?)", (projection.name, projection.version)
    )

"""The one writer: takes what is waiting, writes it in one transaction, answers when it is on disk.

It has a thread, so that an event loop never waits for a disk. But waking a thread and being woken by it costs more
than a commit on a fast disk, so a caller that has been alone for a while, on a loop with nothing else to do meanwhile,
writes by itself:

- A1  One writes at a time: the thread, or the loop that has the turn.
- A2  Whoever writes, what was asked for first is written first (L7).
- A3  A loop writes only what is small, while the disk is fast, never a checkpoint, and waits for no other process.
- A4  Now and then the thread writes all the same: what the loop does meanwhile shows whether it is still idle.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from forestay.kernel.clock import Clock
from forestay.kernel.ids import Ids
from forestay.kernel.ledger.database import Database, as_problem, is_failure_of_disk
from forestay.kernel.ledger.feeds import Deliveries, Feed
from forestay.kernel.ledger.records import Append, Encoded, Projection, Record, link
from forestay.kernel.ledger.rows import insert_records, move_head, stream_row
from forestay.kernel.problems import Problem

_GROUP_TICKETS = 1024
_GROUP_BYTES = 8 * 1024 * 1024
_KEEP_STREAMS = 8192
_ALONE = 8  # groups of one, each on disk in time while the loop was idle, before a loop writes by itself
_FAST_SECONDS = 0.001
_BUSY = 0.5  # of the time in which the thread writes: a loop that works so much gains by going on
_LOOK_AGAIN = 32  # of its own writes before a loop leaves one to the thread (A4)
_SMALL_BYTES = 64 * 1024
_CHECKPOINT_COMMITS = 256  # some 1,500 pages

Job = Callable[[sqlite3.Connection], Any]


class Ticket:
    """One caller's request: appends that go in together, or a job that needs the writing connection."""

    __slots__ = ("appends", "asked", "drafts", "error", "future", "job", "lonely", "loop", "result", "size", "waiter")

    def __init__(self, appends: Sequence[Append], drafts: Sequence[Sequence[Encoded]], job: Job | None = None) -> None:
        self.appends = appends
        self.drafts = drafts
        self.job = job
        self.size = sum(len(item.payload) for group in drafts for item in group)
        self.result: Any = None
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.waiter: asyncio.Future[Any] | None = None  # for a caller on an event loop
        self.future: Future[Any] | None = None  # for a caller on a thread
        self.asked = (0.0, 0.0)  # the time, and the loop's own, when it went to the thread
        self.lonely = False  # nobody else came while it was written, and that was fast

    def settle(self) -> None:
        target: Any = self.waiter if self.waiter is not None else self.future
        if target is None or target.done():
            return
        if self.error is not None:
            target.set_exception(self.error)
        else:
            target.set_result(self.result)


class _HeldError(Exception):
    """Another process writes just now."""


class _Stream(msgspec.Struct):
    """What the writer remembers of a stream between appends."""

    id: int
    name: bytes  # as JSON, ready for hashing
    seq: int
    hash: bytes
    ts: int


class Writer:
    """Owns the writing connection. `announced` is called after each commit with what became durable."""

    def __init__(
        self,
        database: Database,
        projections: Sequence[Projection],
        clock: Clock,
        ids: Ids,
        announced: Callable[[list[Record]], Deliveries],
    ) -> None:
        self._database = database
        self.projections = projections
        self._clock = clock
        self._ids = ids
        self._announced = announced
        self.observe: Callable[[list[Record], float], None] | None = None
        self._queue: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._streams: dict[str, _Stream] = {}
        self._data_version = -1
        self._connection: sqlite3.Connection | None = None
        self._patient = True
        self._closed = False
        self._gate = threading.Lock()  # of what stands here until the thread
        self._queued = 0  # tickets that the thread has yet to finish
        self._waiting: list[Ticket] = []  # tickets of the loop that writes by itself
        self._alone = 0
        self._own = 0  # writes of the loop since the thread wrote
        self._turn = threading.Lock()  # of the connection and of what is remembered with it (A1)
        self._commits = 0
        self._thread = threading.Thread(target=self._run, name="forestay-ledger", daemon=True)
        self._thread.start()

    def put(self, ticket: Ticket) -> None:
        """Have `ticket` written; its caller is told."""
        with self._gate:
            if self._closed:
                raise Problem("ledger_closed", "The ledger is closed.")
            loop = ticket.loop
            if loop is not None:
                ticket.asked = (time.perf_counter(), time.thread_time())
            if loop is None or self._alone < _ALONE or self._own >= _LOOK_AGAIN or ticket.size > _SMALL_BYTES:
                self._enqueue(ticket)
            elif self._waiting:
                self._enqueue(ticket)
                self._alone = 0
            else:
                self._waiting.append(ticket)
                loop.call_soon(self._write_here)

    def _enqueue(self, *tickets: Ticket) -> None:
        """To the thread, behind what came before (A2)."""
        every = (*self._waiting, *tickets)
        self._waiting.clear()
        self._queued += len(every)
        for ticket in every:
            self._queue.put(ticket)

    def _write_here(self) -> None:
        """On the loop of a lone caller: write its ticket, unless others came or the thread has work."""
        with self._gate:
            if not self._waiting:
                return
            due = self._commits >= _CHECKPOINT_COMMITS
            if self._queued or due or not self._turn.acquire(blocking=False):
                self._enqueue()
                return
            (ticket,) = self._waiting
            self._waiting.clear()
        try:
            records, seconds = self._timed([ticket], patient=False)
            self._own += 1
            if seconds > _FAST_SECONDS:
                self._alone = 0
            self._tell([ticket], records, seconds, ticket.loop)
        except _HeldError:
            with self._gate:
                self._alone = 0
                self._enqueue(ticket)
        except BaseException:  # an interrupt of the main thread: what was begun must not stay begun
            self._abandon()
            raise
        finally:
            self._turn.release()

    def close(self) -> None:
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._enqueue()
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            group, stopping = self._next_group()
            if group:
                self._write_group(group)
        with self._turn:
            if self._connection is not None:
                self._connection.close()

    def _write_group(self, group: list[Ticket]) -> None:
        with self._turn:
            records, seconds = self._timed(group)
            with self._gate:  # before the answers: the one who gets it may come again at once
                self._queued -= len(group)
                group[0].lonely = self._queued == 0 and len(group) == 1 and seconds < _FAST_SECONDS
                self._own = 0
            self._tell(group, records, seconds)
            if self._commits >= _CHECKPOINT_COMMITS:
                self._checkpoint()

    def _next_group(self) -> tuple[list[Ticket], bool]:
        """Wait for one ticket, then take those that came meanwhile. A job is a group of its own."""
        first = self._queue.get()
        if first is None:
            return [], True
        group, size = [first], first.size
        while first.job is None and len(group) < _GROUP_TICKETS and size < _GROUP_BYTES:
            try:
                ticket = self._queue.get_nowait()
            except queue.Empty:
                break
            if ticket is None:
                return group, True
            if ticket.job is not None:
                self._write_group(group)
                return [ticket], False
            group.append(ticket)
            size += ticket.size
        return group, False

    def _timed(self, group: list[Ticket], *, patient: bool = True) -> tuple[list[Record], float]:
        started = time.perf_counter()
        records = self._write(group, patient)
        return records, time.perf_counter() - started

    def _tell(
        self,
        group: list[Ticket],
        records: list[Record],
        seconds: float,
        here: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Tell followers and whoever measures what is on disk, and answer the callers."""
        deliveries: Deliveries = {}
        if records:
            self._commits += 1
            if self.observe is not None:
                self.observe(records, seconds)
            deliveries = self._announced(records)
        _settle(group, deliveries, here, self._heard)

    def _heard(self, ticket: Ticket) -> None:
        """On the loop that asked: see whether it was idle while the thread wrote (A4)."""
        asked, own = ticket.asked
        idle = time.thread_time() - own < _BUSY * (time.perf_counter() - asked)
        with self._gate:
            self._alone = self._alone + 1 if ticket.lonely and idle else 0

    def _checkpoint(self) -> None:
        """Move what the write-ahead log holds into the file, as far as readers let it, after the answers are out."""
        self._commits = 0
        try:
            if self._connection is not None:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error:
            self._abandon()  # the next group meets the same disk and says so

    def _write(self, group: list[Ticket], patient: bool = True) -> list[Record]:
        """One transaction for the whole group; a ticket that cannot go in fails alone."""
        try:
            connection = self._begin(patient)
            if group[0].job is not None:
                records = self._do(connection, group[0])
            else:
                records = self._append_all(connection, group)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._abandon()
            problem = as_problem(error)
            for ticket in group:
                ticket.error = ticket.error or problem
            return []
        except Problem as problem:  # a closed or unreadable database, before any ticket was looked at
            self._abandon()
            for ticket in group:
                ticket.error = ticket.error or problem
            return []
        return records

    def _begin(self, patient: bool) -> sqlite3.Connection:
        """Begin a transaction; while another process writes, wait for it, or be told at once."""
        if self._database.read_only:
            raise Problem("ledger_read_only", "The ledger file cannot be written.")
        if self._connection is None:
            self._connection, self._patient = self._database.writer(), True
        if patient != self._patient:
            timeout = self._database.lock_timeout if patient else 0
            self._connection.execute(f"PRAGMA busy_timeout={round(timeout * 1000)}").fetchall()
            self._patient = patient
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not patient and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise _HeldError from error
            raise
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:  # another process wrote: what we remember may be old
            self._streams.clear()
            self._data_version = version
        if len(self._streams) > _KEEP_STREAMS:
            for name in list(self._streams)[: _KEEP_STREAMS // 2]:
                del self._streams[name]
        return self._connection

    def _abandon(self) -> None:
        """Forget a failed transaction, and the connection with it: the next group starts clean."""
        self._streams.clear()
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error:
                pass  # it is gone either way
            self._connection = None
            self._data_version = -1

    def _do(self, connection: sqlite3.Connection, ticket: Ticket) -> list[Record]:
        assert ticket.job is not None
        self._streams.clear()
        try:
            ticket.result = ticket.job(connection)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a job meets, the writer goes on for everybody else
            connection.execute("ROLLBACK")
            connection.execute("BEGIN")
            ticket.error = Problem.unexpected(error)
        return []

    def _append_all(self, connection: sqlite3.Connection, group: list[Ticket]) -> list[Record]:
        records: list[Record] = []
        cursor = connection.cursor()
        for ticket in group:
            if len(group) > 1:
                cursor.execute("SAVEPOINT ticket")
            try:
                ticket.result = self._append(cursor, ticket)
            except Exception as error:
                if isinstance(error, sqlite3.Error) and is_failure_of_disk(error):
                    raise
                ticket.error = error if isinstance(error, Problem) else Problem.unexpected(error)
                self._streams.clear()
                if len(group) > 1:
                    cursor.execute("ROLLBACK TO ticket")
                else:
                    cursor.execute("ROLLBACK")
                    cursor.execute("BEGIN")
            else:
                records.extend(ticket.result)
            if len(group) > 1:
                cursor.execute("RELEASE ticket")
        return records

    def _append(self, cursor: sqlite3.Cursor, ticket: Ticket) -> list[Record]:
        streams = [self._stream(cursor, item.stream) for item in ticket.appends]
        for item, stream in zip(ticket.appends, streams, strict=True):
            if item.expect is not None and item.expect != stream.seq:
                raise Problem(
                    "ledger_conflict",
                    f"The stream {item.stream} stands at {stream.seq}, not at {item.expect}.",
                    stream=item.stream,
                    expected=item.expect,
                    actual=stream.seq,
                )
        written: list[Record] = []
        for item, stream, drafts in zip(ticket.appends, streams, ticket.drafts, strict=True):
            written.extend(self._extend(cursor, item.stream, stream, drafts))
        return written

    def _stream(self, cursor: sqlite3.Cursor, name: str) -> _Stream:
        known = self._streams.get(name)
        if known is None:
            number, head, digest = stream_row(cursor, name)
            last = cursor.execute("SELECT ts FROM records WHERE stream = ? AND seq = ?", (number, head)).fetchone()
            known = _Stream(number, msgspec.json.encode(name), head, digest, last[0] if last else 0)
            self._streams[name] = known
        return known

    def _extend(self, cursor: sqlite3.Cursor, name: str, stream: _Stream, drafts: Sequence[Encoded]) -> list[Record]:
        records, rows = [], []
        now = self._clock.now_ms()
        for item in drafts:
            draft = item.draft
            stream.ts = draft.ts if draft.ts is not None else max(now, stream.ts)
            prev, seq, id = stream.hash, stream.seq + 1, draft.id or self._ids.new()
            stream.hash, _ = link(stream.name, seq, id, draft.type, stream.ts, item.payload, item.attrs, prev)
            stream.seq = seq
            attrs = item.attrs if draft.attrs else None
            rows.append((stream.id, seq, id, draft.type, stream.ts, item.payload, attrs, stream.hash))
            records.append(
                Record(name, seq, id, draft.type, stream.ts, draft.payload, draft.attrs, prev.hex(), stream.hash.hex())
            )
        insert_records(cursor, rows)
        move_head(cursor, stream.id, stream.seq, stream.hash)
        for projection in self.projections:
            if name.startswith(projection.prefix):
                for record in records:
                    projection.apply(cursor, record)
        return records


def _settle(
    group: list[Ticket],
    deliveries: Deliveries,
    here: asyncio.AbstractEventLoop | None,
    heard: Callable[[Ticket], None],
) -> None:
    """Bring followers their records and callers their answers: one wake-up per event loop but the one we are on,
    because waking a thread that sleeps costs more than everything else that is done here."""
    waiting: dict[asyncio.AbstractEventLoop, list[Ticket]] = {loop: [] for loop in deliveries}
    for ticket in group:
        if ticket.loop is None:
            ticket.settle()
        else:
            waiting.setdefault(ticket.loop, []).append(ticket)
    for loop, tickets in waiting.items():
        if loop is here:
            _arrive(deliveries.get(loop, ()), tickets)
            continue
        try:
            loop.call_soon_threadsafe(_arrive, deliveries.get(loop, ()), tickets, heard)
        except RuntimeError:
            pass  # the loop was closed while the group was written; nobody is waiting


def _arrive(
    batch: Sequence[tuple[Feed, list[Record]]],
    tickets: list[Ticket],
    heard: Callable[[Ticket], None] | None = None,
) -> None:
    for feed, records in batch:
        feed.push(records)
    for ticket in tickets:
        if heard is not None:
            heard(ticket)
        ticket.settle()

"""The one writer of a SQLite ledger: takes what is waiting, writes it in one transaction, answers when it is on disk.

It has a thread, so that an event loop never waits for a disk.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence

from forestay.kernel.clock import Clock
from forestay.kernel.ids import Ids
from forestay.kernel.ledger.delivery import Deliveries, Ticket, settle
from forestay.kernel.ledger.projections import Projection
from forestay.kernel.ledger.records import Encoded, Record, Tail
from forestay.kernel.ledger.sqlite_file import SqliteFile, as_problem, is_failure_of_disk
from forestay.kernel.ledger.tables import insert_records, move_head, stream_row
from forestay.kernel.problems import Problem

_GROUP_TICKETS = 1024
_GROUP_BYTES = 8 * 1024 * 1024
_KEEP_STREAMS = 8192
_CHECKPOINT_COMMITS = 256  # some 1,500 pages


class Writer:
    """Owns the writing connection. `announced` is called after each commit with what became durable."""

    def __init__(
        self,
        file: SqliteFile,
        projections: Sequence[Projection],
        clock: Clock,
        ids: Ids,
        announced: Callable[[list[Record]], Deliveries],
    ) -> None:
        self._file = file
        self.projections = projections
        self._clock = clock
        self._ids = ids
        self._announced = announced
        self.observe: Callable[[list[Record], float], None] | None = None
        self._queue: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._streams: dict[str, Tail] = {}
        self._data_version = -1
        self._connection: sqlite3.Connection | None = None
        self._closing = threading.Lock()  # nothing comes behind the end of the queue
        self._closed = False
        self._commits = 0
        self._thread = threading.Thread(target=self._run, name="forestay-ledger", daemon=True)
        self._thread.start()

    def put(self, ticket: Ticket) -> None:
        """Have `ticket` written; its caller is told."""
        with self._closing:
            if self._closed:
                raise Problem("ledger_closed", "The ledger is closed.")
            self._queue.put(ticket)

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            group, stopping = self._next_group()
            if group:
                self._write_group(group)
        if self._connection is not None:
            self._connection.close()

    def _write_group(self, group: list[Ticket]) -> None:
        """Write a group, tell followers and callers what is on disk, then tidy up."""
        started = time.perf_counter()
        records = self._write(group)
        deliveries: Deliveries = {}
        if records:
            self._commits += 1
            if self.observe is not None:
                self.observe(records, time.perf_counter() - started)
            deliveries = self._announced(records)
        settle(group, deliveries)
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

    def _checkpoint(self) -> None:
        """Move what the write-ahead log holds into the file, as far as readers let it, after the answers are out."""
        self._commits = 0
        try:
            if self._connection is not None:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error:
            self._abandon()  # the next group meets the same disk and says so

    def _write(self, group: list[Ticket]) -> list[Record]:
        """One transaction for the whole group; a ticket that cannot go in fails alone."""
        try:
            connection = self._begin()
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

    def _begin(self) -> sqlite3.Connection:
        if self._file.read_only:
            raise Problem("ledger_read_only", "The ledger file cannot be written.")
        if self._connection is None:
            self._connection = self._file.writer()
        self._connection.execute("BEGIN IMMEDIATE")
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
        except Exception as error:  # noqa: BLE001 - a failed job must not stop the writer
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
        for stream, drafts in zip(streams, ticket.drafts, strict=True):
            written.extend(self._extend(cursor, stream, drafts))
        return written

    def _stream(self, cursor: sqlite3.Cursor, name: str) -> Tail:
        known = self._streams.get(name)
        if known is None:
            number, head, digest = stream_row(cursor, name)
            last = cursor.execute("SELECT ts FROM records WHERE stream = ? AND seq = ?", (number, head)).fetchone()
            known = self._streams[name] = Tail(number, name, head, digest, last[0] if last else 0)
        return known

    def _extend(self, cursor: sqlite3.Cursor, stream: Tail, drafts: Sequence[Encoded]) -> list[Record]:
        records, rows = stream.extend(drafts, self._clock.now_ms(), self._ids.several(len(drafts)))
        insert_records(cursor, rows)
        move_head(cursor, stream.id, stream.seq, stream.hash)
        for projection in self.projections:
            if records and stream.name.startswith(projection.prefix):
                projection.apply(cursor, records)
        return records

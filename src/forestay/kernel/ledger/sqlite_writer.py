"""How a SQLite ledger is written: one connection, one transaction a group."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain

from forestay.kernel.ambient import Clock, Ids
from forestay.kernel.ledger.lone_writer import HeldError, LoneWriter
from forestay.kernel.ledger.projections import Projection
from forestay.kernel.ledger.records import GENESIS, Append, Record, Row, Tail
from forestay.kernel.ledger.sqlite_file import SqliteFile, as_problem, is_failure_of_disk
from forestay.kernel.ledger.tables import find_stream, insert_records, make_stream, move_heads
from forestay.kernel.ledger.writer import Deliveries, Ticket, check_expected, refuse
from forestay.kernel.problems import Problem

_GROUP_TICKETS = 1024
_KEEP_STREAMS = 8192


class SqliteWriter(LoneWriter):
    """Owns the writing connection of a ledger file."""

    checkpoint_commits = 256  # some 1,500 pages

    def __init__(
        self,
        file: SqliteFile,
        projections: Sequence[Projection],
        clock: Clock,
        ids: Ids,
        announced: Callable[[list[Record]], Deliveries],
    ) -> None:
        super().__init__(projections, announced, _GROUP_TICKETS)
        self._file = file
        self._clock = clock
        self._ids = ids
        self._streams: dict[str, Tail] = {}
        self._data_version = -1
        self._connection: sqlite3.Connection | None = None
        self._waits_for_others = True  # whether the connection does
        self._commits = 0
        self.start()

    @property
    def _is_tidy(self) -> bool:
        return self._commits < self.checkpoint_commits

    def _tidy(self) -> None:
        if not self._is_tidy:
            self._checkpoint()

    def _release(self) -> None:
        """Checkpoint and close: the file of a closed ledger is complete without its write-ahead log."""
        with self._turn:
            if self._commits:
                self._checkpoint()
            if self._connection is not None:
                self._connection.close()

    def _checkpoint(self) -> None:
        """Move the write-ahead log into the file, as far as readers allow, after the answers are out."""
        self._commits = 0
        try:
            if self._connection is not None:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error:
            self._abandon()  # the next group meets the same disk and says so

    def _write(self, group: list[Ticket]) -> list[Record]:
        """Write the group in one transaction; a ticket that cannot be written fails alone."""
        try:
            connection = self._begin()
            if group[0].job is not None:
                records = self._do(connection, group[0])
            else:
                records = self._append_all(connection, group)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._abandon()
            refuse(group, as_problem(error))
            return []
        except Problem as problem:  # the database cannot be written at all
            self._abandon()
            refuse(group, problem)
            return []
        except HeldError:
            raise
        except BaseException:  # an interrupt on a loop's thread must not leave the transaction open
            self._abandon()
            raise
        self._commits += bool(records)
        return records

    def _begin(self) -> sqlite3.Connection:
        if self._file.read_only:
            raise Problem("ledger_read_only", "The ledger file cannot be written.")
        if self._connection is None:
            self._connection, self._waits_for_others = self._file.writer(), True
        if self._patient != self._waits_for_others:
            timeout = self._file.lock_timeout if self._patient else 0
            self._connection.execute(f"PRAGMA busy_timeout={round(timeout * 1000)}").fetchall()
            self._waits_for_others = self._patient
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not self._patient and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise HeldError from error
            raise
        version = cursor.execute("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:  # another process wrote: the remembered tails may be old
            self._streams.clear()
            self._data_version = version
        if len(self._streams) > _KEEP_STREAMS:
            for name in list(self._streams)[: _KEEP_STREAMS // 2]:
                del self._streams[name]
        return self._connection

    def _abandon(self) -> None:
        """Drop a failed transaction with its connection; the next group starts clean."""
        self._streams.clear()
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error:
                pass  # it is not used again
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
        """Write all tickets at once; when one cannot be written, start over, one by one."""
        cursor = connection.cursor()
        try:
            return self._append(cursor, group)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and is_failure_of_disk(error):
                raise
            self._streams.clear()
            cursor.execute("ROLLBACK")
            cursor.execute("BEGIN IMMEDIATE")
            if len(group) == 1:
                group[0].error = error if isinstance(error, Problem) else Problem.unexpected(error)
                return []
        return self._append_one_by_one(cursor, group)

    def _append_one_by_one(self, cursor: sqlite3.Cursor, group: list[Ticket]) -> list[Record]:
        records: list[Record] = []
        for ticket in group:
            cursor.execute("SAVEPOINT ticket")
            try:
                records += self._append(cursor, [ticket])
            except Exception as error:
                if isinstance(error, sqlite3.Error) and is_failure_of_disk(error):
                    raise
                ticket.error = error if isinstance(error, Problem) else Problem.unexpected(error)
                self._streams.clear()
                cursor.execute("ROLLBACK TO ticket")
            cursor.execute("RELEASE ticket")
        return records

    def _append(self, cursor: sqlite3.Cursor, group: Sequence[Ticket]) -> list[Record]:
        """Write every ticket whose expectations hold (L4). Any other failure may leave a part of the group written."""
        if len(group) == 1 and len(group[0].appends) == 1:
            return self._append_one(cursor, group[0], group[0].appends[0])
        now, ids = self._clock.now_ms(), iter(self._ids.several(sum([ticket.count for ticket in group])))
        rows: list[Row] = []
        moved: set[Tail] = set()
        written: list[list[Record]] = []  # of one stream each
        for ticket in group:
            ticket.error = None
            try:
                streams = self._expected(cursor, ticket.appends)
            except Problem as problem:
                ticket.error = problem
                continue
            places = zip(streams, ticket.drafts, strict=True)
            parts = [stream.extend(drafts, now, ids, rows) for stream, drafts in places]
            ticket.result = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
            moved.update(streams)
            written += parts
        insert_records(cursor, rows)
        move_heads(cursor, [(stream.seq, stream.hash, stream.id) for stream in moved])
        for part in filter(None, written):
            self._project(cursor, part)
        return list(chain.from_iterable(written))

    def _append_one(self, cursor: sqlite3.Cursor, ticket: Ticket, item: Append) -> list[Record]:
        """Like `_append`, for one ticket with one stream, the common case."""
        ticket.error = None
        stream = self._streams.get(item.stream)
        try:
            if stream is None or (item.expect is not None and item.expect != stream.seq):
                (stream,) = self._expected(cursor, ticket.appends)
        except Problem as problem:
            ticket.error = problem
            return []
        rows: list[Row] = []
        ids = iter(self._ids.several(ticket.count))
        records = ticket.result = stream.extend(ticket.drafts[0], self._clock.now_ms(), ids, rows)
        insert_records(cursor, rows)
        move_heads(cursor, ((stream.seq, stream.hash, stream.id),))
        if records:
            self._project(cursor, records)
        return records

    def _expected(self, cursor: sqlite3.Cursor, appends: Sequence[Append]) -> list[Tail]:
        """Check a ticket's expectations and return its streams; create the missing ones when all hold."""
        known = [self._streams.get(item.stream) or self._stored(cursor, item.stream) for item in appends]
        for item, stream in zip(appends, known, strict=True):
            if item.expect is not None:
                check_expected(item.stream, item.expect, -1 if stream is None else stream.seq)
        return [stream or self._made(cursor, item.stream) for item, stream in zip(appends, known, strict=True)]

    def _stored(self, cursor: sqlite3.Cursor, name: str) -> Tail | None:
        row = find_stream(cursor, name)
        if row is None:
            return None
        number, head, digest = row
        last = None
        if head >= 0:
            last = cursor.execute("SELECT ts FROM records WHERE stream = ? AND seq = ?", (number, head)).fetchone()
        tail = self._streams[name] = Tail(number, name, head, digest, last[0] if last else 0)
        return tail

    def _made(self, cursor: sqlite3.Cursor, name: str) -> Tail:
        tail = self._streams[name] = Tail(make_stream(cursor, name), name, -1, GENESIS, 0)
        return tail

    def _project(self, cursor: sqlite3.Cursor, records: list[Record]) -> None:
        """L6: update the projections of a stream with its records."""
        stream = records[0].stream
        for projection in self.projections:
            if stream.startswith(projection.prefix):
                projection.apply(cursor, records)

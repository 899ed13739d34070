"""How a ledger on PostgreSQL is written, by many processes at once.

- P1  A transaction takes an advisory lock for each of its streams, in one order, before it writes: so it has a higher
      number than every transaction that wrote to these streams before.
- P2  A record's position is (number of the transaction << 20) | place in it. Positions of one stream rise with its
      sequence (P1). Below the snapshot's xmin no position is given any more: readers of everything go no further.
- P3  A group costs two round trips: the locks and heads, then everything that is written with its COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any

import psycopg

from forestay.kernel.clock import Clock
from forestay.kernel.ids import Ids
from forestay.kernel.ledger.delivery import Deliveries, Ticket
from forestay.kernel.ledger.postgres_server import (
    PLACES,
    Connection,
    Database,
    PgServer,
    as_problem,
    is_in_the_way,
    is_lost,
    places,
)
from forestay.kernel.ledger.projections import Projection
from forestay.kernel.ledger.records import GENESIS, Record, Row, Tail
from forestay.kernel.ledger.writer import Writer, check_expected, refuse
from forestay.kernel.problems import Problem

_GROUP_TICKETS = 256
_MOST_LOCKS = 1024  # of one transaction: the server's table of locks is shared by all of them
_ATTEMPTS = 5
_HEADS = f"""
    SELECT s.name, s.id, s.head, s.hash, coalesce(r.ts, 0),
           (pg_current_xact_id()::text::bigint + n.base) << {PLACES}
    FROM numbering n CROSS JOIN streams s LEFT JOIN records r ON r.stream = s.id AND r.seq = s.head
    WHERE s.name = ANY(%s)
"""  # noqa: S608 - the number is ours
_INSERT = (
    "INSERT INTO records (stream, seq, id, type, ts, payload, attrs, hash, pos) SELECT * FROM unnest(%s::bigint[], "
    "%s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bytea[], %s::bytea[], %s::bytea[], %s::bigint[])"
)
_MOVE = (
    "UPDATE streams s SET head = n.head, hash = n.hash "
    "FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[]) n(id, head, hash) WHERE s.id = n.id"
)


class Statements:
    """What a projection writes, kept until it is known that the whole ticket goes in: nothing is asked back (D6)."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, list[tuple[Any, ...]]]] = []

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> None:
        self.kept.append((text, [tuple(parameters)]))

    def executemany(self, text: str, parameters: Iterable[Sequence[Any]], /) -> None:
        self.kept.append((text, [tuple(row) for row in parameters]))


class Batch:
    """What one transaction writes. `first` is the position of its first record."""

    def __init__(self, tails: dict[str, Tail], first: int) -> None:
        self.tails = tails
        self.first = first
        self.rows: list[Row] = []
        self.records: list[Record] = []
        self.statements: list[tuple[str, list[tuple[Any, ...]]]] = []

    def add(self, rows: list[Row], records: list[Record], statements: Statements) -> None:
        self.rows += rows
        self.records += records
        self.statements += statements.kept

    def send(self, connection: Connection) -> None:
        cursor = connection.cursor()
        insert_rows(cursor, self.rows, self.first)
        touched = {record.stream for record in self.records}
        moved = [self.tails[name] for name in sorted(touched)]
        cursor.execute(_MOVE, ([tail.id for tail in moved], [tail.seq for tail in moved], [t.hash for t in moved]))
        for text, parameters in self.statements:
            for row in parameters:
                cursor.execute(places(text), row)


def insert_rows(cursor: psycopg.Cursor[Any], rows: Sequence[Row], first: int) -> None:
    """Write records with positions from `first` on."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    cursor.execute(_INSERT, (*columns, list(range(first, first + len(rows)))))


def check_places(count: int) -> None:
    if count > 1 << PLACES:
        raise Problem(
            "payload_too_large",
            f"One transaction may write {1 << PLACES} records; this one has {count}.",
            limit=1 << PLACES,
            observed=count,
            fix="Write them in several parts.",
        )


class PgWriter(Writer):
    """Owns one writing connection."""

    def __init__(
        self,
        server: PgServer,
        projections: Sequence[Projection],
        clock: Clock,
        ids: Ids,
        announced: Callable[[list[Record]], Deliveries],
    ) -> None:
        super().__init__(projections, announced, _GROUP_TICKETS)
        self._server = server
        self._clock = clock
        self._ids = ids
        self._connection: Connection | None = None
        self._committing = False
        self._thread.start()

    def _tidy(self) -> None:
        pass

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, group: list[Ticket]) -> list[Record]:
        """One transaction for the whole group, and again where it is certain that nothing of it was committed."""
        if self._server.read_only:
            refuse(group, Problem("ledger_read_only", "The ledger's database cannot be written."))
            return []
        for attempt in range(1, _ATTEMPTS + 1):
            known = self._connection is not None
            self._committing = False
            try:
                if self._connection is None:
                    self._connection = self._server.writer()
                return self._transact(self._connection, group)
            except psycopg.Error as error:
                self._release()
                stale = known and is_lost(error) and not self._committing  # the server went away while we rested
                again = group[0].job is None and (stale or is_in_the_way(error))  # a job may have used its lines up
                if attempt == _ATTEMPTS or not again:
                    refuse(group, as_problem(error))
                    return []
        raise AssertionError("unreachable")

    def _transact(self, connection: Connection, group: list[Ticket]) -> list[Record]:
        try:
            if group[0].job is not None:
                return self._do(connection, group[0])
            return self._append_all(connection, group)
        except psycopg.Error as error:
            if isinstance(error, psycopg.OperationalError) or connection.closed:
                raise
            connection.rollback()  # a statement was refused
            if len(group) == 1:
                group[0].error = Problem.unexpected(error)
                return []
        return [record for ticket in group for record in self._write([ticket])]  # the others shall not suffer

    def _do(self, connection: Connection, ticket: Ticket) -> list[Record]:
        """A job has the ledger for itself: it may write to any stream and to any table."""
        assert ticket.job is not None
        try:
            with connection.pipeline():
                connection.execute(
                    "SELECT set_config('lock_timeout', '0', true), "
                    "set_config('idle_in_transaction_session_timeout', '0', true)"
                )
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (self._server.lock(""),))
                ticket.result = ticket.job(Database(connection))
                connection.commit()
        except psycopg.Error:
            raise
        except Exception as error:  # noqa: BLE001 - a failed job must not stop the writer
            connection.rollback()
            ticket.error = Problem.unexpected(error)
        return []

    def _append_all(self, connection: Connection, group: list[Ticket]) -> list[Record]:
        batch = self._begin(connection, sorted({item.stream for ticket in group for item in ticket.appends}))
        for ticket in group:
            ticket.error = None
            before = {item.stream: copy(batch.tails[item.stream]) for item in ticket.appends}
            try:
                ticket.result = self._place(batch, ticket)
            except Exception as error:  # noqa: BLE001 - a projection that fails must not stop the writer
                ticket.error = error if isinstance(error, Problem) else Problem.unexpected(error)
                batch.tails.update(before)
        if not batch.records:
            connection.rollback()
            return []
        with connection.pipeline():
            self._committing = True
            batch.send(connection)
            connection.commit()
        return batch.records

    def _begin(self, connection: Connection, names: list[str]) -> Batch:
        """Lock the streams (P1), make those that are new, and learn where they stand and which transaction this is."""
        many = len(names) > _MOST_LOCKS
        lock = "pg_advisory_xact_lock" if many else "pg_advisory_xact_lock_shared"
        with connection.pipeline():
            connection.execute(f"SELECT {lock}(%s)", (self._server.lock(""),))
            if not many:
                keys = sorted(self._server.lock(name) for name in names)
                connection.execute("SELECT pg_advisory_xact_lock(k) FROM unnest(%s::bigint[]) k", (keys,))
            connection.execute(
                "INSERT INTO streams (name, head, hash) SELECT n, -1, %s FROM unnest(%s::text[]) n "
                "WHERE NOT EXISTS (SELECT 1 FROM streams s WHERE s.name = n)",
                (GENESIS, names),
            )
            rows = connection.execute(_HEADS, (names,)).fetchall()
        tails = {name: Tail(number, name, head, hash, ts) for name, number, head, hash, ts, _ in rows}
        return Batch(tails, rows[0][5] if rows else 0)

    def _place(self, batch: Batch, ticket: Ticket) -> list[Record]:
        """Give a ticket's records their places, and have the projections say what they write."""
        for item in ticket.appends:
            check_expected(item.stream, item.expect, batch.tails[item.stream].seq)
        statements = Statements()
        rows: list[Row] = []
        written: list[Record] = []
        for item, drafts in zip(ticket.appends, ticket.drafts, strict=True):
            ids = self._ids.several(len(drafts))
            records, more = batch.tails[item.stream].extend(drafts, self._clock.now_ms(), ids)
            rows += more
            written += records
            for projection in self.projections:
                if records and item.stream.startswith(projection.prefix):
                    projection.apply(statements, records)
        check_places(len(batch.rows) + len(rows))
        batch.add(rows, written, statements)
        return written

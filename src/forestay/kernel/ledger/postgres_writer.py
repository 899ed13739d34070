"""Writes a ledger on PostgreSQL, beside other processes.

- P1  A transaction takes an advisory lock for each of its streams, in one order, before it writes: so it has a higher
      number than every transaction that wrote to these streams before.
- P2  A record's position is (number of the transaction << 20) | place in it. Positions of one stream rise with its
      sequence (P1). No new record gets a position below the snapshot's xmin, so readers of all streams stop there.
- P3  A group costs one round trip if the writer knows the tails of its streams, and two if it must ask first. Its
      knowledge is a guess, because others write too. A head moves only from the guessed value; if a guess is wrong, the
      whole transaction is refused, and the writer asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import psycopg

from forestay.kernel.ambient import Clock, Ids
from forestay.kernel.ledger.postgres_batch import Batch, Statements, check_places
from forestay.kernel.ledger.postgres_dialect import Connection, Database
from forestay.kernel.ledger.postgres_pipe import Pipe, Statement, numbers, texts, value_of
from forestay.kernel.ledger.postgres_server import PgServer, as_problem, is_in_the_way, is_lost
from forestay.kernel.ledger.postgres_tails import Tails
from forestay.kernel.ledger.projections import Projection
from forestay.kernel.ledger.records import GENESIS, Record, Row, Tail
from forestay.kernel.ledger.writer import Deliveries, Ticket, Writer, check_expected, refuse
from forestay.kernel.problems import Problem

_GROUP_TICKETS = 256
_MOST_LOCKS = 1024  # in one transaction: all transactions share the server's table of locks
_ATTEMPTS = 5
_NEW_STREAMS = 256  # numbers for new streams in one fetch
_NUMBERS = "SELECT nextval(pg_get_serial_sequence('streams', 'id')) FROM generate_series(1, ?::bigint)"
_AS_A_JOB = (
    "SELECT set_config('lock_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true), "
    "set_config('plan_cache_mode', 'auto', true), set_config('enable_seqscan', 'on', true)"
)
_MAKE = (
    "INSERT INTO streams (name, head, hash) SELECT n, -1, ?::bytea FROM unnest(?::text[]) n "
    "WHERE NOT EXISTS (SELECT 1 FROM streams s WHERE s.name = n)"
)
_HEADS = (
    "SELECT s.name, s.id, s.head, s.hash, coalesce(r.ts, 0) FROM streams s "
    "LEFT JOIN records r ON r.stream = s.id AND r.seq = s.head WHERE s.name = ANY(?::text[])"
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
        connection: Connection | None = None,
    ) -> None:
        super().__init__(projections, announced, _GROUP_TICKETS)
        self._server = server
        self._clock = clock
        self._ids = ids
        self._pipe = None if connection is None else Pipe(connection)
        self._tails = Tails()
        self._committing = False
        self._thread.start()

    def _tidy(self) -> None:
        pass

    def _release(self) -> None:
        self._tails.clear()
        if self._pipe is not None:
            self._pipe.connection.close()
            self._pipe = None

    def _write(self, group: list[Ticket]) -> list[Record]:
        """Write the group in one transaction; try again if it certainly committed nothing."""
        if self._server.read_only:
            refuse(group, Problem("ledger_read_only", "The ledger's database cannot be written."))
            return []
        for attempt in range(1, _ATTEMPTS + 1):
            known = self._pipe is not None
            self._committing = False
            try:
                return self._transact(self._connected(), group)
            except Problem as problem:  # the connection was lost, and another host holds the ledger now
                refuse(group, problem)
                return []
            except psycopg.Error as error:
                undone = not self._committing or (self._pipe is not None and self._pipe.fell_short)
                self._release()
                stale = known and is_lost(error) and undone  # the connection broke while it was idle
                again = group[0].job is None and (stale or is_in_the_way(error))  # a job may have consumed its input
                if attempt == _ATTEMPTS or not again:
                    refuse(group, as_problem(error))
                    return []
        raise AssertionError("unreachable")

    def _connected(self) -> Pipe:
        if self._pipe is not None and self._pipe.is_stale:
            self._release()
        if self._pipe is None:
            self._pipe = Pipe(self._server.writer())
        return self._pipe

    def _transact(self, pipe: Pipe, group: list[Ticket]) -> list[Record]:
        try:
            if group[0].job is not None:
                return self._do(pipe, group[0])
            return self._append_all(pipe, group)
        except psycopg.Error as error:
            if isinstance(error, psycopg.OperationalError) or pipe.connection.closed:
                raise
            pipe.rollback()  # a statement was refused
            if len(group) == 1:
                group[0].error = Problem.unexpected(error)
                return []
        return [record for ticket in group for record in self._write([ticket])]  # one must not fail the others

    def _do(self, pipe: Pipe, ticket: Ticket) -> list[Record]:
        """Do a job, which has the ledger for itself: it may write to any stream and to any table."""
        assert ticket.job is not None
        connection = pipe.connection
        self._tails.clear()
        try:
            with connection.pipeline():
                connection.execute(_AS_A_JOB)
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (self._server.lock(""),))
                ticket.result = ticket.job(Database(connection))
                connection.commit()
        except psycopg.Error:
            raise
        except Exception as error:  # noqa: BLE001 - a failed job must not stop the writer
            pipe.rollback()
            ticket.error = Problem.unexpected(error)
        finally:
            pipe.forget()
        return []

    # Appending

    def _append_all(self, pipe: Pipe, group: list[Ticket]) -> list[Record]:
        names = sorted({item.stream for ticket in group for item in ticket.appends})
        batch = self._guess(pipe, group) if len(names) <= _MOST_LOCKS else None
        if batch is not None:
            try:
                return self._send(pipe, batch, [Statement("BEGIN"), *self._locks(names)])
            except psycopg.Error as error:
                if isinstance(error, psycopg.OperationalError) or pipe.connection.closed:
                    raise
                pipe.rollback()  # a guess was wrong, or a statement was refused: now ask
                self._committing = False
        truth = Batch(self._ask(pipe, names))
        if batch is not None:
            self._tails.correct(batch.before, truth.before)
        for ticket in group:
            self._try_place(truth, ticket)
        if not truth.records:
            pipe.rollback()
            return []
        return self._send(pipe, truth, [])

    def _guess(self, pipe: Pipe, group: list[Ticket]) -> Batch | None:
        """Return the batch as if nobody else wrote to these streams; None when the writer must ask first."""
        if self._tails.lacks(group) > 0:
            found = pipe.run([Statement(_NUMBERS, (value_of(_NEW_STREAMS),))])
            self._tails.give(int(number) for (number,) in found)
        guessed = self._tails.guess(group)
        if guessed is None:
            return None
        batch = Batch(*guessed)
        for ticket in group:
            self._try_place(batch, ticket)
            if isinstance(ticket.error, Problem) and ticket.error.key == "ledger_conflict":
                return None
        return batch if batch.records else None

    def _locks(self, names: list[str]) -> list[Statement]:
        """Return the statements that lock the streams (P1); one lock covers all when there are too many."""
        every = value_of(self._server.lock(""))
        if len(names) > _MOST_LOCKS:
            return [Statement("SELECT pg_advisory_xact_lock(?)", (every,))]
        keys = numbers(sorted(map(self._server.lock, names)))
        return [
            Statement("SELECT pg_advisory_xact_lock_shared(?)", (every,)),
            Statement("SELECT pg_advisory_xact_lock(k) FROM unnest(?::bigint[]) k", (keys,)),
        ]

    def _ask(self, pipe: Pipe, names: list[str]) -> dict[str, Tail]:
        """Lock the streams, create the new ones, and return their tails."""
        among = texts(names)
        make = Statement(_MAKE, (value_of(GENESIS), among))
        rows = pipe.run([Statement("BEGIN"), *self._locks(names), make, Statement(_HEADS, (among,))])
        return {tail.name: tail for tail in map(_tail, rows)}

    def _send(self, pipe: Pipe, batch: Batch, before: list[Statement]) -> list[Record]:
        self._committing = True
        pipe.run([*before, *batch.statements(), Statement("COMMIT")])
        self._tails.learn(batch.ends())
        return batch.records

    def _try_place(self, batch: Batch, ticket: Ticket) -> None:
        ticket.error = None
        before = {item.stream: copy(batch.tails[item.stream]) for item in ticket.appends}
        try:
            ticket.result = self._place(batch, ticket)
        except Exception as error:  # noqa: BLE001 - a projection that fails must not stop the writer
            ticket.error = error if isinstance(error, Problem) else Problem.unexpected(error)
            batch.tails.update(before)

    def _place(self, batch: Batch, ticket: Ticket) -> list[Record]:
        """Add a ticket's records, and the statements of the projections, to the batch."""
        for item in ticket.appends:
            check_expected(item.stream, item.expect, batch.tails[item.stream].seq)
        statements = Statements()
        rows: list[Row] = []
        written: list[Record] = []
        for item, drafts in zip(ticket.appends, ticket.drafts, strict=True):
            ids = iter(self._ids.several(len(drafts)))
            records = batch.tails[item.stream].extend(drafts, self._clock.now_ms(), ids, rows)
            written += records
            for projection in self.projections:
                if records and item.stream.startswith(projection.prefix):
                    projection.apply(statements, records)
        check_places(len(batch.rows) + len(rows))
        batch.add(rows, written, statements)
        return written


def _tail(row: Sequence[bytes]) -> Tail:
    name, number, head, hash, ts = (value.decode() for value in row)
    return Tail(int(number), name, int(head), bytes.fromhex(hash[2:]), int(ts))

"""The ledger on PostgreSQL: many processes write to it, and each follows what the others write.

Every thread that reads has a connection of its own. A follower of everything reads up to the horizon (P2), so that it
misses nothing that a slower transaction commits later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import psycopg

from forestay.kernel.clock import Clock, SystemClock
from forestay.kernel.ids import Ids
from forestay.kernel.ledger import projections as folds
from forestay.kernel.ledger import tables, transfer
from forestay.kernel.ledger.delivery import Deliveries, Feeds
from forestay.kernel.ledger.postgres_hints import Hints
from forestay.kernel.ledger.postgres_server import (
    HORIZON,
    PLACES,
    Connection,
    PgServer,
    as_problem,
    is_damage,
    is_lost,
    table,
)
from forestay.kernel.ledger.postgres_server import Database as PgDatabase
from forestay.kernel.ledger.postgres_workers import PgWorkers
from forestay.kernel.ledger.postgres_writer import PgWriter, check_places
from forestay.kernel.ledger.projections import Database, Projection
from forestay.kernel.ledger.records import Record, Row
from forestay.kernel.ledger.table_ledger import PAGE, TableLedger
from forestay.kernel.ledger.workers import Queue, Workers

T = TypeVar("T")


class PgLedger(TableLedger):
    """A ledger in one schema of a PostgreSQL database."""

    horizon = HORIZON

    def __init__(
        self,
        address: Path | str,
        *,
        projections: Sequence[Projection] = (),
        clock: Clock | None = None,
        ids: Ids | None = None,
        lock_timeout: float = 5.0,
        readers: int = 4,
        sole: bool = False,
    ) -> None:
        clock = clock or SystemClock()
        self._server = PgServer(str(address), lock_timeout=lock_timeout)
        self._server.create()
        self._sole = self._server.sole() if sole else None
        self._local = threading.local()
        self._connections: list[Connection] = []
        feeds = Feeds()
        self._hints = Hints(self._server, feeds)
        writer = PgWriter(self._server, projections, clock, ids or Ids(clock), self._announced)
        super().__init__(feeds, writer, readers)
        if not self.read_only:
            try:
                self._build(projections)
            except BaseException:
                self.close()
                raise

    @classmethod
    def open(cls, address: Path | str, **options: Any) -> Self:
        return cls(address, **options)

    @property
    def read_only(self) -> bool:
        return self._server.read_only

    def workers(self, name: str, queue: Queue) -> Workers | None:
        return PgWorkers(self._server, name, queue)

    def close(self) -> None:
        self._writer.close()
        self._closed = True
        self._hints.close()
        self._readers.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        if self._sole is not None:
            self._sole.close()

    def _announced(self, records: list[Record]) -> Deliveries:
        self._hints.tell(records)
        return self._feeds.announced(records)

    def _build(self, projections: Sequence[Projection]) -> None:
        """Bring the projections' tables up to date; the ledger stands still only when one of them is old."""
        versions = dict(self._read_now(lambda db: db.execute("SELECT name, version FROM projections").fetchall()))
        if any(versions.get(item.name) != item.version for item in projections):
            self._write(lambda tx: _build(tx, projections)).result()

    def _take_in(self, tx: Database, lines: Iterable[bytes]) -> int:
        place = Places(tx)
        return transfer.take_in(tx, lines, self._writer.projections, place.insert)

    @staticmethod
    def _unreadable(error: Exception) -> bool:
        return is_damage(error)

    def _read_now(self, work: Callable[[Database], T]) -> T:
        for known in (True, False):
            known = known and getattr(self._local, "connection", None) is not None
            try:
                return work(PgDatabase(self._reader()))
            except psycopg.Error as error:
                if is_lost(error):
                    self._forget()
                if not (known and is_lost(error)):  # a connection that rested may be stale: once more on a new one
                    raise as_problem(error) from error
        raise AssertionError("unreachable")

    def _snapshot(self, work: Callable[[Database], T]) -> T:
        def inside(db: Database) -> T:
            connection = self._reader()
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return work(db)

        return self._read_now(inside)

    def _reader(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        self._check_open()
        if connection is None:
            connection = self._local.connection = self._server.connect()
            self._connections.append(connection)
        return connection

    def _forget(self) -> None:
        """Let go of this thread's connection: the server has."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            self._connections.remove(connection)
            connection.close()


class Places:
    """Gives the records of one long transaction their positions."""

    def __init__(self, tx: Database) -> None:
        sql = f"SELECT (pg_current_xact_id()::text::bigint + base) << {PLACES} FROM numbering"  # noqa: S608
        ((self._first,),) = tx.execute(sql).fetchall()
        self._count = 0

    def insert(self, tx: Database, rows: Sequence[Row]) -> None:
        check_places(self._count + len(rows))
        tx.executemany(
            "INSERT INTO records (stream, seq, id, type, ts, payload, attrs, hash, pos) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*row, self._first + self._count + number) for number, row in enumerate(rows)],
        )
        self._count += len(rows)


def _build(tx: Database, projections: Sequence[Projection]) -> None:
    for item in projections:
        folds.build(tx, item, partial(tables.read_all, tx, limit=PAGE), table)

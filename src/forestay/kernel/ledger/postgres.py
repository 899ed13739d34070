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
from forestay.kernel.ledger import archives, tables, transfer
from forestay.kernel.ledger import projections as folds
from forestay.kernel.ledger.archives import Part, Sealing
from forestay.kernel.ledger.delivery import Deliveries, Feeds
from forestay.kernel.ledger.postgres_batch import check_places
from forestay.kernel.ledger.postgres_dialect import Connection, Reader, table
from forestay.kernel.ledger.postgres_hints import Hints
from forestay.kernel.ledger.postgres_server import (
    HORIZON,
    PLACES,
    VERSIONS,
    Lacking,
    PgServer,
    as_problem,
    check_archives_known,
    is_damage,
    is_in_the_way,
    is_lost,
)
from forestay.kernel.ledger.postgres_vault import PgVault
from forestay.kernel.ledger.postgres_workers import PgWorkers
from forestay.kernel.ledger.postgres_writer import PgWriter
from forestay.kernel.ledger.projections import Database, Projection
from forestay.kernel.ledger.records import Record, Row
from forestay.kernel.ledger.table_ledger import PAGE, TableLedger
from forestay.kernel.ledger.vault import Vault
from forestay.kernel.ledger.workers import Queue, Workers
from forestay.kernel.problems import Problem

T = TypeVar("T")
_ATTEMPTS = 3


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
        """With `sole` this process alone may write, and is refused while another has the ledger so."""
        clock = clock or SystemClock()
        self._server = PgServer(str(address), lock_timeout=lock_timeout, sole=sole)
        self._server.create()
        self._local = threading.local()
        self._connections: list[Connection] = []
        feeds = Feeds()
        connection = self._server.first_writer() if sole and not self.read_only else None
        kept_up = [*projections, Sealing()]
        writer = PgWriter(self._server, kept_up, clock, ids or Ids(clock), self._announced, connection)
        self._hints = Hints(self._server, feeds)
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

    @property
    def shared(self) -> bool:
        return True

    def workers(self, name: str, queue: Queue) -> Workers | None:
        return PgWorkers(self._server, name, queue)

    def vault(self) -> Vault:
        return PgVault(self._server)

    def close(self) -> None:
        self._writer.close()
        self._closed = True
        self._hints.close()
        self._readers.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    async def count(self) -> int:
        ((found,),) = await self.query("SELECT coalesce(sum(head + 1), 0) FROM streams")
        return int(found)

    def _announced(self, records: list[Record]) -> Deliveries:
        self._hints.tell(records)
        return self._feeds.announced(records)

    def _build(self, projections: Sequence[Projection]) -> None:
        """Bring the projections' tables up to date; the ledger stands still only when one of them is old."""
        if self._read_now(lambda db: _old(db, projections)):
            self._write(lambda tx: _build(tx, projections)).result()

    def _keep(self, tx: Database, parts: Sequence[Part]) -> None:
        """Processes that know no archives would miss records: refused while one lives, and none starts later."""
        check_archives_known(tx)
        archives.keep(tx, parts)

    def _take_in(self, tx: Database, lines: Iterable[bytes]) -> int:
        place = Places(tx)
        return transfer.take_in(tx, lines, self._writer.projections, place.insert)

    @staticmethod
    def _unreadable(error: Exception) -> bool:
        return is_damage(error)

    def _read_now(self, work: Callable[[Database], T]) -> T:
        for attempt in range(1, _ATTEMPTS + 1):
            known = getattr(self._local, "reader", None) is not None
            try:
                return work(self._reader())
            except psycopg.Error as error:
                if is_lost(error):
                    self._forget()
                # A connection that rested may be stale, and tables that are built again stand in the way for a moment.
                again = (known and is_lost(error)) or is_in_the_way(error)
                if attempt == _ATTEMPTS or not again:
                    raise as_problem(error) from error
        raise AssertionError("unreachable")

    def _snapshot(self, work: Callable[[Database], T]) -> T:
        def inside(db: Database) -> T:
            connection = self._reader().connection
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return work(db)

        return self._read_now(inside)

    def _reader(self) -> Reader:
        reader: Reader | None = getattr(self._local, "reader", None)
        self._check_open()
        if reader is None:
            reader = self._local.reader = Reader(self._server.connect())
            self._connections.append(reader.connection)
        return reader

    def _forget(self) -> None:
        """Let go of this thread's connection: the server has."""
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is not None:
            self._local.reader = None
            self._connections.remove(reader.connection)
            reader.connection.close()


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


def _old(db: Database, projections: Sequence[Projection]) -> list[Projection]:
    """Those whose tables are not there or of an older version. Tables of a newer version count as well where that
    version says that this one keeps them right."""
    known = {name: (version, since) for name, version, since in db.execute(VERSIONS).fetchall()}
    old = []
    for item in projections:
        version, since = known.get(item.name, (0, 0))
        if version < item.version:
            old.append(item)
        elif item.version < since:
            tables.check_version(version, item.version)
    return old


def _build(tx: Database, projections: Sequence[Projection]) -> None:
    old = _old(tx, projections)
    _check_side_by_side(tx, old)
    for item in old:
        folds.build(tx, item, partial(tables.read_all, tx, limit=PAGE), table)
        tx.execute("UPDATE projections SET since = ? WHERE name = ?", (folds.oldest(item), item.name))


def _check_side_by_side(tx: Database, old: Sequence[Projection]) -> None:
    """Refuse to change tables while processes live that would not keep them as they will be."""
    known = dict(tx.execute("SELECT name, version FROM projections").fetchall())
    broken = [item.name for item in old if known.get(item.name, 0) < folds.oldest(item)]
    living = tx.execute("SELECT name FROM workers WHERE until >= clock_timestamp() ORDER BY name").fetchall()
    if broken and living:
        raise Problem(
            "state_conflict",
            "This version keeps other tables than the processes that have the ledger open.",
            tables=broken,
            workers=[name for (name,) in living],
            fix="Stop them, run `forestay migrate`, then start them again with this version.",
        )


def lacking(address: str, projections: Sequence[Projection]) -> Lacking:
    """What a ledger lacks to be opened with these projections; changes nothing."""
    return PgServer(address, lock_timeout=5.0).lacking(projections)

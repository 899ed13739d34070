"""The ledger on one SQLite file: the embedded default.

Reading is done on a thread for reading, but a look-up of a few rows is done where it is asked for. It takes a sixth of
the time of waking another thread and being woken by it, and a reader of this file waits for no writer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from forestay.kernel.ambient import Clock, Ids, SystemClock
from forestay.kernel.ledger import projections as folds
from forestay.kernel.ledger import tables, transfer
from forestay.kernel.ledger.archives import Sealing
from forestay.kernel.ledger.projections import Database, Projection
from forestay.kernel.ledger.records import Head, Record
from forestay.kernel.ledger.sqlite_file import SqliteFile, as_problem, is_failure_of_disk
from forestay.kernel.ledger.sqlite_writer import SqliteWriter
from forestay.kernel.ledger.table_ledger import PAGE, TableLedger
from forestay.kernel.ledger.vault import FileVault, Vault
from forestay.kernel.ledger.writer import Feeds

T = TypeVar("T")
_FEW = 32


class SqliteLedger(TableLedger):
    """A ledger on one file: one thread writes, or the loop of a lone caller; any thread reads."""

    writer_type = SqliteWriter

    def __init__(
        self,
        path: Path | str,
        *,
        projections: Sequence[Projection] = (),
        clock: Clock | None = None,
        ids: Ids | None = None,
        lock_timeout: float = 5.0,
        readers: int = 2,
        sole: bool = False,
    ) -> None:
        """`sole` asks for nothing more here: one file has one writer at a time, and its folder one host."""
        clock = clock or SystemClock()
        self._file = SqliteFile(Path(path), lock_timeout=lock_timeout)
        self._file.create()
        self._vault = FileVault(self._file.path.with_name(self._file.path.name + ".keys"))
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        feeds = Feeds()
        writer = self.writer_type(self._file, [*projections, Sealing()], clock, ids or Ids(clock), feeds.announced)
        super().__init__(feeds, writer, readers)
        if not self.read_only:
            self._write(lambda tx: _build(tx, projections)).result()

    @classmethod
    def open(cls, address: Path | str, **options: Any) -> Self:
        return cls(address, **options)

    @property
    def read_only(self) -> bool:
        return self._file.read_only

    def vault(self) -> Vault:
        return self._vault

    def close(self) -> None:
        self._writer.close()
        self._closed = True
        self._readers.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    async def read(
        self, stream: str, start: int = 0, limit: int | None = None, *, reverse: bool = False
    ) -> list[Record]:
        most = _FEW if limit is None else min(limit, _FEW)
        few = self._read_now(lambda db: tables.read(db, stream, start, most, reverse))
        if len(few) < most or most == limit:
            return few
        return await self._read(lambda db: tables.read(db, stream, start, limit, reverse))

    async def head(self, stream: str) -> Head:
        return self._read_now(lambda db: tables.head(db, stream))

    async def streams(self, prefix: str = "", after: str = "", limit: int = 1000) -> dict[str, Head]:
        few = self._read_now(lambda db: tables.streams(db, prefix, after, min(limit, _FEW)))
        return few if len(few) < _FEW else await self._read(lambda db: tables.streams(db, prefix, after, limit))

    async def look_up(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._read_now(lambda db: db.execute(sql, parameters).fetchall())

    def _take_in(self, tx: Database, lines: Iterable[bytes]) -> int:
        return transfer.take_in(tx, lines, self._writer.projections)

    @staticmethod
    def _unreadable(error: Exception) -> bool:
        return is_failure_of_disk(error)

    def _read_now(self, work: Callable[[Database], T]) -> T:
        try:
            return work(self._reader())
        except sqlite3.Error as error:
            raise as_problem(error) from error

    def _snapshot(self, work: Callable[[Database], T]) -> T:
        def inside(db: Database) -> T:
            db.execute("BEGIN")
            try:
                return work(db)
            finally:
                db.execute("ROLLBACK")

        return self._read_now(inside)

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        self._check_open()
        if connection is None:
            connection = self._local.connection = self._file.reader()
            self._connections.append(connection)
        return connection


def _build(tx: Database, projections: Sequence[Projection]) -> None:
    """Bring the projections' tables up to date; a row stands in the index of its key."""
    for item in projections:
        page = partial(tables.read_all, tx, limit=PAGE)
        folds.build(tx, item, page, lambda statement: statement.rstrip() + " WITHOUT ROWID")

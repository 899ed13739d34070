"""Queryable tables that are folds of records, in SQL that SQLite and PostgreSQL both run.

The dialect:

- D1  A value's place is `?`. Columns are TEXT or BIGINT. A truth is a BIGINT of 0 or 1.
- D2  JSON is a TEXT that only Python reads: what a statement must look into has columns, or a table, of its own.
      Every table has a primary key.
- D3  To write what may be there: `INSERT … ON CONFLICT (key) DO UPDATE SET x = excluded.x`, or `DO NOTHING`.
- D4  A `?` that is not compared with a column is CAST to its type. A SELECT in place of a table has a name. An INSERT
      of a SELECT has a WHERE before ON CONFLICT.
- D5  `digest(a, b, c)` is the SHA-256 of three texts with zero bytes between them, as hexadecimal digits.
- D6  A projection asks nothing back: each statement finds in its own tables what it needs to know.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from forestay.kernel.ledger.records import Record

_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")


class Transaction(Protocol):
    """What a projection writes with. Nothing comes back, so that a backend may send statements in bulk (D6)."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> object: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object: ...


class Projection(Protocol):
    """A queryable table that is a fold of records, kept in the transaction that writes them.

    `schema` creates the tables; a new `version` has them built again from the log.
    `apply` gets consecutive records of one stream. What it writes depends on nothing but them and the projection's own
    tables.
    """

    name: str
    version: int
    prefix: str
    schema: str

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None: ...


@runtime_checkable
class Lasting(Projection, Protocol):
    """A projection whose tables older processes keep right too: those of version `since` or newer, and with 0 those
    that know no such tables, because they write none of its records. They run beside it while hosts are upgraded."""

    since: int


def oldest(projection: Projection) -> int:
    """The oldest version whose processes keep this projection's tables right."""
    return projection.since if isinstance(projection, Lasting) else projection.version


class Rows(Protocol):
    """What a query found."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> object: ...


class Database(Protocol):
    """A connection, as the ledger's own code uses it: one SQL text for every backend."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Rows: ...


Page = Callable[[str, int], list[tuple[int, Record]]]


def build(
    tx: Database, projection: Projection, page: Page, table: Callable[[str], str] = lambda statement: statement
) -> None:
    """Build a projection that is new, or that changed its version, from the log. `table` fits a CREATE TABLE to the
    backend; `page` reads the records behind a position."""
    row = tx.execute("SELECT version FROM projections WHERE name = ?", (projection.name,)).fetchone()
    if row is not None and row[0] == projection.version:
        return
    for name in reversed(_TABLE.findall(projection.schema)):
        tx.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in filter(str.strip, projection.schema.split(";")):
        tx.execute(table(statement) if _TABLE.search(statement) else statement)
    after = 0
    while found := page(projection.prefix, after):
        for after, record in found:  # noqa: B007 - the last position is where the next page starts
            projection.apply(tx, [record])
    tx.execute(
        "INSERT INTO projections (name, version) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET version = excluded.version",
        (projection.name, projection.version),
    )


def forget_others(tx: Database, projections: Sequence[Projection]) -> None:
    """Have projections that are not among these built again when they are next opened: they missed something (L6)."""
    known = {row[0] for row in tx.execute("SELECT name FROM projections")}
    missing = known - {projection.name for projection in projections}
    tx.executemany("DELETE FROM projections WHERE name = ?", [(name,) for name in missing])


def digest(*texts: str) -> str:
    """What `digest` gives in a statement (D5)."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()

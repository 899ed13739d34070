"""Queryable tables that are folds of records, in SQL that SQLite and PostgreSQL both run.

The dialect:

- D1  A value's placeholder is `?`. Columns are TEXT or BIGINT. A boolean is a BIGINT of 0 or 1.
- D2  JSON is a TEXT that only Python reads: values that a statement uses have their own columns, or their own table.
      Every table has a primary key.
- D3  An upsert is `INSERT … ON CONFLICT (key) DO UPDATE SET x = excluded.x`, or `DO NOTHING`.
- D4  A `?` that is not compared with a column is CAST to its type. A SELECT in place of a table has a name. An INSERT
      of a SELECT has a WHERE before ON CONFLICT.
- D5  `digest(a, b, c)` is the SHA-256 of three texts with zero bytes between them, as hexadecimal digits.
- D6  A projection reads nothing back: each statement gets what it needs from the projection's own tables.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from forestay.kernel.ledger.records import Record

_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")


class Transaction(Protocol):
    """The transaction that a projection writes in. It returns nothing, so that a backend may batch statements (D6)."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> object: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object: ...


class Projection(Protocol):
    """A queryable table that is a fold of records, updated in the transaction that writes them.

    `schema` creates the tables; a new `version` rebuilds them from the log. `apply` gets consecutive records of one
    stream. Its writes depend only on these records and the projection's own tables.
    """

    name: str
    version: int
    prefix: str
    schema: str

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None: ...


@runtime_checkable
class Lasting(Projection, Protocol):
    """A projection whose tables older processes keep right too, so that hosts can be upgraded one by one.

    These are processes of version `since` or newer. With 0 they are also those without such tables, because they write
    none of its records.
    """

    since: int


def oldest(projection: Projection) -> int:
    """Return the oldest version whose processes keep this projection's tables right."""
    return projection.since if isinstance(projection, Lasting) else projection.version


class Rows(Protocol):
    """The result of a query."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> object: ...


class Database(Protocol):
    """A connection for the ledger's own code: one SQL text serves every backend."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Rows: ...


Page = Callable[[str, int], list[tuple[int, Record]]]


def build(
    tx: Database, projection: Projection, page: Page, table: Callable[[str], str] = lambda statement: statement
) -> None:
    """Build a new projection, or one with a new version, from the log.

    `table` adapts a CREATE TABLE to the backend; `page` reads the records after a position.
    """
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
    """Mark all other projections to be rebuilt at their next opening, because they missed records (L6)."""
    known = {row[0] for row in tx.execute("SELECT name FROM projections")}
    missing = known - {projection.name for projection in projections}
    tx.executemany("DELETE FROM projections WHERE name = ?", [(name,) for name in missing])


def digest(*texts: str) -> str:
    """Compute what `digest` gives in a statement (D5)."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()

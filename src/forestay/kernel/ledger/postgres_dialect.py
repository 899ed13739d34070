"""Translates the dialect of projections and of the ledger's own code for psycopg."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import psycopg

from forestay.kernel.problems import Problem

Connection = psycopg.Connection[tuple[Any, ...]]
_PLACES = re.compile(r"'[^']*'|\?|%")


class Database:
    """A connection for the ledger's own code and its projections: a value's placeholder is `?` (D1)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.connection.execute(places(text), row_of(parameters))

    def executemany(self, text: str, parameters: Iterable[Sequence[Any]], /) -> psycopg.Cursor[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.executemany(places(text), [row_of(row) for row in parameters])
        return cursor


class Found:
    """The rows that a query found."""

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def close(self) -> None:
        """Nothing is held open."""


class Reader:
    """A connection that reuses one cursor: a new cursor costs more than the query."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._cursor = connection.cursor()

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> Found:
        return Found(self._cursor.execute(places(text), row_of(parameters)).fetchall())

    def executemany(self, text: str, parameters: Iterable[Sequence[Any]], /) -> Found:
        raise Problem("ledger_read_only", "A reading connection cannot write.")


@lru_cache(4096)
def places(text: str) -> str:
    """Translate a statement for psycopg. Statements come from our code and never contain values."""

    def other(found: re.Match[str]) -> str:
        return "%s" if found[0] == "?" else found[0].replace("%", "%%")

    return _PLACES.sub(other, text)


def row_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return values for the server. A text of PostgreSQL cannot have a zero byte: tables and queries have the sign ␀.

    Records are bytes, and stay unchanged.
    """
    return tuple(value.replace("\0", "␀") if type(value) is str and "\0" in value else value for value in values)


def table(statement: str) -> str:
    """Translate a CREATE TABLE: texts are compared byte by byte, as in SQLite."""
    return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)

"""The dialect that projections and the ledger's own code are written in, as psycopg takes it."""

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
    """A connection as the ledger's own code and its projections use it: a value's place is `?` (D1)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.connection.execute(places(text), row_of(parameters))

    def executemany(self, text: str, parameters: Iterable[Sequence[Any]], /) -> psycopg.Cursor[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.executemany(places(text), [row_of(row) for row in parameters])
        return cursor


class Found:
    """The rows that a question found."""

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
    """A connection that asks with one cursor again and again: a new one for each question costs more than to ask."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._cursor = connection.cursor()

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> Found:
        return Found(self._cursor.execute(places(text), row_of(parameters)).fetchall())

    def executemany(self, text: str, parameters: Iterable[Sequence[Any]], /) -> Found:
        raise Problem("ledger_read_only", "Who reads writes nothing.")


@lru_cache(4096)
def places(text: str) -> str:
    """A statement of the dialect as psycopg takes it. Statements are ours: values are never written into them."""

    def other(found: re.Match[str]) -> str:
        return "%s" if found[0] == "?" else found[0].replace("%", "%%")

    return _PLACES.sub(other, text)


def row_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """Values as the server takes them. A text of PostgreSQL holds no zero byte: tables have the sign for it instead,
    and who asks for it finds that. Records are bytes, and stay as they are."""
    return tuple(value.replace("\0", "␀") if type(value) is str and "\0" in value else value for value in values)


def table(statement: str) -> str:
    """A CREATE TABLE of the dialect: texts are compared byte by byte, as SQLite does."""
    return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)

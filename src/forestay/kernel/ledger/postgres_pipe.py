"""Sends many statements to PostgreSQL in one round trip.

A transaction of a ledger has many small statements. psycopg needs about fifty microseconds for each of them; libpq,
which psycopg exposes, needs three.
"""

from __future__ import annotations

import re
import select
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, pq

from forestay.kernel.ledger.postgres_dialect import Connection

_PLACE = re.compile(r"'[^']*'|\?")
_MOST_PREPARED = 512  # prepared statements of one connection; there is one for each statement in the code
_LAST_WORDS = 8  # reads of a server's messages before it ends a connection


class Statement(NamedTuple):
    """One statement with `?` for each value (D1), and the values in the server's format."""

    text: str
    values: Sequence[bytes | None] = ()


class Pipe:
    """Sends statements over a connection of psycopg.

    Call `forget` after another use of that connection: at a ROLLBACK or a DROP, psycopg deallocates all prepared
    statements, also those that it did not prepare.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.fell_short = False
        """Whether the server ended the connection before it reached the last statement of a run."""
        self._sent = 0
        self._libpq = connection.pgconn
        self._names: dict[str, bytes] = {}
        self._number = 0
        self._readable = select.poll()
        self._readable.register(self._libpq.socket, select.POLLIN)
        self._movable = select.poll()
        self._movable.register(self._libpq.socket, select.POLLIN | select.POLLOUT)

    @property
    def is_stale(self) -> bool:
        """Whether the server has ended the connection while it was idle."""
        try:
            for _ in range(_LAST_WORDS):
                if not self._readable.poll(0):
                    return False
                self._libpq.consume_input()
        except psycopg.OperationalError:
            return True
        return False

    def run(self, statements: Iterable[Statement]) -> list[list[bytes]]:
        """Execute all statements; return the rows of the last one, as texts.

        Raise the error of the first refused statement; then none after it was executed.
        """
        known, self._sent, self.fell_short = len(self._names), 0, False
        self._libpq.enter_pipeline_mode()
        for text, values in statements:
            self._send(text, values)
        self._libpq.pipeline_sync()
        while self._libpq.flush():
            self._movable.poll()
            self._libpq.consume_input()
        last, refused = self._answers()
        self._libpq.exit_pipeline_mode()
        if refused is not None:
            for text in list(self._names)[known:]:  # these may not be prepared
                del self._names[text]
            raise refused
        return [[last.get_value(row, column) or b"" for column in range(last.nfields)] for row in range(last.ntuples)]

    def rollback(self) -> None:
        self.run([Statement("ROLLBACK")])

    def forget(self) -> None:
        """Forget the prepared statements, so that each is prepared again."""
        self._names.clear()

    def _send(self, text: str, values: Sequence[bytes | None]) -> None:
        self._sent += 1
        name = self._names.get(text)
        if name is None:
            if len(self._names) >= _MOST_PREPARED:
                self._libpq.send_query_params(numbered(text), values)
                return
            self._number += 1
            self._sent += 1
            name = self._names[text] = b"forestay_%d" % self._number
            self._libpq.send_prepare(name, numbered(text))
        self._libpq.send_query_prepared(name, values)

    def _answers(self) -> tuple[pq.abc.PGresult, psycopg.Error | None]:
        """Read all answers; return the last one, and the first error."""
        done, first = 0, None
        last = self._libpq.make_empty_result(pq.ExecStatus.EMPTY_QUERY)
        try:
            while (result := self._answer()) is None or result.status != pq.ExecStatus.PIPELINE_SYNC:
                if result is None:
                    continue
                last = result
                if first is None:
                    refused = result.status == pq.ExecStatus.FATAL_ERROR
                    first, done = (errors.error_from_result(result), done) if refused else (None, done + 1)
        except psycopg.OperationalError:
            if first is None or not first.sqlstate:
                raise
            self.fell_short = done < self._sent - 1  # answers come in order, and this was the last one
            raise first from None
        return last, first

    def _answer(self) -> pq.abc.PGresult | None:
        """Return the next answer; None separates the answers of two statements."""
        while self._libpq.is_busy():
            self._readable.poll()
            self._libpq.consume_input()
        result = self._libpq.get_result()
        if result is None and self._libpq.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(self._libpq.get_error_message())
        return result


@lru_cache(4096)
def numbered(text: str) -> bytes:
    """Translate a statement for libpq, whose placeholders have numbers."""
    count = 0

    def other(found: re.Match[str]) -> str:
        nonlocal count
        if found[0] != "?":
            return found[0]
        count += 1
        return f"${count}"

    return _PLACE.sub(other, text).encode()


def value_of(value: Any) -> bytes | None:
    """Return a value in the server's format. A text of PostgreSQL cannot have a zero byte: tables have the sign ␀."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.replace("\0", "␀").encode()
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    return repr(int(value) if isinstance(value, bool) else value).encode()


# Arrays in the server's format.


def numbers(values: Iterable[int]) -> bytes:
    return ("{" + ",".join(map(str, values)) + "}").encode()


def texts(values: Iterable[str]) -> bytes:
    quoted = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return ('{"' + '","'.join(quoted) + '"}').encode() if quoted else b"{}"


def blobs(values: Iterable[bytes | None]) -> bytes:
    return ("{" + ",".join("NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values) + "}").encode()

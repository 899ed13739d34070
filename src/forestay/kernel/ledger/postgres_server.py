"""The PostgreSQL database under a ledger: its address, its connections, its tables, and what its failures mean."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg
from psycopg import sql

from forestay.kernel.problems import Problem

Connection = psycopg.Connection[tuple[Any, ...]]
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_PLACES = re.compile(r"'[^']*'|\?|%")
_CONNECT_SECONDS = "10"
PLACES = 20  # bits of a position that count within its transaction
# Below this position no record comes any more (P2).
HORIZON = f"(SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base) << {PLACES} FROM numbering)"  # noqa: S608
_IDLE = "25P03"  # the server ended a connection that held a transaction and said nothing
_ROLLED_BACK = ("40001", "40P01", _IDLE)  # a serialization failure, a deadlock
_FAILURES = {
    "25006": ("ledger_read_only", "The ledger's database cannot be written."),
    "40001": ("ledger_locked", "Another transaction was in the way."),
    "40P01": ("ledger_locked", "Another transaction was in the way."),
    "42501": ("ledger_read_only", "The ledger's user may not do this in the database."),
    "53100": ("ledger_full", "The database's disk is full; nothing was written."),
    "55P03": ("ledger_locked", "Another process holds the stream."),
    "XX001": ("ledger_corrupt", "The ledger's database is damaged."),
    "XX002": ("ledger_corrupt", "The ledger's database is damaged."),
}


def as_problem(error: psycopg.Error) -> Problem:
    """What a failure of PostgreSQL means to a caller."""
    state = error.sqlstate or ""
    known = _FAILURES.get(state)
    if known is None and is_lost(error):
        known = ("ledger_unreachable", "The ledger's database does not answer.")
    key, message = known or ("ledger_io", "The ledger's database failed.")
    said = error.diag.message_primary or str(error).strip().partition("\n")[0]
    problem = Problem(key, message, sqlstate=state, said=said[:200])
    problem.__cause__ = error
    return problem


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, rather than a statement refused."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError)
    return state[:2] == "08" or state in ("57P01", "57P02", "57P03", _IDLE)


def is_damage(error: Exception) -> bool:
    """Whether a stored page cannot be read."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "")[:2] == "XX"


def is_in_the_way(error: psycopg.Error) -> bool:
    """Whether the transaction was rolled back for the sake of another: it may be tried again at once."""
    return error.sqlstate in _ROLLED_BACK


class Database:
    """A connection as the ledger's own code and its projections use it: a value's place is `?` (D1)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.connection.execute(places(text), tuple(parameters))

    def executemany(self, text: str, parameters: Iterable[Sequence[Any]], /) -> psycopg.Cursor[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.executemany(places(text), [tuple(row) for row in parameters])
        return cursor


@lru_cache(4096)
def places(text: str) -> str:
    """A statement of the dialect as psycopg takes it. Statements are ours: values are never written into them."""

    def other(found: re.Match[str]) -> str:
        return "%s" if found[0] == "?" else found[0].replace("%", "%%")

    return _PLACES.sub(other, text)


def table(statement: str) -> str:
    """A CREATE TABLE of the dialect: texts are compared byte by byte, as SQLite does."""
    return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)


class PgServer:
    """One schema of one database: makes connections, and knows whether it may be written.

    The address is psycopg's, with one name of ours in its query: `schema`, which is `forestay` when it is not given.
    """

    def __init__(self, address: str, *, lock_timeout: float) -> None:
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query))
        self.schema = query.pop("schema", "forestay")
        if not _SCHEMA_NAME.fullmatch(self.schema):
            message = f"{self.schema[:80]!r} cannot name the ledger's schema."
            raise Problem("config_invalid", message, at="ledger", fix="Use lower-case letters, digits and underscores.")
        query.setdefault("connect_timeout", _CONNECT_SECONDS)
        query.setdefault("application_name", "forestay")
        self._address = parts._replace(query=urlencode(query)).geturl()
        self._lock_ms = round(lock_timeout * 1000)
        self.channel = f"forestay_{self.schema}"
        self.read_only = False

    def create(self) -> None:
        """Make the schema if it is not there and bring its tables up to date."""
        try:
            with self.connect() as connection:
                (state,) = connection.execute("SHOW transaction_read_only").fetchone() or ("off",)
                self.read_only = state == "on"
                if not self.read_only:
                    _migrate(connection, self.schema)
        except psycopg.Error as error:
            raise as_problem(error) from error

    def connect(self, *, autocommit: bool = True) -> Connection:
        """A connection that works in the ledger's schema."""
        connection = psycopg.connect(self._address, autocommit=True)
        try:
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema)))
            connection.autocommit = autocommit
        except BaseException:
            connection.close()
            raise
        return connection

    def writer(self) -> Connection:
        """The connection that appends. The server ends it when it holds locks and says nothing for two seconds: a
        process that stands still must not stand in the way of the others."""
        connection = self.connect()
        try:
            connection.execute(
                "SELECT set_config('lock_timeout', %s, false), set_config('synchronous_commit', 'on', false), "
                "set_config('idle_in_transaction_session_timeout', '2000', false)",
                (str(self._lock_ms),),
            )
            _go_on_counting(connection)
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
        return connection

    def sole(self) -> Connection:
        """A connection that keeps others from being the only one; `state_conflict` when one of them is."""
        connection = self.connect()
        try:
            connection.execute("SELECT set_config('lock_timeout', %s, false)", (str(self._lock_ms),))
            connection.execute("SELECT pg_advisory_lock(%s)", (self.lock("/sole"),))
        except psycopg.errors.LockNotAvailable as error:
            connection.close()
            raise Problem(
                "state_conflict",
                "Another host has this ledger open.",
                schema=self.schema,
                fix="Wait until it ends, stop it, or name another ledger.",
            ) from error
        except psycopg.Error as error:
            connection.close()
            raise as_problem(error) from error
        return connection

    def lock(self, name: str) -> int:
        """The number of an advisory lock; ledgers in other schemas have others."""
        digest = hashlib.blake2b(f"{self.schema}\0{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


def _migrate(connection: Connection, schema: str) -> None:
    """Apply the numbered files under migrations/postgres/ that this schema has not seen, all in one transaction."""
    folder = resources.files(__package__).joinpath("migrations", "postgres")
    files = sorted(folder.iterdir(), key=lambda item: item.name)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"forestay migrates {schema}",))
        if connection.execute("SELECT to_regclass('migrations')").fetchone() == (None,):
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            connection.execute("CREATE TABLE migrations (number BIGINT PRIMARY KEY)")
        found = connection.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()
        version = found[0] if found else 0
        if version > len(files):
            raise Problem(
                "migration_unsupported",
                f"The ledger was written by a newer forestay (schema {version}; this one knows {len(files)}).",
                fix="Upgrade forestay.",
            )
        for number, item in enumerate(files[version:], start=version + 1):
            connection.execute(item.read_text("utf-8"))
            connection.execute("INSERT INTO migrations VALUES (%s)", (number,))


def _go_on_counting(connection: Connection) -> None:
    """After a restore the server's transactions have lower numbers than the positions that are there: add the rest."""
    connection.execute(
        "UPDATE numbering SET base = base + rest FROM (SELECT (SELECT coalesce(max(pos), 0) >> %s FROM records) "
        "- pg_snapshot_xmax(pg_current_snapshot())::text::bigint - n.base + 1 AS rest FROM numbering n) AS r "
        "WHERE r.rest > 0",
        (PLACES,),
    )

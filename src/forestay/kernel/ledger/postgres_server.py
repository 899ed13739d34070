"""The PostgreSQL database under a ledger: its address, its connections, its tables, and what its failures mean."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import psycopg
from psycopg import sql

from forestay.kernel.ledger.postgres_dialect import Connection
from forestay.kernel.ledger.projections import Database, Projection
from forestay.kernel.ledger.tables import check_version
from forestay.kernel.problems import Problem

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_CONNECT_SECONDS = "10"
_AGAIN_SECONDS = 0.1
PLACES = 20  # bits of a position that count within its transaction
# Below this position no record comes any more (P2).
HORIZON = f"(SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base) << {PLACES} FROM numbering)"  # noqa: S608
VERSIONS = "SELECT name, version, since FROM projections"
_LIVING = "SELECT name FROM workers WHERE until >= clock_timestamp()"
_WITH_ARCHIVES = 7  # the schema that has them
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


class Lacking(msgspec.Struct, frozen=True, rename="camel"):
    """What a ledger has and what this version needs. `living`: processes that have it open."""

    schema: int
    needed: int
    tables: list[str]
    living: list[str]


class PgServer:
    """One schema of one database: makes connections, and knows whether it may be written.

    The address is psycopg's, with one name of ours in its query: `schema`, which is `forestay` when it is not given.
    With `sole` this process writes alone; without, it does so beside others.
    """

    def __init__(self, address: str, *, lock_timeout: float, sole: bool = False) -> None:
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
        self._is_sole = sole
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

    def lacking(self, projections: Sequence[Projection]) -> Lacking:
        """What `create` and a look at the projections would change; changes nothing."""
        try:
            with self.connect() as connection:
                if connection.execute("SELECT to_regclass('migrations')").fetchone() == (None,):
                    return Lacking(0, len(_migrations()), [item.name for item in projections], [])
                version = _version(connection)[0]
                known: dict[str, int] = dict(connection.execute("SELECT name, version FROM projections").fetchall())
                living = connection.execute(_LIVING.encode()).fetchall()
        except psycopg.Error as error:
            raise as_problem(error) from error
        changed = [item.name for item in projections if known.get(item.name, 0) < item.version]
        return Lacking(version, len(_migrations()), changed, sorted(name for (name,) in living))

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
        process that stands still must not stand in the way of the others. It plans each statement once, for tables that
        may be large by now."""
        connection = self.connect()
        try:
            connection.execute(
                "SELECT set_config('lock_timeout', %s, false), set_config('synchronous_commit', 'on', false), "
                "set_config('idle_in_transaction_session_timeout', '2000', false), "
                "set_config('plan_cache_mode', 'force_generic_plan', false), "
                "set_config('enable_seqscan', 'off', false)",
                (str(self._lock_ms),),
            )
            self._join(connection)
            _go_on_counting(connection)
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
        return connection

    def first_writer(self) -> Connection:
        """As `writer`, for who opens the ledger: a failure is a Problem."""
        try:
            return self.writer()
        except psycopg.Error as error:
            raise as_problem(error) from error

    def _join(self, connection: Connection) -> None:
        """Hold the ledger, alone or beside others, for this connection, which every append goes through: who has lost
        it writes nothing more.

        The server notices within seconds that the machine at the other end is gone.
        """
        connection.execute(
            "SELECT set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '2', false), "
            "set_config('tcp_keepalives_count', '3', false)"
        )
        until = time.monotonic() + self._lock_ms / 1000
        ask = "SELECT pg_try_advisory_lock(%s)" if self._is_sole else "SELECT pg_try_advisory_lock_shared(%s)"
        while connection.execute(ask, (self.lock("/sole"),)).fetchone() != (True,):
            if time.monotonic() >= until:
                raise Problem(
                    "state_conflict",
                    "A host has this ledger open." if self._is_sole else "Another process has this ledger for itself.",
                    schema=self.schema,
                    fix="Wait until it ends, stop it, or name another ledger.",
                )
            time.sleep(_AGAIN_SECONDS)

    def lock(self, name: str) -> int:
        """The number of an advisory lock; ledgers in other schemas have others."""
        digest = hashlib.blake2b(f"{self.schema}\0{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


def _migrations() -> list[Traversable]:
    """The numbered files that make the schema, in their order."""
    return sorted(resources.files(__package__).joinpath("migrations", "postgres").iterdir(), key=lambda item: item.name)


def schema_number() -> int:
    """The schema that this version was written for."""
    return len(_migrations())


def _version(connection: Connection) -> tuple[int, int]:
    """The number of the schema, and the oldest one whose processes may work on it. The column that tells it came with
    the fifth."""
    row = connection.execute(
        "SELECT number, coalesce((to_jsonb(m) ->> 'since')::bigint, number) FROM migrations m ORDER BY 1 DESC LIMIT 1"
    ).fetchone()
    return (row[0], row[1]) if row else (0, 0)


def _since(files: Sequence[Traversable], number: int) -> int:
    """Processes of the schema before go on beside a new one, unless its file begins with `-- alone`."""
    alone = files[number - 1].read_text("utf-8").startswith("-- alone")
    return number if alone else number - 1


def _migrate(connection: Connection, schema: str) -> None:
    """Apply the files that this schema has not seen, all in one transaction, one process at a time. A schema that is
    newer is left as it is, where it says that this version may work on it."""
    files = _migrations()
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"forestay migrates {schema}",))
        if connection.execute("SELECT to_regclass('migrations')").fetchone() == (None,):
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            connection.execute("CREATE TABLE migrations (number BIGINT PRIMARY KEY)")
        version, since = _version(connection)
        if len(files) < since:
            check_version(version, len(files))
        for number, item in enumerate(files[version:], start=version + 1):
            connection.execute(item.read_text("utf-8"))
            connection.execute("INSERT INTO migrations (number) VALUES (%s)", (number,))
        if version < len(files):
            since = max(_since(files, number) for number in range(version + 1, len(files) + 1))
            connection.execute("UPDATE migrations SET since = %s WHERE number = %s", (since, len(files)))
            _check_living(connection, since)


def _check_living(connection: Connection, since: int) -> None:
    """Refuse a schema that processes which have the ledger open cannot work on."""
    found = connection.execute(f"{_LIVING} AND schema < %s".encode(), (since,)).fetchall()
    if found:
        raise Problem(
            "state_conflict",
            "Processes that have the ledger open are too old for this version's schema.",
            workers=sorted(name for (name,) in found),
            fix="Stop them, or upgrade by one version at a time.",
        )


def check_archives_known(tx: Database) -> None:
    """Refuse to seal while processes live that know no archives, and have none of them start from now on."""
    old = tx.execute(f"{_LIVING} AND schema < ?", (_WITH_ARCHIVES,)).fetchall()
    if old:
        raise Problem(
            "state_conflict",
            "Processes that have the ledger open are too old to read archives.",
            workers=sorted(name for (name,) in old),
            fix="Upgrade them; what is due is sealed then.",
        )
    tx.execute("UPDATE migrations SET since = ? WHERE number >= ? AND since < ?", (_WITH_ARCHIVES,) * 3)


def _go_on_counting(connection: Connection) -> None:
    """After a restore the server's transactions have lower numbers than the positions that are there: add the rest."""
    connection.execute(
        "UPDATE numbering SET base = base + rest FROM (SELECT (SELECT coalesce(max(pos), 0) >> %s FROM records) "
        "- pg_snapshot_xmax(pg_current_snapshot())::text::bigint - n.base + 1 AS rest FROM numbering n) AS r "
        "WHERE r.rest > 0",
        (PLACES,),
    )

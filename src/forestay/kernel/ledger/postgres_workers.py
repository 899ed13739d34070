"""Processes that share one ledger on PostgreSQL.

- K1  A key has one living owner: the process that claimed it last or, without a living claim, the process that the
      queue's row names.
- K2  Time is the database's: a process's own clock does not matter.
- K3  A process's keys are free when it leaves or its lease expires. Only a process that has lived for a whole lease
      takes keys from dead ones: after an outage of the database, each process has time to renew its lease.
- K4  Claims are fair: tenants take turns, however many keys one of them has waiting.
- K5  A claim is no permission to write. A process that was stopped and continues still believes in its claim; `expect`
      of its next append fences it (L4).
- K6  A lock is a claim on a key outside the queue: it ends when its process releases it, leaves or starts again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from time import monotonic
from typing import Any

import msgspec
import psycopg

from forestay.kernel.ledger.postgres_dialect import Connection, places, row_of
from forestay.kernel.ledger.postgres_server import PgServer, as_problem, is_in_the_way, is_lost, schema_number
from forestay.kernel.ledger.workers import Beat, Queue, Worker
from forestay.kernel.problems import Problem

LEASE_SECONDS = 2.4
_ATTEMPTS = 3
_START = """
    INSERT INTO workers (name, epoch, since, until, about, schema)
    VALUES (?, 1, clock_timestamp(), clock_timestamp() + ? * interval '1 second', ?, ?)
    ON CONFLICT (name) DO UPDATE SET epoch = workers.epoch + 1, since = excluded.since, until = excluded.until,
        about = excluded.about, schema = excluded.schema
    RETURNING epoch
"""
_NEW_LIFE = "DELETE FROM claims WHERE owner = ? AND key LIKE '%/%'"
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_BEAT = f"""
    WITH before AS (
        SELECT name, until >= clock_timestamp() AS alive FROM workers WHERE name = ? AND epoch = ? FOR UPDATE
    )
    UPDATE workers w SET until = clock_timestamp() + ? * interval '1 second', about = ?,
        since = CASE WHEN b.alive THEN w.since ELSE clock_timestamp() END
    FROM before b WHERE w.name = b.name RETURNING b.alive, {_NOW}
"""  # noqa: S608 - the words are ours
_LEAVE = (
    "DELETE FROM claims WHERE owner = ? AND EXISTS (SELECT 1 FROM workers WHERE name = ? AND epoch = ?)",
    "UPDATE workers SET until = '-infinity' WHERE name = ? AND epoch = ?",
)
_ALIVE = "EXISTS (SELECT 1 FROM workers x WHERE x.name = {0} AND x.until >= clock_timestamp())"
_GROWN = "w.since <= clock_timestamp() - ? * interval '1 second'"
# The owner of a row of the queue `q`; NULL without an owner.
_OWNER = f"""coalesce(
    (SELECT c.owner FROM claims c WHERE c.key = q.{{key}} AND {_ALIVE.format("c.owner")}),
    CASE WHEN {_ALIVE.format("q.{owner}")} THEN q.{{owner}} END
)"""  # noqa: S608 - the words are ours
# Rows that this process may take: free ones, its own, and those of dead processes if it is old enough (K3).
_FREE = f"""
    (q.{{owner}} IS NULL OR q.{{owner}} IN ('', m.name) OR (m.grown AND NOT {_ALIVE.format("q.{owner}")}))
    AND NOT EXISTS (
        SELECT 1 FROM claims c
        WHERE c.key = q.{{key}} AND c.owner <> m.name AND (NOT m.grown OR {_ALIVE.format("c.owner")})
    )
"""  # noqa: S608 - the words are ours
_ME = f"me (name, grown) AS (SELECT w.name, {_GROWN} FROM workers w WHERE w.name = ? AND w.until >= clock_timestamp())"  # noqa: S608
_TAKE = f"""
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner
    WHERE claims.owner = excluded.owner OR NOT {_ALIVE.format("claims.owner")}
    RETURNING claims.owner
"""
_CLAIM = f"""
    WITH {_ME}, waiting AS (
        SELECT q.{{key}} AS key, min(q.{{tenant}}) AS tenant, m.name, max(q.{{owner}}) AS before
        FROM {{table}} q, me m
        WHERE {{due}} AND {_FREE}
        AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.key = q.{{key}} AND c.owner = m.name)
        GROUP BY q.{{key}}, m.name
    ), turns AS (
        SELECT *, row_number() OVER (PARTITION BY tenant ORDER BY key) AS turn FROM waiting
    ), chosen AS (
        SELECT * FROM turns ORDER BY turn, tenant LIMIT ?
    ), taken AS (
        INSERT INTO claims (key, owner) SELECT t.key, t.name FROM chosen t ORDER BY t.key {_TAKE}, claims.key
    )
    SELECT c.before, count(*) FROM taken JOIN chosen c ON c.key = taken.key
    WHERE c.before NOT IN ('', c.name) GROUP BY c.before
"""  # noqa: S608 - the words are ours
_TAKE_ONE = f"""
    WITH {_ME} INSERT INTO claims (key, owner)
    SELECT q.{{key}}, m.name FROM {{table}} q, me m WHERE q.{{id}} = ? AND {{open}} AND {_FREE} {_TAKE},
        (SELECT b.{{owner}} FROM {{table}} b WHERE b.{{id}} = ?)
"""  # noqa: S608 - the words are ours
_HOLD = f"""
    WITH {_ME} INSERT INTO claims (key, owner)
    SELECT k.key, m.name FROM unnest(?::text[]) AS k (key), me m ORDER BY k.key
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner
    WHERE claims.owner = excluded.owner OR NOT {_ALIVE.format("claims.owner")}
    RETURNING claims.key
"""  # noqa: S608 - the words are ours
_LET_GO = """
    DELETE FROM claims WHERE key IN (
        SELECT key FROM claims WHERE key = ANY(?) AND owner = ? ORDER BY key FOR UPDATE
    )
"""
_DUE = f"SELECT q.{{id}} FROM {{table}} q WHERE {{due}} AND {_OWNER} = ? LIMIT ?"  # noqa: S608
_WHOSE = f"SELECT {_OWNER} FROM {{table}} q WHERE q.{{id}} = ?"  # noqa: S608
_KEPT = f"SELECT q.{{id}} FROM {{table}} q WHERE q.{{id}} = ANY(?) AND {_OWNER} = ?"  # noqa: S608
_TIDY = """
    DELETE FROM claims c
    WHERE c.owner = ? AND c.key NOT LIKE '%/%'
    AND NOT EXISTS (SELECT 1 FROM {table} q WHERE q.{key} = c.key AND {open})
"""
_LISTED = f"""
    SELECT w.name, w.until >= clock_timestamp(), extract(epoch FROM w.since)::float8 * 1000,
        greatest(extract(epoch FROM w.until), 0)::float8 * 1000,
        (SELECT count(*) FROM {{table}} q WHERE {{open}} AND {_OWNER} = w.name), w.about
    FROM workers w WHERE w.until > clock_timestamp() - interval '1 hour' ORDER BY w.name
"""  # noqa: S608 - the words are ours


class PgWorkers:
    """This process among those that share a ledger."""

    def __init__(self, server: PgServer, name: str, queue: Queue, *, lease: float = LEASE_SECONDS) -> None:
        self.name = name
        self._lease = lease
        self._table = queue.table
        self._sql = {
            text: places(text.format(**{part: getattr(queue, part) for part in queue.__struct_fields__}))
            for text in (_CLAIM, _TAKE_ONE, _DUE, _WHOSE, _KEPT, _TIDY, _LISTED)
        }
        self._epoch = 0
        self._certain_until = 0.0  # by the machine's own steady clock
        self._asking = _Line(server)
        self._beating = _Line(server)  # a long claim must not delay a beat
        self._set_clock: Callable[[int], None] = lambda now: None
        self._about = "{}"
        self._changing = threading.Lock()
        self._left: set[str] = set()  # released locks that the database still has
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    # Living

    def start(self, told: Callable[[Beat], None]) -> int:
        self._beating.ask(places(_NEW_LIFE), (self.name,))
        asked = monotonic()
        ((self._epoch,),) = self._beating.ask(places(_START), (self.name, self._lease, self._about, schema_number()))
        self._certain_until = asked + self._lease
        self._thread = threading.Thread(target=self._beat_on, args=(told,), name="forestay-beat", daemon=True)
        self._thread.start()
        return self._epoch

    def beat(self) -> Beat:
        """Renew this process's lease."""
        asked = monotonic()
        rows = self._beating.ask(places(_BEAT), (self.name, self._epoch, self._lease, self._about))
        if not rows:
            return "replaced"
        self._set_clock(rows[0][1])
        if not rows[0][0]:
            return "lapsed"
        self._certain_until = asked + self._lease
        return "alive"

    @property
    def is_certain(self) -> bool:
        return monotonic() < self._certain_until

    def describe(self, about: dict[str, Any]) -> None:
        self._about = msgspec.json.encode(about).decode()

    def keep_time(self, set: Callable[[int], None]) -> None:
        ((now,),) = self._beating.ask(f"SELECT {_NOW}")
        set(now)
        self._set_clock = set

    def leave(self) -> None:
        self._stop()
        try:
            for text in _LEAVE:
                names = (self.name,) * (text.count("?") - 1)
                self._asking.ask(places(text), (*names, self._epoch))
        finally:
            self.close()

    def close(self) -> None:
        self._stop()
        self._asking.close()
        self._beating.close()

    def _stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _beat_on(self, told: Callable[[Beat], None]) -> None:
        while not self._stopped.wait(self._lease / 3):
            try:
                beat = self.beat()
                self.let_go(())
            except Problem:
                continue  # the database is away; the lease's state is known when it is back
            if beat != "alive":
                told(beat)
            if beat == "replaced":
                return

    # Claims

    def claim(self, time: int, room: int) -> dict[str, int]:
        return dict(self._ask(_CLAIM, self._lease, self.name, time, room))

    def due(self, time: int, most: int) -> list[str]:
        return [id for (id,) in self._ask(_DUE, time, self.name, most)]

    def take(self, id: str) -> tuple[str, str | None]:
        taken = self._ask(_TAKE_ONE, self._lease, self.name, id, id)
        if not taken:
            return self.owner(id), None
        ((_, before),) = taken
        return self.name, None if before == self.name else before or ""

    def owner(self, id: str) -> str:
        found = self._ask(_WHOSE, id)
        return str(found[0][0] or "") if found else ""

    def kept(self, ids: Collection[str]) -> set[str]:
        return {id for (id,) in self._ask(_KEPT, list(ids), self.name)}

    def tidy(self) -> None:
        self._ask(_TIDY, self.name)

    # Locks

    def hold(self, keys: Collection[str]) -> set[str]:
        with self._changing:
            self._left.difference_update(keys)
            return {key for (key,) in self._asking.ask(places(_HOLD), (self._lease, self.name, list(keys)))}

    def let_go(self, keys: Collection[str]) -> None:
        with self._changing:
            self._left.update(keys)
            if self._left:
                self._asking.ask(places(_LET_GO), (list(self._left), self.name))
                self._left.clear()

    # The fleet

    def living(self) -> list[dict[str, Any]]:
        found = self._asking.ask("SELECT about FROM workers WHERE until >= clock_timestamp()")
        return [msgspec.json.decode(about) for (about,) in found]

    def listed(self) -> list[Worker]:
        if self._asking.ask("SELECT to_regclass(%s)", (self._table,)) == [(None,)]:
            return []  # no host has opened the ledger yet
        return [
            Worker(name, alive, round(since), round(until), carries, msgspec.json.decode(about))
            for name, alive, since, until, carries, about in self._ask(_LISTED)
        ]

    def _ask(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._asking.ask(self._sql[text], values)


class _Line:
    """A connection that is made again after it was lost."""

    def __init__(self, server: PgServer) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, text: str, values: Any = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            if self._closed:  # a late thread must not connect again
                raise Problem("state_conflict", "The ledger is closed.")
            for attempt in range(1, _ATTEMPTS + 1):
                known = self._connection is not None
                try:
                    if self._connection is None:
                        self._connection = self._server.connect()
                    cursor = self._connection.execute(text, row_of(values))
                    return cursor.fetchall() if cursor.description else []
                except psycopg.Error as error:
                    if is_lost(error):
                        self._drop()
                    again = (known and is_lost(error)) or is_in_the_way(error)
                    if attempt == _ATTEMPTS or not again:
                        raise as_problem(error) from error
        raise AssertionError("unreachable")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

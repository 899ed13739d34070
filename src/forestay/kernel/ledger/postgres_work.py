"""Work that many processes on one PostgreSQL share: each piece has one owner at a time.

- K1  A piece is claimed by one worker, and by another only when it was given back or its owner's lease ran out.
- K2  Time is the database's: a worker's own clock does not matter.
- K3  A wake-up is never lost: one that comes while a piece is worked on makes it due again when it is given back.
- K4  Claims are fair: tenants take turns, however much one of them has waiting.
- K5  A claim is no permission to write. A worker that was stopped and comes back still believes in it; what fences it
      is `expect` of its next append (L4).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import psycopg

from forestay.kernel.ledger.postgres_server import Connection, PgServer, as_problem, is_lost

_WAKE = """
    INSERT INTO work (key, tenant, due, generation)
    SELECT k, t, clock_timestamp() + s * interval '1 second', 0
    FROM unnest(%s::text[], %s::text[], %s::float8[]) n(k, t, s) ORDER BY k
    ON CONFLICT (key) DO UPDATE SET generation = work.generation + 1, due = least(work.due, excluded.due)
"""
# Tenants with something ready, one after the other by the index, and of each the pieces that waited longest.
_CLAIM = """
    WITH RECURSIVE tenants (tenant) AS (
        (SELECT tenant FROM work WHERE owner IS NULL AND due < 'infinity' AND tenant > %(after)s
         ORDER BY tenant LIMIT 1)
        UNION ALL
        SELECT (SELECT w.tenant FROM work w WHERE w.owner IS NULL AND w.due < 'infinity' AND w.tenant > t.tenant
                ORDER BY w.tenant LIMIT 1)
        FROM tenants t WHERE t.tenant IS NOT NULL
    ), ready AS (
        SELECT r.key FROM tenants t CROSS JOIN LATERAL (
            SELECT w.key FROM work w
            WHERE w.tenant = t.tenant AND w.owner IS NULL AND w.due < 'infinity' AND w.due <= clock_timestamp()
            ORDER BY w.due LIMIT %(each)s FOR UPDATE SKIP LOCKED
        ) r WHERE t.tenant IS NOT NULL LIMIT %(room)s
    )
    UPDATE work w SET owner = %(worker)s FROM ready
    WHERE w.key = ready.key
    AND EXISTS (SELECT 1 FROM workers x WHERE x.name = %(worker)s AND x.until >= clock_timestamp())
    RETURNING w.tenant, w.key, w.generation
"""
_GIVE_BACK = """
    UPDATE work w SET owner = NULL, due = CASE
        WHEN w.generation <> d.generation THEN clock_timestamp()
        WHEN d.seconds IS NULL THEN 'infinity' ELSE clock_timestamp() + d.seconds * interval '1 second' END
    FROM unnest(%s::text[], %s::bigint[], %s::float8[]) d(key, generation, seconds)
    WHERE w.key = d.key AND w.owner = %s
    RETURNING w.key
"""
_BEAT = """
    WITH before AS (SELECT until FROM workers WHERE name = %(worker)s), now AS (
        INSERT INTO workers (name, until) VALUES (%(worker)s, clock_timestamp() + %(lease)s * interval '1 second')
        ON CONFLICT (name) DO UPDATE SET until = excluded.until
    )
    SELECT coalesce((SELECT until >= clock_timestamp() FROM before), false)
"""
_FREE = """
    UPDATE work SET owner = NULL WHERE key IN (
        SELECT key FROM work
        WHERE owner IN (SELECT name FROM workers WHERE until < clock_timestamp()) FOR UPDATE SKIP LOCKED
    ) RETURNING key
"""
_OWNER = """
    SELECT w.owner FROM work w JOIN workers x ON x.name = w.owner
    WHERE w.key = %s AND x.until >= clock_timestamp()
"""


class Piece(msgspec.Struct, frozen=True):
    """Something to do that is this worker's now. `generation` tells which wake-ups it has seen."""

    key: str
    tenant: str
    generation: int


class PgWork:
    """One worker's view of the work. Every method may be called on any thread, and waits for the database."""

    def __init__(self, address: str, worker: str, *, lease: float = 2.4) -> None:
        server = PgServer(address, lock_timeout=5.0)
        server.create()
        self.worker = worker
        self._lease = lease
        self._after = ""  # the tenant whose turn was last
        self._asking = _Line(server)
        self._beating = _Line(server)  # a long claim must not hold a beat back

    def close(self) -> None:
        self._asking.close()
        self._beating.close()

    def beat(self) -> bool:
        """Say that this worker lives. False when its lease had run out: what it had may be another's by now."""
        ((alive,),) = self._beating.ask(_BEAT, {"worker": self.worker, "lease": self._lease})
        return bool(alive)

    def leave(self) -> int:
        """Hand over at once all that this worker has; the number of pieces."""
        self._asking.ask("UPDATE workers SET until = '-infinity' WHERE name = %s RETURNING name", (self.worker,))
        return len(self._asking.ask("UPDATE work SET owner = NULL WHERE owner = %s RETURNING key", (self.worker,)))

    def wake(self, pieces: Collection[tuple[str, str, float]]) -> None:
        """Have each key of a tenant worked on, that many seconds from now (K3)."""
        keys = [list(column) for column in zip(*pieces, strict=True)]
        if keys:
            self._asking.ask(_WAKE, keys)

    def claim(self, room: int, *, each: int = 4) -> list[Piece]:
        """Take at most `room` pieces that are due, `each` of a tenant before the next one has its turn (K1, K4)."""
        found = self._claim(self._after, room, each)
        if len(found) < room and self._after:
            found += self._claim("", room - len(found), each)
        self._after = found[-1].tenant if len(found) == room else ""
        return found

    def _claim(self, after: str, room: int, each: int) -> list[Piece]:
        values = {"after": after, "room": room, "each": each, "worker": self.worker}
        return [Piece(key, tenant, number) for tenant, key, number in sorted(self._asking.ask(_CLAIM, values))]

    def give_back(self, pieces: Sequence[tuple[Piece, float | None]]) -> set[str]:
        """Say that pieces are done, or due again in so many seconds; the keys that were still ours."""
        keys, generations = [piece.key for piece, _ in pieces], [piece.generation for piece, _ in pieces]
        values = (keys, generations, [seconds for _, seconds in pieces], self.worker)
        return {key for (key,) in self._asking.ask(_GIVE_BACK, values)}

    def free(self) -> list[str]:
        """Take from workers whose lease ran out what they had: it is ready for a claim."""
        return [key for (key,) in self._asking.ask(_FREE)]

    def owner(self, key: str) -> str | None:
        """The living worker that has a piece."""
        rows = self._asking.ask(_OWNER, (key,))
        return str(rows[0][0]) if rows else None


class _Line:
    """A connection that is made again when it was lost."""

    def __init__(self, server: PgServer) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def ask(self, text: str, values: Any = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            for fresh in (self._connection is None, True):
                try:
                    if self._connection is None:
                        self._connection = self._server.connect()
                    cursor = self._connection.execute(text, values)
                    return cursor.fetchall() if cursor.description else []
                except psycopg.Error as error:
                    if is_lost(error):
                        self._drop()
                    if fresh or not is_lost(error):
                        raise as_problem(error) from error
        raise AssertionError("unreachable")

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

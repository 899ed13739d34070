"""Processes that share one ledger, as PostgreSQL lets them, on one simulated SQLite file.

The file is written by all of them: a transaction is one step, so they never meet inside one. What PostgreSQL keeps
beside the log is kept here in memory: who lives, who claimed what (the rules are those of `postgres_workers`, K1 to
K6), and hints about what others wrote, which come late or not at all; a look each second finds what they would have
told.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import msgspec

from forestay.kernel import Problem, Record, Workers
from forestay.kernel.ledger.ledger import BACKENDS
from forestay.kernel.ledger.workers import Beat, Queue, Worker
from forestay.kernel.ledger.writer import Deliveries
from tests.kernel.ledger.simulated_disk import Disk, SimulatedLedger, SimulatedWriter
from tests.simulation.machine import WorldClock, this_process

LEASE_SECONDS = 2.4
_LOOK_SECONDS = 1.0


class Life(msgspec.Struct):
    """A process as the database knows it."""

    epoch: int
    since: float
    until: float
    about: dict[str, Any]


class Row(msgspec.Struct, frozen=True):
    """A row of the queue."""

    id: str
    key: str
    tenant: str
    owner: str


class Fleet:
    """What the database knows of the processes."""

    def __init__(self, clock: WorldClock, disk: Disk, chance: Random) -> None:
        self.clock = clock
        self.disk = disk
        self.chance = chance
        self.lives: dict[str, Life] = {}
        self.claims: dict[str, str] = {}
        self.ledgers: list[FleetLedger] = []

    def is_alive(self, name: str) -> bool:
        life = self.lives.get(name)
        return life is not None and life.until >= self.clock.elapsed

    def owner(self, row: Row) -> str:
        """K1."""
        claimed = self.claims.get(row.key, "")
        if self.is_alive(claimed):
            return claimed
        return row.owner if self.is_alive(row.owner) else ""

    def may_take(self, name: str, row: Row) -> bool:
        """K3: what is nobody's and one's own; of the dead only after a whole lease of one's own."""
        grown = self.lives[name].since <= self.clock.elapsed - LEASE_SECONDS
        claimed = self.claims.get(row.key, name)
        if claimed != name and (not grown or self.is_alive(claimed)):
            return False
        return row.owner in ("", name) or (grown and not self.is_alive(row.owner))

    def take(self, name: str, key: str) -> bool:
        claimed = self.claims.get(key, name)
        if claimed != name and self.is_alive(claimed):
            return False
        self.claims[key] = name
        return True

    def tell(self, writer: FleetLedger, records: list[Record]) -> None:
        """Hints to the others; some are lost."""
        streams = list(dict.fromkeys(record.stream for record in records))
        for ledger in self.ledgers:
            if ledger is not writer and self.chance.random() < 0.8:
                ledger.hear(streams, self.chance.random() ** 3 * 0.2)


class FleetWorkers(Workers):
    """One process's view of the others."""

    def __init__(self, fleet: Fleet, name: str, queue: Queue) -> None:
        self.name = name
        self._fleet = fleet
        self._queue = queue
        self._about: dict[str, Any] = {}
        self._epoch = 0
        self._stopped = False
        self._certain_until = 0.0
        self._told: Callable[[Beat], None] = lambda beat: None

    def start(self, told: Callable[[Beat], None]) -> int:
        fleet, now = self._asked(), self._fleet.clock.elapsed
        for key in [key for key, owner in fleet.claims.items() if owner == self.name and "/" in key]:
            del fleet.claims[key]
        before = fleet.lives.get(self.name)
        self._epoch = 1 if before is None else before.epoch + 1
        fleet.lives[self.name] = Life(self._epoch, now, now + LEASE_SECONDS, self._about)
        self._certain_until = now + LEASE_SECONDS
        self._told = told
        asyncio.get_running_loop().call_later(LEASE_SECONDS / 3, self._beat)
        return self._epoch

    def describe(self, about: dict[str, Any]) -> None:
        self._about = about

    def keep_time(self, set: Callable[[int], None]) -> None:
        set(self._fleet.clock.now_ms())

    def leave(self) -> None:
        self.close()
        fleet = self._asked()
        life = fleet.lives.get(self.name)
        if life is not None and life.epoch == self._epoch:
            life.until = float("-inf")
            for key in [key for key, owner in fleet.claims.items() if owner == self.name]:
                del fleet.claims[key]

    def close(self) -> None:
        self._stopped = True

    def _beat(self) -> None:
        if self._stopped:
            return
        asyncio.get_running_loop().call_later(LEASE_SECONDS / 3, self._beat)
        if self._fleet.disk.failing:
            return  # the database is away
        life, now = self._fleet.lives[self.name], self._fleet.clock.elapsed
        if life.epoch != self._epoch:
            self._stopped = True
            self._told("replaced")
            return
        lapsed = life.until < now
        life.until, life.about = now + LEASE_SECONDS, self._about
        if lapsed:
            life.since = now
            self._told("lapsed")
        else:
            self._certain_until = life.until

    @property
    def is_certain(self) -> bool:
        return self._fleet.clock.elapsed < self._certain_until

    # Carrying

    def claim(self, time: int, room: int) -> dict[str, int]:
        fleet = self._asked()
        if not fleet.is_alive(self.name):
            return {}
        waiting: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self._rows(self._queue.due, time):
            if fleet.claims.get(row.key) != self.name and fleet.may_take(self.name, row):
                waiting[row.key].append(row)
        turns: defaultdict[str, int] = defaultdict(int)
        order = []
        for key in sorted(waiting):
            tenant = min(row.tenant for row in waiting[key])
            turns[tenant] += 1
            order.append((turns[tenant], tenant, key))
        before = [
            max(row.owner for row in waiting[key]) for _, _, key in sorted(order)[:room] if fleet.take(self.name, key)
        ]
        return dict(Counter(name for name in before if name not in ("", self.name)))

    def due(self, time: int, most: int) -> list[str]:
        fleet = self._asked()
        return [row.id for row in self._rows(self._queue.due, time) if fleet.owner(row) == self.name][:most]

    def take(self, id: str) -> tuple[str, str | None]:
        fleet = self._asked()
        rows = self._rows(f"q.{self._queue.id} = ? AND {self._queue.open}", id)
        if not rows or not fleet.is_alive(self.name) or not fleet.may_take(self.name, rows[0]):
            return self.owner(id), None
        fleet.take(self.name, rows[0].key)
        return self.name, None if rows[0].owner == self.name else rows[0].owner

    def owner(self, id: str) -> str:
        rows = self._rows(f"q.{self._queue.id} = ?", id)
        return self._asked().owner(rows[0]) if rows else ""

    def kept(self, ids: Collection[str]) -> set[str]:
        return {id for id in ids if self.owner(id) == self.name}

    def tidy(self) -> None:
        claims = self._asked().claims
        for key in [key for key, owner in claims.items() if owner == self.name and "/" not in key]:
            if not self._rows(f"q.{self._queue.key} = ? AND {self._queue.open}", key):
                del claims[key]

    # Locks

    def hold(self, keys: Collection[str]) -> set[str]:
        fleet = self._asked()
        return {key for key in sorted(keys) if fleet.is_alive(self.name) and fleet.take(self.name, key)}

    def let_go(self, keys: Collection[str]) -> None:
        claims = self._asked().claims
        for key in keys:
            if claims.get(key) == self.name:
                del claims[key]

    # The fleet

    def living(self) -> list[dict[str, Any]]:
        fleet = self._asked()
        return [life.about for name, life in fleet.lives.items() if fleet.is_alive(name)]

    def listed(self) -> list[Worker]:
        return []  # for people

    def _asked(self) -> Fleet:
        if self._fleet.disk.failing:
            raise Problem("ledger_unreachable", "The database is away.")
        return self._fleet

    def _rows(self, condition: str, value: Any) -> list[Row]:
        self._asked()
        queue = self._queue
        sql = (
            f"SELECT q.{queue.id}, q.{queue.key}, q.{queue.tenant}, coalesce(q.{queue.owner}, '') "
            f"FROM {queue.table} q WHERE {condition} ORDER BY q.{queue.id}"
        )
        db = sqlite3.connect(self._fleet.disk.folder / "ledger.db")
        try:
            return [Row(*row) for row in db.execute(sql, (value,))]
        finally:
            db.close()


class FleetLedger(SimulatedLedger):
    """A ledger that other processes have open too."""

    fleet: Fleet  # of the simulation that runs

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        own = self._writer._announced

        def announced(records: list[Record]) -> Deliveries:
            self.fleet.tell(self, records)
            return own(records)

        self._writer._announced = announced  # type: ignore[method-assign]
        process = this_process()
        assert process is not None, "a ledger is opened by a process"
        self.process = process
        self._seen = self._last()
        self._loop = asyncio.get_running_loop()
        self.fleet.ledgers.append(self)
        self._loop.call_later(_LOOK_SECONDS, self._look)

    @property
    def shared(self) -> bool:
        return True

    def workers(self, name: str, queue: Queue) -> Workers | None:
        return FleetWorkers(self.fleet, name, queue)

    def hear(self, streams: list[str], later: float) -> None:
        """Somebody wrote to `streams`: our followers read them, some time later."""
        if self.process.alive and not self._closed:
            self.process.spawn(self._hearing(streams, later))

    async def _hearing(self, streams: list[str], later: float) -> None:
        await asyncio.sleep(later)
        if not self._closed:
            self._feeds.stale(streams)

    def close(self) -> None:
        if self in self.fleet.ledgers:
            self.fleet.ledgers.remove(self)
        super().close()

    def _look(self) -> None:
        if self._closed:
            return
        before, self._seen = self._seen, self._last()
        if self._seen > before:
            self._feeds.stale(None)
        self._loop.call_later(_LOOK_SECONDS, self._look)

    def _last(self) -> int:
        db = sqlite3.connect(self.fleet.disk.folder / "ledger.db")
        try:
            return int(db.execute("SELECT coalesce(max(pos), 0) FROM records").fetchone()[0])
        finally:
            db.close()


@contextmanager
def simulated_fleet(fleet: Fleet) -> Iterator[None]:
    """Hosts that are opened meanwhile share the ledger on `fleet.disk`."""
    real = BACKENDS["file"]
    BACKENDS["file"] = f"{__name__}:{FleetLedger.__name__}"
    FleetLedger.fleet, SimulatedWriter.disk = fleet, fleet.disk
    try:
        yield
    finally:
        BACKENDS["file"] = real

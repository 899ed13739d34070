"""Leases: one process owns a run, as long as its lease lasts (G1, G2).

`LogLeases` keeps the lease in the ledger, by this process's clock, which is enough if one process writes to it. On a
shared ledger, `SharedLeases` asks the database, by its clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, Protocol, TypeVar

from forestay.kernel import Beat, Clock, Draft, Ledger, Problem, Workers, outside_work
from forestay.runs.log import ENGINES

AHEAD_MS = 60_000
"""A run whose timer is due within this time is loaded: its timer is then in memory."""
NOBODY = ""
FLEET = "fleet"
"""The stream that records which processes joined, left, lapsed and took over."""
_MOST = 10_000  # runs in one poll
_TIDY_EVERY = 240  # polls
_AT_ONCE = 64  # runs that one poll claims, so that other processes get their share
T = TypeVar("T")


class Carrier(NamedTuple):
    """The owner of a run; `fresh` when this request made this process the owner."""

    name: str
    fresh: bool = False


class Leases(Protocol):
    """This process's lease, and the runs that it covers. With `shared`, other processes own runs too, and execute
    their commands."""

    shared: bool

    @property
    def is_certain(self) -> bool:
        """Whether this process certainly still owns its runs."""

    async def start(self) -> int:
        """Begin the lease; return the number of this incarnation."""

    async def hold(self, lapsed: Callable[[], Awaitable[None]]) -> None:
        """Renew the lease; return when another process has this one's name.

        `lapsed` is called when the lease had expired: other processes may own this one's runs by then.
        """

    async def leave(self) -> None:
        """Release this process's runs."""

    async def due(self, room: int) -> list[str]:
        """Return this process's runs that are due; claim up to `room` more."""

    async def carrier(self, run_id: str, *, take: bool) -> Carrier:
        """Return the owner of a run; with `take`, claim a run without an owner for this process."""

    async def kept(self, run_ids: Collection[str]) -> set[str]:
        """Return those of `run_ids` that this process still owns."""


class LogLeases:
    """A lease that is a stream of beats, for a ledger of one process."""

    shared = False
    is_certain = True  # another process takes a run with an append, after which our append fails

    def __init__(self, ledger: Ledger, clock: Clock, instance: str, lease_seconds: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._instance = instance
        self._lease_ms = round(lease_seconds * 1000)
        self._beat_s = lease_seconds / 3
        self._epoch = 0
        self._beat = -1

    async def start(self) -> int:
        self._beat = (await self._ledger.head(ENGINES + self._instance)).seq
        self._epoch = self._beat + 1
        await self._say("engine.started")
        return self._epoch

    async def hold(self, lapsed: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            try:
                await self._say("engine.beat")
            except Problem as problem:
                if problem.key == "ledger_conflict":
                    return  # a newer incarnation has our name (G1)

    async def leave(self) -> None:
        """Release nothing: a restart under the same name takes its runs back."""

    async def due(self, room: int) -> list[str]:
        now = self._clock.now_ms()
        rows = await self._ledger.query(
            "SELECT run_id FROM (SELECT run_id, instance FROM runs WHERE busy = 1 "
            "UNION SELECT run_id, instance FROM runs WHERE wake IS NOT NULL AND wake <= ?) AS r "
            "WHERE r.instance IS NULL OR r.instance = ? OR NOT EXISTS "
            "(SELECT 1 FROM engines e WHERE e.instance = r.instance AND e.until >= ?) LIMIT ?",
            (now + AHEAD_MS, self._instance, now, _MOST),
        )
        return [run_id for (run_id,) in rows]

    async def carrier(self, run_id: str, *, take: bool) -> Carrier:
        rows = await self._ledger.look_up(
            "SELECT r.instance FROM runs r JOIN engines e ON e.instance = r.instance "
            "WHERE r.run_id = ? AND e.until >= ?",
            (run_id, self._clock.now_ms()),
        )
        return Carrier(str(rows[0][0]) if rows else self._instance)

    async def kept(self, run_ids: Collection[str]) -> set[str]:
        return set(run_ids)

    async def _say(self, type: str) -> None:
        until = self._clock.now_ms() + self._lease_ms
        draft = Draft(type, {"epoch": self._epoch, "until": until})
        records = await self._ledger.append(ENGINES + self._instance, [draft], self._beat)
        self._beat = records[0].seq


class SharedLeases:
    """Leases of processes that share a ledger: the database knows which ones live."""

    shared = True

    def __init__(self, workers: Workers, clock: Clock, ledger: Ledger) -> None:
        self._workers = workers
        self._clock = clock
        self._ledger = ledger
        self._beats: asyncio.Queue[Beat] = asyncio.Queue()
        self._looks = 0

    @property
    def is_certain(self) -> bool:
        return self._workers.is_certain

    async def start(self) -> int:
        loop = asyncio.get_running_loop()

        def told(beat: Beat) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._beats.put_nowait, beat)

        epoch = await self._ask(lambda: self._workers.start(told))
        await self._say("worker.joined", epoch=epoch)
        return epoch

    async def hold(self, lapsed: Callable[[], Awaitable[None]]) -> None:
        while await self._beats.get() != "replaced":
            await self._say("worker.lapsed")
            await lapsed()

    async def leave(self) -> None:
        await self._say("worker.left")
        with contextlib.suppress(Problem):  # the database is away: then the lease expires
            await self._ask(self._workers.leave)

    async def due(self, room: int) -> list[str]:
        time = self._clock.now_ms() + AHEAD_MS
        self._looks += 1

        def look() -> tuple[dict[str, int], list[str]]:
            taken = self._workers.claim(time, min(room, _AT_ONCE)) if room > 0 else {}
            if self._looks % _TIDY_EVERY == 0:
                self._workers.tidy()
            return taken, self._workers.due(time, _MOST)

        taken, found = await self._ask(look)
        for before, count in taken.items():
            await self._say("worker.took_over", before=before, runs=count)
        return found

    async def carrier(self, run_id: str, *, take: bool) -> Carrier:
        if not take:
            return Carrier(await self._ask(lambda: self._workers.owner(run_id)))
        name, before = await self._ask(lambda: self._workers.take(run_id))
        if before:
            await self._say("worker.took_over", before=before, runs=1)
        return Carrier(name, before is not None)

    async def kept(self, run_ids: Collection[str]) -> set[str]:
        return await self._ask(lambda: self._workers.kept(run_ids))

    async def _say(self, type: str, **fields: object) -> None:
        """Record an event of the fleet for people; no code depends on it."""
        with contextlib.suppress(Problem):
            await self._ledger.append(FLEET, [Draft(type, {"name": self._workers.name, **fields})])

    async def _ask(self, work: Callable[[], T]) -> T:
        with outside_work(asyncio.get_running_loop()):
            return await asyncio.to_thread(work)

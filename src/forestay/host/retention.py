"""Seals and removes ended runs while a host serves, as its settings say.

- Y1  A run is due when it ended long enough ago and no run of its family is active. Its artifacts, its annotations and
      the relay sessions of its agents go with it. Its own stream goes last, so that the run stays due after a crash.
- Y2  A round takes a bounded number of runs. It works on the ledger's threads.
- Y3  When processes share the ledger, one at a time does a round.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from forestay.kernel import Clock, Ledger, Locks, Problem, RetentionSettings

_RUNS = 16  # per round
_EVERY_SECONDS = 600.0
_PAUSE_SECONDS = 0.05  # between two rounds: others need to write too
_DAY_MS = 24 * 3600 * 1000
_DUE = """
    SELECT r.run_id, r.tenant FROM runs r WHERE r.ended <= ?
    AND NOT EXISTS (SELECT 1 FROM runs k WHERE k.root = r.root AND k.ended IS NULL)
    AND EXISTS (SELECT 1 FROM streams s JOIN {0} t ON t.stream = s.id WHERE s.name = 'run/' || r.run_id{1})
    ORDER BY r.ended, r.run_id LIMIT ?
"""
_TO_SEAL = _DUE.format("records", "")
_TO_REMOVE = _DUE.format("archives", " AND t.removed IS NULL")
_SESSIONS = "SELECT id FROM relay_sessions WHERE app >= ? AND app < ?"
_log = logging.getLogger("forestay.retention")


class Swept(msgspec.Struct, frozen=True):
    """The result of one round: the records it sealed, the streams it removed, and whether more may be due."""

    sealed: int = 0
    removed: int = 0
    more: bool = False


class Retention:
    """Applies the retention `settings` to one host's ledger. `forget` drops removed runs from this process's memory."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        locks: Locks,
        settings: RetentionSettings,
        forget: Callable[[list[str]], None],
    ) -> None:
        self._ledger = ledger
        self._forget = forget
        self._clock = clock
        self._locks = locks
        self._settings = settings

    @property
    def is_asked_for(self) -> bool:
        """Whether the settings ask for anything that this ledger can do."""
        return self._settings != RetentionSettings() and not self._ledger.read_only

    async def sweep(self) -> Swept:
        """Do one round (Y2); do nothing while another process does one (Y3)."""
        async with self._locks.attempt("retention") as is_ours:
            if not is_ours:
                return Swept()
            sealed, more = await self._seal()
            removed, more_to_remove = await self._remove()
            return Swept(sealed, removed, more or more_to_remove)

    async def _seal(self) -> tuple[int, bool]:
        days = _soonest(self._settings.seal_after_days, self._settings.remove_after_days)
        if days is None:
            return 0, False
        due = await self._due(_TO_SEAL, days)
        return await self._seal_all(due), len(due) == _RUNS

    async def _seal_all(self, due: list[tuple[str, str]]) -> int:
        sealed = 0
        for streams in ([name for run in due for name in await self._belongings(*run)], [f"run/{id}" for id, _ in due]):
            while streams and (count := await self._ledger.seal(*streams)):
                sealed += count
        return sealed

    async def _remove(self) -> tuple[int, bool]:
        days = self._settings.remove_after_days
        if days is None:
            return 0, False
        due = await self._due(_TO_REMOVE, days)
        await self._seal_all(due)  # records that came since the run was sealed
        policy: dict[str, Any] = {"setting": "retention.remove_after_days", "days": days}
        streams = [name for run in due for name in await self._belongings(*run)]
        gone = await self._ledger.remove(*streams, policy=policy) if streams else []
        gone += await self._ledger.remove(*(f"run/{id}" for id, _ in due), policy=policy) if due else []
        self._forget([id for id, _ in due])
        return len(gone), len(due) == _RUNS

    async def _due(self, sql: str, days: float) -> list[tuple[str, str]]:
        rows = await self._ledger.query(sql, (self._clock.now_ms() - round(days * _DAY_MS), _RUNS))
        return [(run_id, tenant) for run_id, tenant in rows]

    async def _belongings(self, run_id: str, tenant: str) -> list[str]:
        """Return the streams that go with a run (Y1)."""
        artifacts = await self._ledger.streams(f"artifact/{run_id}/")
        app = f"{tenant}::{run_id}"
        sessions = await self._ledger.query(_SESSIONS, (f"{app}/", f"{app}0"))  # `0` sorts right after `/`
        return [f"annotations/{run_id}", *artifacts, *(f"relay/{id}" for (id,) in sessions)]


def _soonest(*days: float | None) -> float | None:
    return min((item for item in days if item is not None), default=None)


@asynccontextmanager
async def retaining(retention: Retention) -> AsyncIterator[None]:
    """Seal and remove what is due while the block runs."""
    if not retention.is_asked_for:
        yield
        return
    task = asyncio.create_task(_go_on(retention))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _go_on(retention: Retention) -> None:
    while True:
        try:
            while (swept := await retention.sweep()).more:
                _log.info("sealed %d records, removed %d streams", swept.sealed, swept.removed)
                await asyncio.sleep(_PAUSE_SECONDS)
        except Problem as problem:  # the host serves on when retention fails
            _log.error("retention failed and will be tried again: %s", problem.message)
        await asyncio.sleep(_EVERY_SECONDS)

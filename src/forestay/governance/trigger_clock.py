"""`TriggerClock`: offers the moments of schedule subscriptions to the queue as events (OpenWOP RFC 0083).

- V1  A moment is one event: its time is its id, so it starts one run, also after a crash and with several processes.
- V2  A moment before the subscription was made or resumed does not count (§G: a pause skips).
- V3  A moment that no process handled is dropped after `LATE_MS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from forestay.governance.trigger import Subscription
from forestay.governance.triggers import Triggers
from forestay.kernel import Clock, Ledger, Problem, iso
from forestay.runs import cron_between, cron_next

LATE_MS = 60_000
_MOST = 64  # moments of one subscription at a time
_IDLE_SECONDS = 60.0
_SHARED_SECONDS = 1.0
_log = logging.getLogger("forestay.triggers")


class TriggerClock:
    """The clock of one host's schedule subscriptions. `start` begins to tick, `close` stops."""

    def __init__(self, ledger: Ledger, triggers: Triggers, *, clock: Clock, shared: bool = False) -> None:
        self._ledger = ledger
        self._triggers = triggers
        self._clock = clock
        self._idle = _SHARED_SECONDS if shared else _IDLE_SECONDS
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        triggers.subscriptions.watch(self._changed.set)

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            try:
                wait = await self.tick()
            except Problem as problem:  # the disk failed: the moments of the last minute are tried again
                _log.error("schedules wait: %s", problem.message)
                wait = self._idle
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def tick(self) -> float:
        """Offer every due moment; return the seconds until the next one."""
        rows = await self._ledger.query(
            "SELECT doc FROM trigger_subscriptions WHERE source = 'schedule' AND state = 'active'"
        )
        wait = self._idle
        for (doc,) in rows:
            found = msgspec.json.decode(doc, type=Subscription)
            try:
                wait = min(wait, await self._offer(found))
            except Problem as problem:
                if problem.row.http >= 500:
                    raise
                _log.warning("schedule %s waits: %s", found.subscription_id, problem.message)
        return wait

    async def _offer(self, found: Subscription) -> float:
        now, how = self._clock.now_ms(), found.settings
        after = max(found.since_ms, now - LATE_MS)
        for moment in cron_between(how.cron, how.timezone, after, now, _MOST):
            at = iso(moment)
            await self._triggers.offer(found.tenant, found.subscription_id, at, {**how.inputs, "scheduledFor": at})
        return max(0.0, (cron_next(how.cron, how.timezone, now) - now) / 1000)

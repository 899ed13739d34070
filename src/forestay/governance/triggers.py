"""`Triggers`: inbound events that start runs; an event may arrive repeatedly, but starts one run (OpenWOP RFC 0083).

Invariants:

- Q1  An accepted event is on disk: it ends as a run or as a dead letter, also after a crash.
- Q2  Within the retention, an event with the same key is the same delivery: it starts one run.
- Q3  The run's `run.started` names, as its cause, the `trigger.delivery.attempted` that started it.
- Q4  After `maxAttempts` failed attempts a delivery is a dead letter; a redrive gives it new attempts.
- Q5  Records about deliveries contain only the run's inputs; the contract's events have no content.
- Q6  An inactive subscription delays no other, however long its queue is.
- Q7  Of several processes, one at a time delivers the queue of a subscription.

The queue is a table of the ledger. HTTP and Python producers call `offer`, the only way to add to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from forestay.governance.staff import Staff
from forestay.governance.subscriptions import Subscriptions, moved
from forestay.governance.trigger import Subscription, TriggerRetry, dedup_key, delay_ms
from forestay.governance.trigger_table import PREFIX
from forestay.kernel import Clock, Draft, Ids, Ledger, Locks, Problem, iso
from forestay.runs import CreateRun, Fact, Runs

RETENTION_MS = 24 * 3600 * 1000
_BATCH = 100
_IDLE_SECONDS = 60.0
_SHARED_SECONDS = 1.0  # how often a process looks for events that others accepted
_SHOWN = "delivery_id, subscription_id, dedup_key, state, attempts, received_ms, run_id, error"
_DUE = """
    SELECT d.delivery_id, d.subscription_id, d.dedup_key, d.attempts, d.seq, d.due_ms
    FROM trigger_deliveries AS d JOIN trigger_subscriptions AS s ON s.subscription_id = d.subscription_id
    WHERE d.state = 'due' AND s.state = 'active' ORDER BY d.due_ms, d.delivery_id LIMIT ?
"""
# The contract's name of each source's transport; it has none for a clock and a mailbox.
_TRANSPORTS: dict[str, Literal["rest", "ui"]] = {"queue": "rest", "webhook": "rest", "form": "ui"}
_log = logging.getLogger("forestay.triggers")


class TriggerDelivery(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of an inbound event: due, delivered or dead."""

    delivery_id: str
    subscription_id: str
    dedup_key: str
    state: str
    attempts: int
    received_at: str
    run_id: str | None = None
    error: str | None = None


class _Due(msgspec.Struct, frozen=True):
    """A due delivery."""

    delivery_id: str
    subscription_id: str
    key: str
    attempts: int
    seq: int
    due_ms: int


class _Attempt(msgspec.Struct, frozen=True):
    """One attempt to start the run of a delivery."""

    delivery_id: str
    key: str
    number: int
    inputs: dict[str, Any]


class Triggers:
    """The subscriptions and the queue of one ledger. `start` begins to deliver, `close` stops."""

    def __init__(
        self,
        ledger: Ledger,
        runs: Runs,
        staff: Staff,
        *,
        clock: Clock,
        ids: Ids,
        secret: bytes,
        locks: Locks | None = None,
        mailboxes: Mapping[str, str] | None = None,
    ) -> None:
        self._ledger = ledger
        self._locks = locks or Locks()
        self._idle = _SHARED_SECONDS if self._locks.shared else _IDLE_SECONDS
        self._runs = runs
        self._staff = staff
        self._clock = clock
        self._ids = ids
        self._secret = secret
        self._woken = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self.subscriptions = Subscriptions(
            ledger, runs, staff, clock=clock, ids=ids, secret=secret, mailboxes=mailboxes or {}
        )
        self.subscriptions.watch(self._woken.set)
        self._turn = self.subscriptions.turn
        self._delivering = asyncio.Lock()

    async def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker

    def capability(self) -> dict[str, Any]:
        """Return the capability for discovery, with the possible states and the accepted sources."""
        failing = ["failed"] if self.subscriptions.reads_mail else []
        return {
            "supported": True,
            "subscriptionStates": ["active", "paused", *failing, "dead-lettered"],
            "dedup": True,
            "retryPolicy": msgspec.to_builtins(TriggerRetry()),
            "sources": list(self.subscriptions.driven),
        }

    # Deliveries

    async def offer(self, tenant: str, subscription_id: str, event_id: str, inputs: dict[str, Any]) -> TriggerDelivery:
        """Accept an inbound event; it is on disk when this returns. A repeated event returns its first delivery."""
        async with self._turn:
            while True:
                head = await self._ledger.head(PREFIX + subscription_id)
                found = await self.subscriptions.get(tenant, subscription_id)
                key = dedup_key(self._secret, subscription_id, event_id)
                if found.once and (known := await self._known(subscription_id, key)) is not None:
                    return known
                if found.state != "active":
                    raise Problem("state_conflict", f"The subscription is {found.state}.", state=found.state)
                delivery_id = self._ids.new("dlv")
                if await self._receive(found, delivery_id, key, inputs, head.seq):
                    break
        self._woken.set()
        return await self.delivery(tenant, delivery_id)

    async def _receive(
        self, found: Subscription, delivery_id: str, key: str, inputs: dict[str, Any], expect: int
    ) -> bool:
        """Record an event; return False when another process wrote first, perhaps the same event (Q2)."""
        said = {
            "deliveryId": delivery_id,
            "subscriptionId": found.subscription_id,
            "tenant": found.tenant,
            "dedupKey": key,
            "inputs": inputs,
        }
        try:
            await self._ledger.append(PREFIX + found.subscription_id, [Draft("trigger.received", said)], expect)
        except Problem as problem:
            if problem.key != "ledger_conflict":
                raise
            return False
        return True

    async def _known(self, subscription_id: str, key: str) -> TriggerDelivery | None:
        rows = await self._ledger.look_up(
            f"SELECT {_SHOWN} FROM trigger_deliveries "  # noqa: S608 - the columns are ours
            "WHERE subscription_id = ? AND dedup_key = ? AND received_ms > ? ORDER BY received_ms DESC LIMIT 1",
            (subscription_id, key, self._clock.now_ms() - RETENTION_MS),
        )
        return _shown(*rows[0]) if rows else None

    async def delivery(self, tenant: str, delivery_id: str) -> TriggerDelivery:
        rows = await self._ledger.look_up(
            f"SELECT {_SHOWN} FROM trigger_deliveries WHERE delivery_id = ? AND tenant = ?",  # noqa: S608 - ours
            (delivery_id, tenant),
        )
        if not rows:
            raise Problem("not_found", "There is no such delivery.", deliveryId=delivery_id[:128])
        return _shown(*rows[0])

    async def deliveries(self, tenant: str, state: str | None = None, limit: int = 100) -> list[TriggerDelivery]:
        """Return the newest deliveries; the state `dead` selects the dead letters."""
        rows = await self._ledger.query(
            f"SELECT {_SHOWN} FROM trigger_deliveries "  # noqa: S608 - the columns are ours
            f"WHERE tenant = ?{' AND state = ?' if state else ''} ORDER BY received_ms DESC, delivery_id DESC LIMIT ?",
            (tenant, *((state,) if state else ()), limit),
        )
        return [_shown(*row) for row in rows]

    async def redrive(self, tenant: str, delivery_id: str) -> TriggerDelivery:
        """Retry a dead letter with new attempts; its subscription is active again (Q4)."""
        async with self._turn:
            dead = await self.delivery(tenant, delivery_id)
            if dead.state != "dead":
                raise Problem("state_conflict", "Only a dead letter can be retried.", state=dead.state)
            found = await self.subscriptions.get(tenant, dead.subscription_id)
            said = {"deliveryId": delivery_id, "state": "due", "attempt": 0, "dueAt": self._clock.now_ms()}
            more = moved(found, "active", None) if found.state == "dead-lettered" else []
            await self._ledger.append(PREFIX + found.subscription_id, [Draft("trigger.redriven", said), *more])
        self._woken.set()
        return await self.delivery(tenant, delivery_id)

    # Delivering

    async def _work(self) -> None:
        while True:
            self._woken.clear()
            try:
                wait = await self.deliver_due()
            except Problem as problem:  # the disk failed: the queue stays as it is
                _log.error("deliveries wait: %s", problem.message)
                wait = self._idle
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()

    async def deliver_due(self) -> float:
        """Deliver all due events; return the seconds until the next one."""
        async with self._delivering:
            while True:
                now = self._clock.now_ms()
                rows = await self._ledger.query(_DUE, (_BATCH,))  # Q6
                first: int = rows[0][-1] if rows else now + round(self._idle * 1000)
                if first > now:
                    return min(self._idle, (first - now) / 1000)
                done = [await self._deliver(_Due(*row)) for row in rows if row[-1] <= now]
                if not any(done):
                    return self._idle  # other processes deliver the due events

    async def _deliver(self, due: _Due) -> bool:
        """Try to deliver a due event; return False when another process does so (Q7)."""
        async with self._locks.attempt(f"trigger/{due.subscription_id}") as is_ours:
            if not is_ours:
                return False
            if self._locks.shared and not await self._is_due(due):
                return True
            found = await self.subscriptions.find(due.subscription_id)
            if found is not None and found.state == "active":
                (received,) = await self._ledger.read(PREFIX + due.subscription_id, due.seq, 1)
                await self._attempt(
                    found, _Attempt(due.delivery_id, due.key, due.attempts + 1, received.payload["inputs"])
                )
            return True

    async def _is_due(self, due: _Due) -> bool:
        """Whether no process has tried it since the query."""
        rows = await self._ledger.look_up(
            "SELECT state, attempts FROM trigger_deliveries WHERE delivery_id = ?", (due.delivery_id,)
        )
        return rows == [("due", due.attempts)]

    async def _attempt(self, found: Subscription, attempt: _Attempt) -> None:
        said = await self._tried(found, attempt)
        async with self._turn:
            now = await self.subscriptions.find(found.subscription_id)  # it may have been paused or removed meanwhile
            if now is None and said["state"] == "due":
                said |= {"outcome": "dead-lettered", "state": "dead"}
            told = [Draft("trigger.delivery.attempted", said)]
            if now is not None and now.state == "active" and said["state"] == "dead":
                told += moved(now, "dead-lettered", "retry-exhausted")
            await self._ledger.append(PREFIX + found.subscription_id, told)

    async def _tried(self, found: Subscription, attempt: _Attempt) -> dict[str, Any]:
        """Try to start the run; return the payload of the attempt's record."""
        now = self._clock.now_ms()
        told = {"subscriptionId": found.subscription_id, "dedupKey": attempt.key, "attempt": attempt.number}
        said: dict[str, Any] = {**told, "deliveryId": attempt.delivery_id, "dueAt": now}
        try:
            run_id = await self._start(found, attempt, {**told, "outcome": "delivered"})
        except Problem as problem:
            wait = delay_ms(found.retry_policy, attempt.number)
            if wait is None:
                return {**said, "outcome": "dead-lettered", "state": "dead", "error": problem.key}
            return {**said, "outcome": "retrying", "state": "due", "dueAt": now + wait, "error": problem.key}
        return {**said, "outcome": "delivered", "state": "delivered", "runId": run_id}

    async def _start(self, found: Subscription, attempt: _Attempt, told: dict[str, Any]) -> str:
        """Start the run of a delivery; its id derives from the delivery's, so that it starts once (Q2, Q3)."""
        run_id = "run_" + _digest(attempt.delivery_id)
        event_id = "evt_" + _digest(f"{attempt.delivery_id}\0attempted")
        fact = Fact("trigger.delivery.attempted", {**told, "runId": run_id}, id=event_id)
        try:
            if found.roster_id is not None:
                await self._staff.fire(
                    found.tenant,
                    found.roster_id,
                    found.workflow_id,
                    found.source,
                    inputs=attempt.inputs,
                    subscription_id=found.subscription_id,
                    run_id=run_id,
                    causation_id=event_id,
                    facts=[fact],
                )
            else:
                request = CreateRun(workflow_id=found.workflow_id, inputs=attempt.inputs)
                came_by = _TRANSPORTS.get(found.source)
                await self._runs.create_run(
                    request, found.tenant, run_id=run_id, causation_id=event_id, facts=[fact], transport=came_by
                )
        except Problem as problem:
            if problem.key != "run_already_active":  # an earlier process started it and crashed before it recorded that
                raise
        return run_id


def _shown(
    delivery_id: str,
    subscription_id: str,
    key: str,
    state: str,
    attempts: int,
    received_ms: int,
    run_id: str | None,
    error: str | None,
) -> TriggerDelivery:
    return TriggerDelivery(delivery_id, subscription_id, key, state, attempts, iso(received_ms), run_id, error)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:26]

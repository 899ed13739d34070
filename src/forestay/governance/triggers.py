"""`Triggers`: inbound work that starts runs, at least once received and once started (OpenWOP RFC 0083).

Invariants:

- Q1  An event that was accepted is on disk: it ends as a run or as a dead letter, whatever dies on the way.
- Q2  Within the retention, an event with the same key is the same delivery: it starts one run.
- Q3  The run's `run.started` names, as its cause, the `trigger.delivery.attempted` that started it.
- Q4  Delivery fails `maxAttempts` times, then it is a dead letter; a redrive gives it a new set of attempts.
- Q5  Records about deliveries hold no content but what the run is given; the contract's events hold none.

The queue is a table of the ledger. HTTP and Python producers call `offer`; nobody else writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from forestay.governance.staff import Staff
from forestay.governance.trigger import (
    Reason,
    Source,
    Subscription,
    SubscriptionState,
    TriggerRetry,
    dedup_key,
    delay_ms,
    move,
)
from forestay.kernel import Clock, Draft, Ids, Ledger, Problem, Record, Transaction
from forestay.runs import CreateRun, Fact, Runs

PREFIX = "trigger/"
RETENTION_MS = 24 * 3600 * 1000
_BATCH = 100
_IDLE_SECONDS = 60.0
_log = logging.getLogger("forestay.triggers")


class TriggerTable:
    """Subscriptions, and the queue of their deliveries."""

    name = "triggers"
    version = 1
    prefix = PREFIX
    schema = """
        CREATE TABLE trigger_subscriptions (
            subscription_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, doc TEXT NOT NULL
        );
        CREATE TABLE trigger_deliveries (
            delivery_id TEXT PRIMARY KEY, subscription_id TEXT NOT NULL, tenant TEXT NOT NULL, dedup_key TEXT NOT NULL,
            state TEXT NOT NULL, attempts BIGINT NOT NULL, due_ms BIGINT NOT NULL, received_ms BIGINT NOT NULL,
            seq BIGINT NOT NULL, run_id TEXT
        );
        CREATE INDEX trigger_due ON trigger_deliveries (state, due_ms);
        CREATE INDEX trigger_keys ON trigger_deliveries (subscription_id, dedup_key, received_ms)
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            self._take(tx, record)

    def _take(self, tx: Transaction, record: Record) -> None:
        said = record.payload
        if record.type == "trigger.subscription":
            doc = msgspec.json.encode(said["subscription"]).decode()
            tx.execute(
                "INSERT INTO trigger_subscriptions VALUES (?, ?, ?) "
                "ON CONFLICT (subscription_id) DO UPDATE SET doc = excluded.doc",
                (said["subscription"]["subscriptionId"], said["subscription"]["tenant"], doc),
            )
        elif record.type == "trigger.received":
            row = (said["deliveryId"], said["subscriptionId"], said["tenant"], said["dedupKey"])
            tx.execute(
                "INSERT INTO trigger_deliveries VALUES (?, ?, ?, ?, 'due', 0, ?, ?, ?, NULL)",
                (*row, record.ts, record.ts, record.seq),
            )
        elif record.type in ("trigger.delivery.attempted", "trigger.redriven"):
            tx.execute(
                "UPDATE trigger_deliveries SET state = ?, attempts = ?, due_ms = ?, run_id = ? WHERE delivery_id = ?",
                (said["state"], said["attempt"], said["dueAt"], said.get("runId"), said["deliveryId"]),
            )


class Delivery(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where an inbound event stands."""

    delivery_id: str
    subscription_id: str
    dedup_key: str
    state: str
    attempts: int
    run_id: str | None = None


class Triggers:
    """The subscriptions and the queue of one ledger. `start` begins to deliver, `close` stops."""

    def __init__(self, ledger: Ledger, runs: Runs, staff: Staff, *, clock: Clock, ids: Ids, secret: bytes) -> None:
        self._ledger = ledger
        self._runs = runs
        self._staff = staff
        self._clock = clock
        self._ids = ids
        self._secret = secret
        self._woken = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker

    # Subscriptions

    async def subscribe(
        self,
        tenant: str,
        source: Source,
        workflow_id: str,
        *,
        retry: TriggerRetry | None = None,
        dedup: bool = True,
        roster_id: str | None = None,
    ) -> Subscription:
        """Bind a source to a workflow that the tenant can run, or to one of a roster member's portfolio."""
        await self._runs.get_workflow(workflow_id, tenant)
        made = Subscription(
            self._ids.new("sub"), source, tenant, workflow_id, "active", dedup, retry or TriggerRetry(), roster_id
        )
        if roster_id is not None and workflow_id not in (await self._staff.get(tenant, roster_id)).workflows:
            raise Problem("schema_mismatch", "The workflow is not in the member's portfolio.", at="$.workflowId")
        await self._keep(made)
        return made

    async def get(self, tenant: str, subscription_id: str) -> Subscription:
        rows = await self._ledger.look_up(
            "SELECT doc FROM trigger_subscriptions WHERE subscription_id = ? AND tenant = ?", (subscription_id, tenant)
        )
        if not rows:
            raise Problem("not_found", "There is no such subscription.", subscriptionId=subscription_id[:128])
        return msgspec.json.decode(rows[0][0], type=Subscription)

    async def listed(self, tenant: str) -> list[Subscription]:
        rows = await self._ledger.query(
            "SELECT doc FROM trigger_subscriptions WHERE tenant = ? ORDER BY subscription_id", (tenant,)
        )
        return [msgspec.json.decode(doc, type=Subscription) for (doc,) in rows]

    async def pause(self, tenant: str, subscription_id: str) -> Subscription:
        return await self._move(await self.get(tenant, subscription_id), "paused", "operator-paused")

    async def resume(self, tenant: str, subscription_id: str) -> Subscription:
        return await self._move(await self.get(tenant, subscription_id), "active", None)

    async def _move(self, found: Subscription, to: SubscriptionState, reason: Reason | None) -> Subscription:
        made = move(found, to)
        told: dict[str, str] = {
            "subscriptionId": found.subscription_id,
            "source": found.source,
            "fromState": found.state,
            "toState": to,
        }
        await self._keep(
            made, Draft("trigger.subscription.state.changed", told | ({"reason": reason} if reason else {}))
        )
        self._woken.set()
        return made

    async def _keep(self, made: Subscription, *told: Draft) -> None:
        kept = Draft("trigger.subscription", {"subscription": msgspec.to_builtins(made)})
        await self._ledger.append(PREFIX + made.subscription_id, [*told, kept])

    # Deliveries

    async def offer(self, tenant: str, subscription_id: str, event_id: str, inputs: dict[str, Any]) -> Delivery:
        """Accept an inbound event: it is on disk when this returns. One that was accepted before is that delivery."""
        async with self._turn:
            found = await self.get(tenant, subscription_id)
            key = dedup_key(self._secret, subscription_id, event_id)
            if found.dedup_enabled and (known := await self._known(subscription_id, key)) is not None:
                return known
            if found.state != "active":
                raise Problem("state_conflict", f"The subscription is {found.state}.", state=found.state)
            delivery_id = self._ids.new("dlv")
            said = {
                "deliveryId": delivery_id,
                "subscriptionId": subscription_id,
                "tenant": tenant,
                "dedupKey": key,
                "inputs": inputs,
            }
            await self._ledger.append(PREFIX + subscription_id, [Draft("trigger.received", said)])
        self._woken.set()
        return Delivery(delivery_id, subscription_id, key, "due", 0)

    async def _known(self, subscription_id: str, key: str) -> Delivery | None:
        rows = await self._ledger.look_up(
            f"SELECT {_SHOWN} FROM trigger_deliveries "  # noqa: S608 - the columns are ours
            "WHERE subscription_id = ? AND dedup_key = ? AND received_ms > ? ORDER BY received_ms DESC LIMIT 1",
            (subscription_id, key, self._clock.now_ms() - RETENTION_MS),
        )
        return Delivery(*rows[0]) if rows else None

    async def deliveries(self, tenant: str, state: str | None = None, limit: int = 100) -> list[Delivery]:
        """The newest deliveries; `dead` are the dead letters."""
        rows = await self._ledger.query(
            f"SELECT {_SHOWN} FROM trigger_deliveries "  # noqa: S608 - the columns are ours
            f"WHERE tenant = ?{' AND state = ?' if state else ''} ORDER BY received_ms DESC, delivery_id DESC LIMIT ?",
            (tenant, *((state,) if state else ()), limit),
        )
        return [Delivery(*row) for row in rows]

    async def redrive(self, tenant: str, delivery_id: str) -> None:
        """Try a dead letter again from its first attempt; its subscription is active again (Q4)."""
        rows = await self._ledger.look_up(
            "SELECT subscription_id, state FROM trigger_deliveries WHERE delivery_id = ? AND tenant = ?",
            (delivery_id, tenant),
        )
        if not rows:
            raise Problem("not_found", "There is no such delivery.", deliveryId=delivery_id[:128])
        if rows[0][1] != "dead":
            raise Problem("state_conflict", "Only a dead letter is driven again.", state=rows[0][1])
        found = await self.get(tenant, rows[0][0])
        said = {"deliveryId": delivery_id, "state": "due", "attempt": 0, "dueAt": self._clock.now_ms()}
        await self._ledger.append(PREFIX + found.subscription_id, [Draft("trigger.redriven", said)])
        if found.state == "dead-lettered":
            await self._move(found, "active", None)
        self._woken.set()

    # Delivering

    async def _work(self) -> None:
        while True:
            self._woken.clear()
            try:
                wait = await self.deliver_due()
            except Problem as problem:  # the disk's trouble: the queue stays as it is
                _log.error("deliveries wait: %s", problem.message)
                wait = _IDLE_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()

    async def deliver_due(self) -> float:
        """Deliver all that is due; the seconds until the next one is."""
        while True:
            now = self._clock.now_ms()
            rows = await self._ledger.query(
                "SELECT delivery_id, subscription_id, tenant, dedup_key, attempts, seq, due_ms FROM trigger_deliveries "
                "WHERE state = 'due' ORDER BY due_ms, delivery_id LIMIT ?",
                (_BATCH,),
            )
            moved = False
            for delivery_id, subscription_id, tenant, key, attempts, seq, due in rows:
                if due > now:
                    break
                found = await self.get(tenant, subscription_id)
                if found.state == "active":
                    moved = True
                    await self._attempt(found, delivery_id, key, attempts + 1, seq)
            if not moved:
                later = [due for *_, due in rows if due > now]
                return min(_IDLE_SECONDS, (later[0] - now) / 1000) if later else _IDLE_SECONDS

    async def _attempt(self, found: Subscription, delivery_id: str, key: str, attempt: int, seq: int) -> None:
        (received,) = await self._ledger.read(PREFIX + found.subscription_id, seq, 1)
        now = self._clock.now_ms()
        said: dict[str, Any] = {"deliveryId": delivery_id, "attempt": attempt, "dueAt": now}
        told = {"subscriptionId": found.subscription_id, "dedupKey": key, "attempt": attempt}
        try:
            run_id = await self._start(found, delivery_id, received.payload["inputs"], {**told, "outcome": "delivered"})
        except Problem as problem:
            wait = delay_ms(found.retry_policy, attempt)
            said |= {"error": problem.key}
            if wait is None:
                said |= {**told, "outcome": "dead-lettered", "state": "dead"}
            else:
                said |= {**told, "outcome": "retrying", "state": "due", "dueAt": now + wait}
        else:
            said |= {**told, "outcome": "delivered", "state": "delivered", "runId": run_id}
        await self._ledger.append(PREFIX + found.subscription_id, [Draft("trigger.delivery.attempted", said)])
        if said["state"] == "dead":
            await self._move(found, "dead-lettered", "retry-exhausted")

    async def _start(self, found: Subscription, delivery_id: str, inputs: dict[str, Any], told: dict[str, Any]) -> str:
        """Start the run of a delivery; its id is the delivery's, so that it starts once (Q2, Q3)."""
        run_id = "run_" + _digest(delivery_id)
        event_id = "evt_" + _digest(f"{delivery_id}\0attempted")
        fact = Fact("trigger.delivery.attempted", {**told, "runId": run_id}, id=event_id)
        try:
            if found.roster_id is not None:
                await self._staff.fire(
                    found.tenant,
                    found.roster_id,
                    found.workflow_id,
                    found.source,
                    inputs=inputs,
                    subscription_id=found.subscription_id,
                    run_id=run_id,
                    causation_id=event_id,
                    facts=[fact],
                )
            else:
                request = CreateRun(workflow_id=found.workflow_id, inputs=inputs)
                await self._runs.create_run(
                    request, found.tenant, run_id=run_id, causation_id=event_id, facts=[fact], transport=found.source
                )
        except Problem as problem:
            if problem.key != "run_already_active":  # else an earlier life started it and did not say so
                raise
        return run_id


_SHOWN = "delivery_id, subscription_id, dedup_key, state, attempts, run_id"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:26]

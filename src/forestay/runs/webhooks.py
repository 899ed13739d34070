"""Webhooks: deliver signed events to subscribed receivers, at least once, with retries.

Invariants:

- B1  An event that is on disk is delivered to every subscription of its tenant that wants it, also after a crash.
- B2  A delivery is signed over `{timestamp}.{body}` with a secret that only the receiver and this host can know; the
      secret is derived and never on disk.
- B3  A failed delivery is retried with growing pauses; after the last attempt it is a dead letter, which can be listed
      and retried.
- B4  A slow or dead receiver delays no other receiver, and never the engine.
- B5  An event carries only the tokens of the interrupt that it announces (W7).
- B6  A receiver that fails five times in a row gets nothing for a while, and then one trial request; its deliveries
      wait meanwhile and lose no attempt.
- B7  Of several processes, one at a time sends to a receiver: a delivery is sent once, unless that process dies or
      stalls while sending.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal, Protocol

import msgspec

from forestay.kernel import Append, Clock, Draft, Ids, Ledger, Locks, Problem, Randomness, iso, read_traceparent
from forestay.runs.breaker import Breaker
from forestay.runs.log import CALLBACK_EVENTS
from forestay.runs.ports import Caller, HttpRequest, HttpSender
from forestay.runs.types import Interrupt, RunEvent, Wire

SIGNATURE_ALGORITHM = "v1"
ROTATION_GRACE_MS = 24 * 3600 * 1000
MAX_PER_TENANT = 200
_ATTEMPT_MS = 5_000
_CONCURRENT = 32
_CONCURRENT_EACH = 4
_AGAIN_SECONDS = 1.0  # the pause after a failed read
_RECHECK_SECONDS = 60.0  # somebody may set the machine's clock meanwhile
_SHARED_SECONDS = 1.0  # how often a process looks for deliveries of other processes
# The oldest few of each receiver: a long queue of one receiver does not delay the others (B4).
_DUE = """
    SELECT delivery_id, webhook_id, tenant, run_id, sequence, type, url, attempts FROM (
        SELECT *, row_number() OVER (PARTITION BY webhook_id, url ORDER BY due_ms, run_id, sequence) AS place
        FROM webhook_outbox WHERE state = 'due' AND due_ms <= ?
    ) AS due WHERE place <= ? ORDER BY due_ms, run_id, sequence
"""
EVENT_TYPE = r"^[a-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+$"
_TYPE = re.compile(EVENT_TYPE)
_GONE = frozenset({"not_found", "subscription_not_found"})
_log = logging.getLogger("forestay.webhooks")


class RetryPolicy(msgspec.Struct, frozen=True):
    """Pauses that begin with `first_ms` and double up to `most_ms`, each with up to a quarter of random extra time."""

    max_attempts: int = 8
    first_ms: int = 2_000
    most_ms: int = 3_600_000

    def pause_ms(self, attempt: int, randomness: Randomness) -> int | None:
        """Return the pause after failed attempt number `attempt` (from 1); None after the last one."""
        if attempt >= self.max_attempts:
            return None
        pause = min(self.first_ms << (attempt - 1), self.most_ms)
        return pause + int(pause * 0.25 * randomness.uniform())


class Webhook(Wire, frozen=True):
    """A subscription as its owner sees it."""

    webhook_id: str
    url: str
    events: list[str]
    tenant_id: str
    created_at: str
    secret_fingerprint: str
    tags: list[str] = msgspec.field(default_factory=list)
    secret_version: int = 1
    rotated_at: str | None = None
    state: Literal["active", "failing"] = "active"
    next_attempt_at: str | None = None


class Registered(Wire, frozen=True):
    """The answer to a registration; the secret is shown only here."""

    webhook_id: str
    secret: str
    secret_fingerprint: str
    signature_algorithm: str


class Delivery(Wire, frozen=True):
    """A pending or dead delivery."""

    delivery_id: str
    run_id: str
    sequence: int
    type: str
    state: str
    attempts: int
    due_at: str
    error: str | None = None


class Source(Protocol):
    """The methods of runs that webhooks need."""

    async def events(
        self, run_id: str, tenant: str, from_sequence: int = 0, limit: int | None = None
    ) -> list[RunEvent]: ...

    async def interrupts(
        self, run_id: str, tenant: str, principal: str, *, delegate: bool = False
    ) -> list[Interrupt]: ...


class _Due(msgspec.Struct, frozen=True):
    delivery_id: str
    webhook_id: str
    tenant: str
    run_id: str
    sequence: int
    type: str
    url: str | None
    attempts: int


class Webhooks:
    """Subscriptions and their delivery. `check_url` refuses addresses that must not be called."""

    def __init__(
        self,
        ledger: Ledger,
        source: Source,
        http: HttpSender,
        *,
        clock: Clock,
        ids: Ids,
        randomness: Randomness,
        key: bytes,
        check_url: Callable[[str, str], object],
        policy: RetryPolicy | None = None,
        agent: str = "openwop-webhook-dispatcher/forestay",
        locks: Locks | None = None,
    ) -> None:
        self._locks = locks or Locks()
        self._ours: set[str] = set()  # receivers that this process held at the last query of the outbox
        self._ledger = ledger
        self._source = source
        self._http = http
        self._clock = clock
        self._ids = ids
        self._randomness = randomness
        self._key = key
        self._check_url = check_url
        self.policy = policy or RetryPolicy()
        self._agent = agent
        self._changing = asyncio.Lock()  # one caller at a time checks and changes subscriptions
        self._wake = asyncio.Event()
        self._wanted: set[str] = set()  # event types with a subscription: they wake the delivery
        self._breaker = Breaker()
        self._in_flight: dict[str, str] = {}
        self._ended: set[str] = set()  # ended since the last query of the outbox, whose answer may be older
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []

    # Subscriptions

    async def register(
        self, tenant: str, url: str, events: list[str], tags: list[str] | None = None, *, webhook_id: str | None = None
    ) -> Registered:
        """Create a subscription; a caller that must not create two gives the id, and gets the existing one."""
        types = sorted(set(events))
        if not types:
            raise Problem("schema_mismatch", "A webhook needs at least one event type.", at="$.events")
        for type in types:
            if len(type) > 128 or not _TYPE.fullmatch(type):
                raise Problem("schema_mismatch", f"{type[:80]!r} is not an event type.", at="$.events")
        self._check(url, "$.url")
        webhook_id = webhook_id or self._ids.new("wh")
        doc = {
            "tenant": tenant,
            "url": url,
            "events": types,
            "tags": tags or [],
            "createdMs": self._clock.now_ms(),
            "secretVersion": 1,
        }
        async with self._changing:
            known = {item.webhook_id for item in await self.subscriptions(tenant)}
            if webhook_id in known:
                return _registered(webhook_id, self._secret(webhook_id, 1))
            if len(known) >= MAX_PER_TENANT:
                message = f"The tenant has {MAX_PER_TENANT} webhooks already."
                raise Problem("state_conflict", message, limit=MAX_PER_TENANT)
            await self._ledger.append(f"webhook/{webhook_id}", [Draft("webhook.registered", doc)], expect=-1)
        self._wanted.update(types)
        self._wake.set()
        secret = self._secret(webhook_id, 1)
        return _registered(webhook_id, secret)

    async def subscriptions(self, tenant: str) -> list[Webhook]:
        rows = await self._ledger.query(
            f"SELECT webhook_id, {_DOC} FROM webhooks WHERE tenant = ? ORDER BY webhook_id",  # noqa: S608
            (tenant,),
        )
        return [self._view(webhook_id, _doc(*row)) for webhook_id, *row in rows]

    async def get(self, webhook_id: str, tenant: str) -> Webhook:
        return self._view(webhook_id, await self._doc(webhook_id, tenant))

    async def remove(self, webhook_id: str, tenant: str) -> None:
        async with self._changing:
            await self._doc(webhook_id, tenant)
            await self._ledger.append(f"webhook/{webhook_id}", [Draft("webhook.removed", {})])

    async def rotate(self, webhook_id: str, tenant: str) -> Registered:
        """Make a new secret; for a day, deliveries have the old signature too."""
        async with self._changing:
            doc = await self._doc(webhook_id, tenant)
            version = int(doc["secretVersion"]) + 1
            await self._ledger.append(f"webhook/{webhook_id}", [Draft("webhook.rotated", {"secretVersion": version})])
        secret = self._secret(webhook_id, version)
        return _registered(webhook_id, secret)

    async def deliveries(self, webhook_id: str, tenant: str, limit: int = 100) -> list[Delivery]:
        """Return the undelivered events, dead letters first."""
        await self._doc(webhook_id, tenant)
        rows = await self._ledger.query(
            "SELECT delivery_id, run_id, sequence, type, state, attempts, due_ms, error FROM webhook_outbox "
            "WHERE webhook_id = ? ORDER BY state, due_ms LIMIT ?",
            (webhook_id, limit),
        )
        return [
            Delivery(
                delivery_id=row[0],
                run_id=row[1],
                sequence=row[2],
                type=row[3],
                state=row[4],
                attempts=row[5],
                due_at=iso(row[6]),
                error=row[7],
            )
            for row in rows
        ]

    async def retry(self, webhook_id: str, delivery_id: str, tenant: str) -> None:
        """Retry a dead letter."""
        await self._doc(webhook_id, tenant)
        dead = await self._ledger.query(
            "SELECT 1 FROM webhook_outbox WHERE delivery_id = ? AND webhook_id = ? AND state = 'dead'",
            (delivery_id, webhook_id),
        )
        if not dead:
            raise Problem("not_found", "There is no such dead letter.")
        await self._ledger.append(f"webhook/{webhook_id}", [Draft("webhook.retried", {"deliveryId": delivery_id})])
        receiver = _receiver(webhook_id, None)
        self._breaker.ended(receiver, True, self._clock.now_ms())  # the caller knows that the receiver is back
        self._wake.set()

    async def _doc(self, webhook_id: str, tenant: str) -> dict[str, Any]:
        rows = await self._ledger.query(
            f"SELECT {_DOC} FROM webhooks WHERE webhook_id = ? AND tenant = ?",  # noqa: S608
            (webhook_id, tenant),
        )
        if not rows:
            raise Problem("subscription_not_found", "There is no such webhook.")
        return _doc(*rows[0])

    def _view(self, webhook_id: str, doc: dict[str, Any]) -> Webhook:
        rotated = doc.get("rotatedMs")
        opens = self._breaker.opens_at(_receiver(webhook_id, None))
        return Webhook(
            webhook_id=webhook_id,
            url=doc["url"],
            events=doc["events"],
            tags=doc["tags"],
            tenant_id=doc["tenant"],
            created_at=iso(doc["createdMs"]),
            secret_fingerprint=fingerprint(self._secret(webhook_id, doc["secretVersion"])),
            secret_version=doc["secretVersion"],
            rotated_at=iso(rotated) if rotated else None,
            state="active" if opens is None else "failing",
            next_attempt_at=None if opens is None else iso(opens),
        )

    def _secret(self, webhook_id: str, version: int) -> str:
        return hmac.new(self._key, f"webhook:{webhook_id}:{version}".encode(), hashlib.sha256).hexdigest()

    # Delivery

    async def start(self) -> None:
        await self._learn()
        self._wake.set()
        self._loops = [asyncio.create_task(self._watch()), asyncio.create_task(self._deliver_all())]

    async def _learn(self) -> None:
        """Learn which events wake the delivery."""
        types = await self._ledger.query("SELECT DISTINCT type FROM webhook_types")
        self._wanted.update(row[0] for row in types)
        if await self._ledger.query("SELECT 1 FROM webhook_runs WHERE callback IS NOT NULL LIMIT 1"):
            self._wanted.update(CALLBACK_EVENTS)

    async def close(self) -> None:
        """Stop; unfinished deliveries are sent again at the next start."""
        tasks = [*self._loops, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loops = []
        await self._locks.leave(self._ours)

    def check_callback(self, url: str) -> None:
        """Refuse a `callbackUrl` that must not be called; otherwise watch for its events."""
        self._check(url, "$.callbackUrl")
        self.expect_callbacks()

    def _check(self, url: str, at: str) -> None:
        """Refuse an address that must not be called; each delivery checks again what its name resolves to."""
        try:
            self._check_url(url, at)
        except Problem as problem:
            reason = problem.details.get("reason", "address")
            raise Problem("webhook_url_rejected", problem.message, at=at, reason=reason) from problem

    def expect_callbacks(self) -> None:
        """Let the interrupts and the end of a run with a `callbackUrl` wake the delivery."""
        self._wanted.update(CALLBACK_EVENTS)
        self._wake.set()

    async def _watch(self) -> None:
        """Wake the delivery when an event with a subscription is written; sleep while there is no subscription."""
        while not self._wanted:
            await self._wake.wait()
            await asyncio.sleep(0)
            if not self._wanted:
                self._wake.clear()
        while True:
            with contextlib.suppress(Problem):  # the log cannot be read at the moment
                await self._follow()
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _follow(self) -> None:
        position = await self._ledger.position()
        self._wake.set()  # for events up to that position
        async with contextlib.aclosing(self._ledger.follow_all("run/", position)) as records:
            async for _, record in records:
                if record.type in self._wanted:
                    self._wake.set()

    async def _deliver_all(self) -> None:
        while True:
            self._wake.clear()
            try:
                if self._locks.shared:
                    await self._learn()
                next_ms = await self._start_due()
            except Problem as problem:  # the deliveries stay in the outbox
                _log.error("the outbox cannot be read: %s", problem.message)
                next_ms = self._clock.now_ms() + round(_AGAIN_SECONDS * 1000)
            pause = _SHARED_SECONDS if self._locks.shared else None
            if next_ms is not None:
                pause = min(pause or _RECHECK_SECONDS, max(0.0, (next_ms - self._clock.now_ms()) / 1000))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _receivers_of(self, rows: list[tuple[Any, ...]]) -> set[str]:
        """Return the receivers of these deliveries that this process held before the query (B7)."""
        wanted = {_receiver_of(row) for row in rows}
        if not self._locks.shared:
            return wanted
        held = set(await self._locks.take(wanted))
        had, lost = self._ours & held, self._ours & wanted - held
        idle = self._ours - wanted - set(self._in_flight.values())
        await self._locks.leave(idle)
        self._ours = (self._ours | held) - lost - idle
        if held - had:
            self._wake.set()  # query again: another process may have delivered some meanwhile
        return had

    async def _start_due(self) -> int | None:
        """Start due deliveries, as far as there is room; return when the next one is due, if there is one."""
        now = self._clock.now_ms()
        self._ended.clear()
        rows = await self._ledger.query(_DUE, (now, _CONCURRENT_EACH))
        ours = await self._receivers_of(rows)
        resting: list[int] = []
        for row in rows:
            receiver = _receiver_of(row)
            if receiver not in ours:
                continue
            if not self._breaker.allows(receiver, now):  # B6
                resting.append(self._breaker.opens_at(receiver) or now)
                continue
            busy = list(self._in_flight.values())
            taken = row[0] in self._in_flight or row[0] in self._ended
            if taken or len(busy) >= _CONCURRENT or busy.count(receiver) >= _CONCURRENT_EACH:
                continue
            self._in_flight[row[0]] = receiver
            self._breaker.began(receiver)
            task = asyncio.create_task(self._deliver(_Due(*row)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        later = await self._ledger.query(
            "SELECT min(due_ms) FROM webhook_outbox WHERE state = 'due' AND due_ms > ?", (now,)
        )
        moments = [moment for moment in resting if moment > now]
        if later and later[0][0] is not None:
            moments.append(later[0][0])
        return min(moments, default=None)

    async def _deliver(self, due: _Due) -> None:
        try:
            error = await self._attempt(due)
            attempt = due.attempts + 1
            self._breaker.ended(_receiver(due.webhook_id, due.url), error is None, self._clock.now_ms())
            if error is None:
                draft = Draft("webhook.delivered", {"deliveryId": due.delivery_id, "attempt": attempt})
            else:
                pause = self.policy.pause_ms(attempt, self._randomness)
                next_ms = None if pause is None else self._clock.now_ms() + pause
                draft = Draft(
                    "webhook.failed",
                    {"deliveryId": due.delivery_id, "attempt": attempt, "error": error[:200], "nextMs": next_ms},
                )
            await self._ledger.commit(Append(f"webhook/{due.webhook_id}", [draft]))
        except Problem as problem:  # the ledger refused the outcome: the delivery stays due
            _log.error("the outcome of %s could not be written: %s", due.delivery_id, problem.message)
            await asyncio.sleep(1)
        finally:
            self._in_flight.pop(due.delivery_id, None)
            self._ended.add(due.delivery_id)
            self._wake.set()

    async def _attempt(self, due: _Due) -> str | None:
        """Send once; return None when the receiver accepted it, else the reason."""
        try:
            url, secrets = await self._receiver(due)
            body = await self._body(due)
            trace = await self._trace(due)
        except Problem as problem:
            if problem.key in _GONE:  # the run or the subscription is gone: there is nothing to deliver
                return None
            return problem.message
        stamp = str(self._clock.now_ms() // 1000)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": self._agent,
            "X-openwop-Webhook-Id": due.webhook_id,
            "X-openwop-Delivery-Id": due.delivery_id,
            "X-openwop-Event-Type": due.type,
            "X-openwop-Timestamp": stamp,
            **trace,
        }
        for name, secret in zip(("Signature", "Signature-Previous"), secrets, strict=False):
            headers[f"X-openwop-{name}"] = "sha256=" + sign(secret, stamp, body)
            headers["X-openwop-Signature-Algorithm"] = SIGNATURE_ALGORITHM
        request = HttpRequest(
            method="POST", url=url, headers=headers, body=body, timeout_ms=_ATTEMPT_MS, max_response_bytes=64 * 1024
        )
        caller = Caller(tenant=due.tenant, run_id=due.run_id, node_id="webhook", idempotency_key=due.delivery_id)
        try:
            async with asyncio.timeout(_ATTEMPT_MS / 1000 + 1):
                response = await self._http.send(request, caller)
        except Problem as problem:
            taken = problem.details.get("status", 0) // 100 == 2  # accepted, but the answer is too long to read
            return None if taken else problem.message
        except TimeoutError:
            return "The receiver did not answer in time."
        return None if 200 <= response.status < 300 else f"The receiver answered {response.status}."

    async def _trace(self, due: _Due) -> dict[str, str]:
        """Return the run's trace as a header, so that the receiver can continue it."""
        started = await self._ledger.read(f"run/{due.run_id}", 0, 1)
        metadata = started[0].payload.get("metadata") if started else None
        found = read_traceparent((metadata or {}).get("traceparent"))
        return {"traceparent": found} if found else {}

    async def _receiver(self, due: _Due) -> tuple[str, list[str]]:
        if due.url is not None:  # a run's callbackUrl has no secret with us: its token proves the sender
            return due.url, []
        doc = await self._doc(due.webhook_id, due.tenant)
        version = int(doc["secretVersion"])
        secrets = [self._secret(due.webhook_id, version)]
        if version > 1 and self._clock.now_ms() - doc["rotatedMs"] < ROTATION_GRACE_MS:
            secrets.append(self._secret(due.webhook_id, version - 1))
        return doc["url"], secrets

    async def _body(self, due: _Due) -> bytes:
        events = await self._source.events(due.run_id, due.tenant, due.sequence, 1)
        if not events:
            raise Problem("not_found", "The event is gone.")
        event = events[0]
        body: dict[str, Any] = {"runId": due.run_id, "workspaceId": due.tenant, "event": event}
        asked = event.payload.get("interruptId") if isinstance(event.payload, dict) else None
        if asked is not None and event.type.endswith((".requested", ".suspended")):
            receiver = f"webhook:{due.webhook_id}"
            open_now = await self._source.interrupts(due.run_id, due.tenant, receiver, delegate=True)
            body["interrupts"] = [item for item in open_now if item.interrupt_id == asked]  # B5
        return msgspec.json.encode(body)

    async def settled(self) -> None:
        """Wait until no delivery is in flight and none can be sent now; for tests and for draining."""
        async for _ in self._ticks():
            now = self._clock.now_ms()
            due = await self._ledger.query(_DUE, (now, 1))
            if not self._in_flight and not any(self._breaker.allows(_receiver_of(row), now) for row in due):
                return

    async def _ticks(self) -> AsyncIterator[None]:
        while True:
            yield
            await asyncio.sleep(0.01)


_DOC = "doc, secret_version, rotated_ms"


def _receiver_of(row: tuple[Any, ...]) -> str:
    """Return the receiver of a due row."""
    return _receiver(row[1], row[6])


def _receiver(webhook_id: str, url: str | None) -> str:
    """Return the name of a receiver: a subscription, or a hash of a run's callback address, which may be long."""
    return "webhook/" + (webhook_id if url is None else hashlib.sha256(url.encode()).hexdigest()[:32])


def _doc(doc: str, version: int, rotated_ms: int | None) -> dict[str, Any]:
    """Return a subscription as it was registered, with its current secret version."""
    return {**json.loads(doc), "secretVersion": version, "rotatedMs": rotated_ms}


def _registered(webhook_id: str, secret: str) -> Registered:
    return Registered(
        webhook_id=webhook_id,
        secret=secret,
        secret_fingerprint=fingerprint(secret),
        signature_algorithm=SIGNATURE_ALGORITHM,
    )


def fingerprint(secret: str) -> str:
    """Return the first eight hex digits of the secret's SHA-256, which logs and lists may show."""
    return hashlib.sha256(secret.encode()).hexdigest()[:8]


def sign(secret: str, stamp: str, body: bytes) -> str:
    return hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()

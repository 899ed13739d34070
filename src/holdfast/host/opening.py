"""From a data folder to a running host: ledger, runs, webhooks, schedules."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.host.egress import Egress
from holdfast.kernel.clock import Clock, SystemClock
from holdfast.kernel.ids import Ids, Randomness, SystemRandomness
from holdfast.kernel.ledger import Ledger, Projection
from holdfast.runs import service
from holdfast.runs.idempotency import Idempotency
from holdfast.runs.outbox import Outbox
from holdfast.runs.schedules import Schedules, ScheduleTable
from holdfast.runs.service import Runs
from holdfast.runs.types import Limits
from holdfast.runs.webhooks import RetryPolicy, Webhooks


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a host is opened. `allow_egress` names `host:port` pairs that calls out may reach though they are private."""

    data: Path
    allow_egress: tuple[str, ...] = ()
    sample_seams: bool = False
    retry: RetryPolicy = RetryPolicy()
    limits: Limits | None = None
    clock: Clock | None = None
    randomness: Randomness | None = None
    projections: tuple[Projection, ...] = ()
    more: dict[str, Any] = {}


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a running host below HTTP."""

    ledger: Ledger
    runs: Runs
    webhooks: Webhooks
    schedules: Schedules
    idempotency: Idempotency
    egress: Egress
    clock: Clock
    ids: Ids
    key_for: Callable[[str], bytes]  # a secret of its own for each purpose


@asynccontextmanager
async def open_host(options: Options) -> AsyncIterator[Host]:
    clock = options.clock or SystemClock()
    randomness = options.randomness or SystemRandomness()
    ids = Ids(clock, randomness)
    options.data.mkdir(parents=True, exist_ok=True)
    secret = _secret(options.data, randomness)
    projections = [*service.projections(), Outbox(), ScheduleTable(), *options.projections]
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(
            Ledger.open(options.data / "ledger.db", projections=projections, clock=clock, ids=ids)
        )
        egress = Egress(options.allow_egress)
        stack.push_async_callback(egress.close)
        runs = Runs(
            ledger,
            clock=clock,
            ids=ids,
            randomness=randomness,
            secret=derive(secret, "interrupts"),
            http=egress,
            limits=options.limits,
            sample_seams=options.sample_seams,
            **options.more,
        )
        webhooks = Webhooks(
            ledger,
            runs,
            egress,
            clock=clock,
            ids=ids,
            randomness=randomness,
            key=derive(secret, "webhooks"),
            check_url=egress.check_url,
            policy=options.retry,
        )
        schedules = Schedules(ledger, runs, clock=clock, ids=ids)
        await stack.enter_async_context(runs)
        await webhooks.start()
        stack.push_async_callback(webhooks.close)
        await schedules.start()
        stack.push_async_callback(schedules.close)
        idempotency = Idempotency(ledger, clock, ids, owner=ids.new("boot"), key=derive(secret, "idempotency"))
        yield Host(
            ledger=ledger,
            runs=runs,
            webhooks=webhooks,
            schedules=schedules,
            idempotency=idempotency,
            egress=egress,
            clock=clock,
            ids=ids,
            key_for=lambda purpose: derive(secret, purpose),
        )


def derive(secret: bytes, purpose: str) -> bytes:
    """A key of its own for each purpose."""
    return hmac.new(secret, purpose.encode(), hashlib.sha256).digest()


def _secret(data: Path, randomness: Randomness) -> bytes:
    """The host's secret: 32 random bytes in a file that only its owner can read."""
    path = data / "secret.key"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(handle, "wb") as file:
        made = randomness.bytes(32)
        file.write(made)
        file.flush()
        os.fsync(file.fileno())
    return made

"""What the HTTP surface stands on: built once by the host, handed to every operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forestay.host import LeftOut
from forestay.kernel import Clock, Ids, Ledger
from forestay.runs import Idempotency, Runs, Schedules, Webhooks
from forestay.surface.auth import Keys
from forestay.surface.limits import Load, RateLimits


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a running host that requests reach. `closing` is set when the host begins to shut down;
    `capabilities` are what other parts of the host add to the discovery document; `left_out` are workflow files that
    could not be stored."""

    ledger: Ledger
    runs: Runs
    keys: Keys
    idempotency: Idempotency
    webhooks: Webhooks
    schedules: Schedules
    limits: RateLimits
    load: Load
    clock: Clock
    ids: Ids
    closing: asyncio.Event
    capabilities: Callable[[], Mapping[str, Any]] = dict
    sample_seams: bool = False
    left_out: tuple[LeftOut, ...] = ()

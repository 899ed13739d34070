"""The services of the surface: built once, for operations that need more than the host."""

from __future__ import annotations

import asyncio

import msgspec

from forestay.host import Host
from forestay.surface.auth import Keys
from forestay.surface.limits import Load, RateLimits


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The host, and the services that the surface adds. `closing` is set when the host begins to shut down."""

    host: Host
    keys: Keys
    limits: RateLimits
    load: Load
    closing: asyncio.Event
    sample_seams: bool = False

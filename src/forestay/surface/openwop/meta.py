"""What the host says about itself: discovery and health."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from forestay.surface.openapi import cacheable, etag
from forestay.surface.openwop.discovery import capabilities
from forestay.surface.operations import Call, Operation, Operations, Result, View
from forestay.surface.services import Services


class Health(View, frozen=True):
    status: str


class NotStored(Result, frozen=True):
    file: str
    problem: str
    reason: str


class Readiness(Result, frozen=True):
    """`left_out` names the workflow files that the host was given and cannot run."""

    status: str
    left_out: tuple[NotStored, ...] = ()


class Served(msgspec.Struct, frozen=True):
    """The services of a host and every operation that it serves."""

    services: Services
    operations: list[Operation]


api = Operations[Served](auth="none", tag="meta")


@api.get("/.well-known/openwop", "discovery", {200: dict[str, Any], 304: None})
async def discovery(served: Served, call: Call) -> Response:
    """What this host can do, computed from what is wired."""
    found = await capabilities(served.services, {item.name for item in served.operations})
    return cacheable(call, found, {"Capabilities-Etag": etag(found)})


@api.get("/healthz", "health.live", Health)
async def alive(served: Served, call: Call) -> Health:
    """Whether the process answers."""
    return Health(status="healthy")


@api.get("/readyz", "health.ready", Readiness)
async def ready(served: Served, call: Call) -> Response:
    """Whether it takes work, and which workflow files it was given in vain."""
    services = served.services
    draining = services.load.draining or services.host.runs.load().draining
    left_out = msgspec.convert(services.host.left_out, tuple[NotStored, ...], from_attributes=True)
    status = "draining" if draining else "ready"
    return call.answer(Readiness(status=status, left_out=left_out), 503 if draining else 200)

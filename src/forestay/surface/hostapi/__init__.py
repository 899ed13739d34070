"""The host's own API at `/host/v1`, in LAFS envelopes: what is wired here is what its OpenAPI document says."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from forestay.host import Host
from forestay.surface.hostapi import agents, contexts, extensions, grants, ledger
from forestay.surface.openapi import About, document
from forestay.surface.operations import Call, Operation
from forestay.surface.services import Services

PREFIX = "/host/v1"

__all__ = ["operations"]


def operations(host: Host, services: Services) -> list[Operation]:
    """Every operation of the host beside the contracts'; `services` has those on keys already."""
    found = [
        *extensions.operations(host),
        *grants.operations(host),
        *ledger.operations(host),
        *agents.operations(host),
        *contexts.operations(host),
    ]
    return [*found, _openapi(services, found)]


def _openapi(services: Services, own: list[Operation]) -> Operation:
    from forestay.surface import keys

    described: dict[str, Any] = {}

    async def openapi(call: Call) -> Response:
        if not described:
            described.update(
                document([*own, *keys.operations(services), made], About("The host's own API, in LAFS envelopes."))
            )
        return call.plain(described, headers={"Cache-Control": "public, max-age=300"})

    made = Operation(
        name="host.openapi",
        method="GET",
        path=f"{PREFIX}/openapi.json",
        perform=openapi,
        summary="This document.",
        auth="none",
        answers={200: dict[str, Any]},
        tag="meta",
    )
    return made

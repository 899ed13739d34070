"""The fleet: the processes that share the ledger, and the runs that each carries."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from forestay.console.visit import Visit, page
from forestay.kernel import iso
from forestay.runs import FLEET

_TOLD = 50  # events


@page("/fleet", "fleet", operator=True)
async def show(visit: Visit) -> Response:
    """The processes that live, those that died within the last hour, and what happened among them."""
    workers = visit.host.workers
    found = await asyncio.to_thread(workers.listed) if workers is not None else []
    told = await visit.host.ledger.read(FLEET, 0, _TOLD, reverse=True)
    return visit.page(
        "fleet.html",
        fleet=[(item, iso(item.since)) for item in found],
        living=sum(item.alive for item in found),
        told=[(record.type.removeprefix("worker."), record.payload, iso(record.ts)) for record in told],
        own=visit.host.about["name"],
        shared=workers is not None,
    )

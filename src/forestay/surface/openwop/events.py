"""The events of a run, as a stream or by long poll (OpenWOP §1.9, W8)."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from forestay.kernel import Problem
from forestay.runs import TERMINAL, EventPage
from forestay.surface.negotiation import EVENTS, JSON, LAFS
from forestay.surface.openwop.run_stream import frames, parse_modes
from forestay.surface.operations import Call, Operations, Query
from forestay.surface.services import Services
from forestay.surface.sse import beside

_SEQUENCE = re.compile(r"-1|[0-9]{1,15}")
_PAGE = 10_000
api = Operations[Services](scopes=("runs:read",), streams=True, tag="events")


class StreamQuery(Query, frozen=True):
    stream_mode: Annotated[
        str, Meta(extra_json_schema={"pattern": "^(values|(updates|messages|debug)(,(updates|messages|debug))*)$"})
    ] = "updates"
    buffer_ms: Annotated[int, Meta(ge=0, le=5000)] = 0


class PollQuery(Query, frozen=True):
    last_sequence: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    timeout: Annotated[int, Meta(ge=1, le=60)] = 30


@api.get(
    "/v1/runs/{runId}/events",
    "events.stream",
    EventPage,
    headers=("Last-Event-ID",),
    problems=("unsupported_stream_mode",),
)
async def stream(services: Services, call: Call, query: StreamQuery) -> Response | EventPage:
    """The events of a run as server-sent events; ends with the run."""
    runs, run_id, tenant = services.host.runs, call.path["runId"], call.tenant
    modes = parse_modes(query.stream_mode)
    start = _resume_at(call.request.headers.get("last-event-id"))
    if _wants_json(call.request.headers.get("accept", "")):
        events = await runs.events(run_id, tenant, start, _PAGE)
        standing = await runs.get_run(run_id, tenant)
        return EventPage(events=events, is_complete=standing.status in TERMINAL and len(events) < _PAGE)
    notices = await services.host.annotations.watch(run_id, tenant)  # an unknown run is a 404, no empty stream
    return call.stream(
        frames(
            beside(runs.follow(run_id, tenant, start), notices),
            modes,
            buffer_ms=query.buffer_ms,
            snapshot=(lambda: runs.get_run(run_id, tenant)) if modes == ("values",) else None,
        )
    )


@api.get("/v1/runs/{runId}/events/poll", "events.poll", EventPage, problems=("out_of_range",))
async def poll(services: Services, call: Call, query: PollQuery) -> EventPage:
    """Events after `lastSequence`, waiting up to `timeout` seconds for the first."""
    runs, asked = services.host.runs, (call.path["runId"], call.tenant, query.last_sequence)
    there = await runs.poll(*asked, 0)
    if there.events or there.is_complete:
        return there
    waiting = asyncio.ensure_future(runs.poll(*asked, float(query.timeout)))
    closing = asyncio.ensure_future(call.closing.wait())
    try:
        await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise Problem("unavailable", "The host is shutting down.", retry_after_ms=5_000)
        services.keys.caller(call.caller.key_id)  # the key may have been revoked while we waited
        return waiting.result()
    finally:
        waiting.cancel()
        closing.cancel()


def _resume_at(last_event_id: str | None) -> int:
    """Return the sequence after `Last-Event-ID`; our ids are sequences."""
    if not last_event_id:
        return 0
    if not _SEQUENCE.fullmatch(last_event_id):
        raise Problem(
            "schema_mismatch",
            "Last-Event-ID is not an id of this stream.",
            at="Last-Event-ID",
            fix="Send the last `id:`.",
        )
    return int(last_event_id) + 1


def _wants_json(accept: str) -> bool:
    """Whether to send JSON instead of a stream: only if the caller names JSON and no stream."""
    names = {item.partition(";")[0].strip().lower() for item in accept.split(",")}
    return EVENTS not in names and bool(names & {JSON, LAFS})

"""The events of a run: streamed, polled (OpenWOP §1.9, W8)."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from forestay.kernel import Problem
from forestay.runs import TERMINAL, EventPage
from forestay.surface.openwop.sse import EventStream, frames, parse_modes
from forestay.surface.operations import Call, Operation, Query
from forestay.surface.services import Services

_SEQUENCE = re.compile(r"-1|[0-9]{1,15}")
_PAGE = 10_000


class StreamQuery(Query, frozen=True):
    stream_mode: Annotated[
        str, Meta(extra_json_schema={"pattern": "^(values|(updates|messages|debug)(,(updates|messages|debug))*)$"})
    ] = "updates"
    buffer_ms: Annotated[int, Meta(ge=0, le=5000)] = 0


class PollQuery(Query, frozen=True):
    last_sequence: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    timeout: Annotated[int, Meta(ge=1, le=60)] = 30


def operations(services: Services) -> list[Operation]:
    runs = services.runs

    async def stream(call: Call) -> Response:
        modes = parse_modes(call.query.stream_mode)
        start = _resume_at(call.request.headers.get("last-event-id"))
        run_id, tenant = call.path["runId"], call.caller.tenant
        if _wants_json(call.request.headers.get("accept", "")):
            events = await runs.events(run_id, tenant, start, _PAGE)
            standing = await runs.get_run(run_id, tenant)
            return call.answer(EventPage(events=events, is_complete=_is_complete(standing.status, len(events))))
        await runs.get_run(run_id, tenant)  # a run that is not there is a 404, not an empty stream
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
        body = frames(
            runs.follow(run_id, tenant, start),
            modes,
            buffer_ms=call.query.buffer_ms,
            snapshot=(lambda: runs.get_run(run_id, tenant)) if modes == ("values",) else None,
        )
        return EventStream(body, headers, services.closing)

    async def poll(call: Call) -> Response:
        waiting = asyncio.ensure_future(
            runs.poll(call.path["runId"], call.caller.tenant, call.query.last_sequence, float(call.query.timeout))
        )
        closing = asyncio.ensure_future(services.closing.wait())
        try:
            await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise Problem("unavailable", "The host is shutting down.", retry_after_ms=5_000)
            services.keys.caller(call.caller.key_id)  # it may have been revoked while we waited
            return call.answer(waiting.result())
        finally:
            waiting.cancel()
            closing.cancel()

    return [
        Operation(
            name="events.stream",
            method="GET",
            path="/v1/runs/{runId}/events",
            perform=stream,
            summary="The events of a run as server-sent events; ends with the run.",
            scopes=("runs:read",),
            query=StreamQuery,
            headers=("Last-Event-ID",),
            answers={200: EventPage},
            problems=("unsupported_stream_mode", "schema_mismatch", "not_found"),
            streams=True,
            tag="events",
        ),
        Operation(
            name="events.poll",
            method="GET",
            path="/v1/runs/{runId}/events/poll",
            perform=poll,
            summary="Events after `lastSequence`, waiting up to `timeout` seconds for the first.",
            scopes=("runs:read",),
            query=PollQuery,
            answers={200: EventPage},
            problems=("out_of_range", "schema_mismatch", "not_found"),
            streams=True,
            tag="events",
        ),
    ]


def _resume_at(last_event_id: str | None) -> int:
    """The sequence after `Last-Event-ID`; our ids are sequences."""
    if last_event_id is None or last_event_id == "":
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
    """JSON instead of a stream only for a caller that names it and does not name a stream."""
    names = {item.partition(";")[0].strip().lower() for item in accept.split(",")}
    return "text/event-stream" not in names and bool(names & {"application/json", "application/vnd.lafs.envelope+json"})


def _is_complete(status: str, count: int) -> bool:
    return status in TERMINAL and count < _PAGE

"""Runs: the list, one run with its live timeline, and what a person can do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.console.inbox import questions_of
from holdfast.console.parts import Parts, caller_of, form_of
from holdfast.console.render import SECURITY_HEADERS, go
from holdfast.http.auth import Caller
from holdfast.kernel import canonical
from holdfast.kernel.problems import Problem
from holdfast.runs.graph import svg
from holdfast.runs.types import TERMINAL, CreateRun, ForkRequest, RunEvent, RunFilter, RunSnapshot

_EVENTS_SHOWN = 500
_KEEPALIVE = 15.0


async def listing(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "runs:read")
    query = request.query_params
    filters = RunFilter(
        status=[query["status"]] if query.get("status") else [],
        workflow_id=query.get("workflow") or None,
        tag=query.get("tag") or None,
    )
    page = await parts.runs.list_runs(filters, caller.tenant, query.get("cursor") or None, 50)
    return parts.templates.page(
        request,
        "runs.html",
        page=page,
        status=query.get("status", ""),
        workflow=query.get("workflow", ""),
        tag=query.get("tag", ""),
        workflows=await parts.runs.list_workflows(caller.tenant),
    )


async def start(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "runs:create")
    form = form_of(request)
    inputs = canonical.decode(form.get("inputs", "").strip() or "{}")
    if not isinstance(inputs, dict):
        raise Problem("schema_mismatch", "Inputs are a JSON object.", at="inputs")
    created = await parts.runs.create_run(
        CreateRun(workflow_id=form.get("workflow", ""), inputs=inputs), caller.tenant, caller.principal
    )
    return go(f"/runs/{created.run_id}")


async def show(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "runs:read")
    run_id = request.path_params["run_id"]
    snapshot = await parts.runs.get_run(run_id, caller.tenant)
    events = await parts.runs.events(run_id, caller.tenant, max(0, snapshot.last_sequence - _EVENTS_SHOWN + 1))
    return parts.templates.page(
        request,
        "run.html",
        run=snapshot,
        events=events,
        first=events[0].sequence if events else 0,
        ended=snapshot.status in TERMINAL,
        graph=await _graph(parts, caller, snapshot),
        questions=await questions_of(parts, caller, run_id) if snapshot.status not in TERMINAL else [],
    )


async def live(request: Request, parts: Parts) -> Response:
    """New events as rendered lines, for the page's script to add; ends when the run does."""
    caller = caller_of(request, "runs:read")
    run_id = request.path_params["run_id"]
    await parts.runs.get_run(run_id, caller.tenant)
    seen = request.headers.get("last-event-id") or request.query_params.get("after", "-1")
    if not seen.lstrip("-").isdigit():
        raise Problem("out_of_range", "`after` is the sequence of an event.", at="after")
    headers = {**SECURITY_HEADERS, "X-Accel-Buffering": "no"}
    return StreamingResponse(_lines(parts, caller, run_id, int(seen) + 1), 200, headers, "text/event-stream")


async def _lines(parts: Parts, caller: Caller, run_id: str, start: int) -> AsyncIterator[bytes]:
    events = parts.runs.follow(run_id, caller.tenant, start)
    pending: asyncio.Task[RunEvent | None] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(events, None))
            done, _ = await asyncio.wait({pending}, timeout=_KEEPALIVE)
            if not done:
                yield b": still here\n\n"
                continue
            event = pending.result()
            pending = None
            if event is None:
                yield b"event: end\ndata: \n\n"
                return
            html = parts.templates.text("event.html", event=event, open=False)
            data = "".join(f"data: {line}\n" for line in html.splitlines())
            yield f"id: {event.sequence}\nevent: line\n{data}\n".encode()
    finally:
        if pending is not None:
            pending.cancel()


async def cancel(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "runs:cancel")
    run_id = request.path_params["run_id"]
    await parts.runs.cancel(run_id, caller.tenant, caller.principal, "cancelled at the console")
    return go(f"/runs/{run_id}")


async def fork(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "runs:create", "runs:read")
    form = form_of(request)
    sequence = form.get("from_seq", "0")
    if not sequence.isdigit():
        raise Problem("out_of_range", "The sequence is a whole number from 0 on.", at="from_seq")
    body = msgspec.convert({"mode": form.get("mode", "replay"), "fromSeq": int(sequence)}, ForkRequest)
    forked = await parts.runs.fork(request.path_params["run_id"], caller.tenant, body, caller.principal)
    return go(f"/runs/{forked.run_id}")


async def _graph(parts: Parts, caller: Caller, snapshot: RunSnapshot) -> str:
    try:
        definition = await parts.runs.get_workflow(snapshot.workflow_id, caller.tenant)
    except Problem:  # the workflow is gone; the run is still worth showing
        return ""
    states = {name: _status(value) for name, value in snapshot.node_states.items()}
    return svg(definition, states)


def _status(value: object) -> str:
    return str(value.get("status", "")) if isinstance(value, dict) else str(value)

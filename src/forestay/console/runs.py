"""Runs: the list, one run with its live timeline, and what a person can do to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from forestay.agents import AgentWork, read_work
from forestay.console.inbox import questions_of
from forestay.console.parts import Parts, caller_of, form_of, whole
from forestay.console.render import SECURITY_HEADERS, go
from forestay.kernel import Problem, canonical, parse_iso
from forestay.relay import Shown
from forestay.runs import TERMINAL, CreateRun, ForkRequest, RunEvent, RunFilter, RunSnapshot, stream_of, svg, to_event
from forestay.surface import Caller

_EVENTS_SHOWN = 500
_RECORDS_READ = 20_000
_KEEPALIVE = 15.0
_WIDTH = re.compile(r' width="(\d+)"')
_NARROW, _WIDE = 480, 1800


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
    inputs = _asked(form) if "question" in form else canonical.decode(form.get("inputs", "").strip() or "{}")
    if not isinstance(inputs, dict):
        raise Problem("schema_mismatch", "Inputs are a JSON object.", at="inputs")
    created = await parts.runs.create_run(
        CreateRun(workflow_id=form.get("workflow", ""), inputs=inputs), caller.tenant, caller.principal
    )
    return go(f"/runs/{created.run_id}")


def _asked(form: dict[str, str]) -> dict[str, str]:
    """What somebody asked an agent, as the inputs of a run."""
    if not form["question"].strip():
        raise Problem("schema_mismatch", "Ask something.", at="question")
    return {"question": form["question"], **({"agentId": form["agent"]} if form.get("agent") else {})}


async def show(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "runs:read")
    run_id = request.path_params["run_id"]
    snapshot = await parts.runs.get_run(run_id, caller.tenant)
    events = await parts.runs.events(run_id, caller.tenant, max(0, snapshot.last_sequence - _EVENTS_SHOWN + 1))
    works = await _works(parts, run_id)
    return parts.templates.page(
        request,
        "run.html",
        run=snapshot,
        events=events,
        first=events[0].sequence if events else 0,
        ended=snapshot.status in TERMINAL,
        works=works,
        tokens=_tokens(works),
        took=_took(snapshot),
        graph=await _graph(parts, caller, snapshot),
        questions=await questions_of(parts, caller, run_id) if snapshot.status not in TERMINAL else [],
    )


async def turn(request: Request, parts: Parts) -> Response:
    """What the model saw before one of its answers, and what it said."""
    caller = caller_of(request, "runs:read")
    run_id = request.path_params["run_id"]
    snapshot = await parts.runs.get_run(run_id, caller.tenant)
    works = await _works(parts, run_id)
    work_at, turn_at = (whole(request.path_params[name], name) for name in ("work", "turn"))
    if work_at >= len(works) or turn_at >= len(works[work_at].turns):
        raise Problem("not_found", "There is no such turn in this run.", runId=run_id)
    work = works[work_at]
    step = work.turns[turn_at]
    return parts.templates.page(
        request,
        "turn.html",
        run=snapshot,
        work=work,
        place=work_at,
        step=step,
        said=work.seen_before(turn_at),
        shown=await _shown(parts, step.session, step.window),
    )


async def _shown(parts: Parts, session_id: str, window_id: str) -> Shown | None:
    """What the relay added; None when the log does not name the window, or the relay's stream is elsewhere."""
    if not session_id or not window_id:
        return None
    try:
        return await (await parts.looks.session(session_id)).shown(window_id)
    except Problem as problem:
        if problem.key not in ("not_found", "payload_too_large"):
            raise
        return None


async def _works(parts: Parts, run_id: str) -> list[AgentWork]:
    """The agents' steps of a run that the caller was found to own."""
    events = await parts.ledger.read(stream_of(run_id), 0, _RECORDS_READ)
    return await read_work([to_event(record) for record in events], parts.host.relay)


def _took(snapshot: RunSnapshot) -> int | None:
    if snapshot.created_at is None or snapshot.completed_at is None:
        return None
    return parse_iso(snapshot.completed_at) - parse_iso(snapshot.created_at)


def _tokens(works: list[AgentWork]) -> tuple[int, int]:
    turns = [item for work in works for item in work.turns]
    return sum(item.input_tokens or 0 for item in turns), sum(item.output_tokens or 0 for item in turns)


async def live(request: Request, parts: Parts) -> Response:
    """New events as rendered lines, for the page's script to add; ends when the run does."""
    caller = caller_of(request, "runs:read")
    run_id = request.path_params["run_id"]
    await parts.runs.get_run(run_id, caller.tenant)
    seen = request.headers.get("last-event-id") or request.query_params.get("after", "-1")
    start = 0 if seen == "-1" else whole(seen, "after") + 1
    headers = {**SECURITY_HEADERS, "X-Accel-Buffering": "no"}
    return StreamingResponse(_lines(parts, caller, run_id, start), 200, headers, "text/event-stream")


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
    mode = form.get("mode", "replay")
    if mode not in ("replay", "branch"):
        raise Problem("schema_mismatch", "A run is replayed or forked.", at="mode")
    sequence = whole(form.get("from_seq", "0"), "from_seq")
    body = msgspec.convert({"mode": mode, "fromSeq": sequence}, ForkRequest)
    forked = await parts.runs.fork(request.path_params["run_id"], caller.tenant, body, trusted=caller.test)
    return go(f"/runs/{forked.run_id}")


class Graph(msgspec.Struct, frozen=True):
    """The picture of a run's workflow: a wide one needs the width of the page, a huge one is scrolled."""

    svg: str
    width: int

    @property
    def size(self) -> str:
        return "" if self.width <= _NARROW else "wide" if self.width <= _WIDE else "wide huge"


async def _graph(parts: Parts, caller: Caller, snapshot: RunSnapshot) -> Graph | None:
    try:
        definition = await _definition(parts, caller, snapshot)
    except Problem:  # the workflow is gone; the run is still worth showing
        return None
    states = {name: _status(value) for name, value in snapshot.node_states.items()}
    drawn = svg(definition, states)
    width = _WIDTH.search(drawn)
    return Graph(drawn, int(width[1]) if width else 0)


async def _definition(parts: Parts, caller: Caller, snapshot: RunSnapshot) -> dict[str, Any]:
    """The workflow as the run began with it, whatever was stored since; the latest when that is not on record here."""
    first = await parts.ledger.read(stream_of(snapshot.run_id), 0, 1)
    stream, seq = ((first[0].attrs.get("p") or {}).get("workflow") if first else None) or ("", -1)
    kept = await parts.ledger.read(stream, seq, 1) if seq >= 0 else []
    if kept:
        document: dict[str, Any] = kept[0].payload["document"]
        return document
    return await parts.runs.get_workflow(snapshot.workflow_id, caller.tenant)


def _status(value: object) -> str:
    return str(value.get("status", "")) if isinstance(value, dict) else str(value)

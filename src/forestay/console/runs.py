"""One run: its live timeline, its nodes, its turns, and the forms that steer it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
from starlette.responses import Response

from forestay.agents import AgentWork, read_work
from forestay.console.faults import refused, typed_inputs
from forestay.console.gantt import drawn, gantt
from forestay.console.inbox import questions_of
from forestay.console.overview import overview
from forestay.console.render import SECURITY_HEADERS, go, segment
from forestay.console.visit import Visit, chosen_model, form, page, whole
from forestay.kernel import Problem, parse_iso
from forestay.relay import Shown
from forestay.runs import (
    TERMINAL,
    CreateRun,
    ForkRequest,
    RunSnapshot,
    retry_point,
    stream_of,
    svg,
    title_of,
    to_event,
)
from forestay.surface import KEEPALIVE, KEEPALIVE_SECONDS, Awaited, Form, frame

_EVENTS_SHOWN = 500
_DIFFERENCES_SHOWN = 200
_FIELDS = ("inputs", "question", "agent", "model", "workflow")
_RECORDS_READ = 20_000
_WIDTH = re.compile(r' width="(\d+)"')
_NARROW, _WIDE = 480, 1800


@form("/runs", "runs.start", "runs:create")
async def start(visit: Visit) -> Response:
    """Start a run, or ask an agent; what cannot be started is shown beside its field."""
    fields = visit.form
    try:
        model = chosen_model(visit)
        chosen = {} if model is None else {"model": model}
        wanted = CreateRun(workflow_id=fields.get("workflow", ""), inputs=_inputs(fields), configurable=chosen)
        created = await visit.host.runs.create_run(wanted, visit.tenant, visit.caller.principal)
    except Problem as problem:
        return await overview(visit, refused(problem, fields, _FIELDS), problem.row.http)
    return go(f"/runs/{created.run_id}")


def _inputs(fields: Form) -> dict[str, Any]:
    """Return the inputs of a run, from a question or from JSON."""
    return _asked(fields) if "question" in fields else typed_inputs(fields.get("inputs", ""))


def _asked(fields: Form) -> dict[str, str]:
    """Return a question to an agent as the inputs of a run."""
    if not fields["question"].strip():
        raise Problem("schema_mismatch", "Ask something.", at="question")
    return {"question": fields["question"], **({"agentId": fields["agent"]} if fields.get("agent") else {})}


@page("/runs/{runId}", "runs.show", "runs:read")
async def show(visit: Visit) -> Response:
    """One run: its timeline, its graph and its open questions."""
    run_id = visit.path["runId"]
    snapshot = await visit.host.runs.get_run(run_id, visit.tenant)
    every = await visit.host.runs.events(run_id, visit.tenant, limit=_RECORDS_READ)
    events = every[-_EVENTS_SHOWN:]
    works = await _works(visit, run_id)
    times = gantt(every, visit.host.clock.now_ms())
    return visit.page(
        "run.html",
        run=snapshot,
        title=title_of(snapshot.inputs),
        answer=_answer(snapshot),
        events=events,
        first=events[0].sequence if events else 0,
        gantt=drawn(times, _node_address(run_id)) if times else None,
        hidden_lanes=times.left_out if times else 0,
        retry=retry_point(every) if snapshot.status == "failed" else None,
        ended=snapshot.status in TERMINAL,
        works=works,
        tokens=_tokens(works),
        cost=((snapshot.metrics or {}).get("openwopCost") or {}).get("usd", 0),
        took=_took(snapshot),
        graph=await _graph(visit, snapshot),
        questions=await questions_of(visit, run_id) if snapshot.status not in TERMINAL else [],
    )


def _answer(snapshot: RunSnapshot) -> str:
    """Return the run's answer if it is a text: an output with a usual name, or the only output."""
    outputs = snapshot.outputs or {}
    named = [outputs.get(name) for name in ("answer", "output", "result", "text")]
    found = next((value for value in named if isinstance(value, str)), None)
    return found or next((value for value in outputs.values() if isinstance(value, str) and len(outputs) == 1), "")


def _node_address(run_id: str) -> Callable[[str], str]:
    return lambda node: f"/runs/{segment(run_id)}/nodes/{segment(node)}"


@page("/runs/{runId}/nodes/{nodeId}", "runs.node", "runs:read")
async def node(visit: Visit) -> Response:
    """One node: what went in, what came out, its attempts and its error."""
    run_id = visit.path["runId"]
    snapshot = await visit.host.runs.get_run(run_id, visit.tenant)
    return visit.page(
        "node.html", run=snapshot, node=await visit.host.runs.node(run_id, visit.path["nodeId"], visit.tenant)
    )


@page("/runs/{runId}/diff", "runs.diff", "runs:read")
async def diff(visit: Visit) -> Response:
    """What differs between two runs: where they went apart, and how they ended."""
    runs, run_id, against = visit.host.runs, visit.path["runId"], visit.asked("against").strip()
    snapshot, other = await runs.get_run(run_id, visit.tenant), await runs.get_run(against, visit.tenant)
    found = await runs.diff(run_id, against, visit.tenant)
    return visit.page("diff.html", run=snapshot, other=other, diff=found, most=_DIFFERENCES_SHOWN)


@page("/runs/{runId}/turns/{work}/{turn}", "runs.turn", "runs:read")
async def turn(visit: Visit) -> Response:
    """What the model saw before one of its answers, and what it said."""
    run_id = visit.path["runId"]
    snapshot = await visit.host.runs.get_run(run_id, visit.tenant)
    works = await _works(visit, run_id)
    work_at, turn_at = (whole(visit.path[name], name) for name in ("work", "turn"))
    if work_at >= len(works) or turn_at >= len(works[work_at].turns):
        raise Problem("not_found", "There is no such turn in this run.", runId=run_id)
    work = works[work_at]
    step = work.turns[turn_at]
    return visit.page(
        "turn.html",
        run=snapshot,
        work=work,
        place=work_at,
        step=step,
        said=work.seen_before(turn_at),
        shown=await _shown(visit, step.session, step.window),
    )


async def _shown(visit: Visit, session_id: str, window_id: str) -> Shown | None:
    """Return what the relay added; None when the log names no window, or the session cannot be read here."""
    if not session_id or not window_id:
        return None
    try:
        return await (await visit.console.looks.session(session_id)).shown(window_id)
    except Problem as problem:
        if problem.key not in ("not_found", "payload_too_large"):
            raise
        return None


async def _works(visit: Visit, run_id: str) -> list[AgentWork]:
    """Return the agents' steps of a run; the caller must have checked that the visitor may read it."""
    records = await visit.host.ledger.read(stream_of(run_id), 0, _RECORDS_READ)
    return await read_work([to_event(record) for record in records], visit.host.relay)


def _took(snapshot: RunSnapshot) -> int | None:
    if snapshot.created_at is None or snapshot.completed_at is None:
        return None
    return parse_iso(snapshot.completed_at) - parse_iso(snapshot.created_at)


def _tokens(works: list[AgentWork]) -> tuple[int, int]:
    turns = [item for work in works for item in work.turns]
    return sum(item.input_tokens or 0 for item in turns), sum(item.output_tokens or 0 for item in turns)


@page("/runs/{runId}/live", "runs.live", "runs:read", streams=True)
async def live(visit: Visit) -> Response:
    """New events as rendered lines, for the page's script to add; ends when the run does."""
    await visit.host.runs.get_run(visit.path["runId"], visit.tenant)
    seen = visit.call.request.headers.get("last-event-id") or visit.asked("after") or "-1"
    start = 0 if seen == "-1" else whole(seen, "after") + 1
    return visit.call.stream(_lines(visit, start), SECURITY_HEADERS)


async def _lines(visit: Visit, start: int) -> AsyncGenerator[bytes, None]:
    events = Awaited(visit.host.runs.follow(visit.path["runId"], visit.tenant, start))
    try:
        while True:
            if not await events.ready(KEEPALIVE_SECONDS):
                yield KEEPALIVE
                continue
            event = events.take()
            if event is None:
                yield frame(b"", "end")
                return
            html = visit.console.templates.text("event.html", event=event, open=False)
            yield frame("\n".join(html.splitlines()).encode(), "line", event.sequence)
    finally:
        await events.close()


@form("/runs/{runId}/cancel", "runs.cancel", "runs:cancel")
async def cancel(visit: Visit) -> Response:
    """Cancel a run."""
    run_id = visit.path["runId"]
    await visit.host.runs.cancel(run_id, visit.tenant, visit.caller.principal, "cancelled at the console")
    return go(f"/runs/{run_id}")


@form("/runs/{runId}/retry", "runs.retry", "runs:create", "runs:read")
async def retry(visit: Visit) -> Response:
    """Try a failed run again from the node that failed."""
    made = await visit.host.runs.retry(visit.path["runId"], visit.tenant, trusted=visit.caller.test)
    return go(f"/runs/{made.run_id}")


@form("/runs/{runId}/fork", "runs.fork", "runs:create", "runs:read")
async def fork(visit: Visit) -> Response:
    """Replay a run, or branch off it."""
    mode = visit.form.get("mode", "replay")
    if mode not in ("replay", "branch"):
        raise Problem("schema_mismatch", "A run is replayed or forked.", at="mode")
    sequence = whole(visit.form.get("from_seq", "0"), "from_seq")
    body = msgspec.convert({"mode": mode, "fromSeq": sequence}, ForkRequest)
    forked = await visit.host.runs.fork(visit.path["runId"], visit.tenant, body, trusted=visit.caller.test)
    return go(f"/runs/{forked.run_id}")


class Graph(msgspec.Struct, frozen=True):
    """The picture of a run's workflow: a wide one gets the whole page width, a huge one scrolls."""

    svg: str
    width: int

    @property
    def size(self) -> str:
        return "" if self.width <= _NARROW else "wide" if self.width <= _WIDE else "wide huge"


async def _graph(visit: Visit, snapshot: RunSnapshot) -> Graph | None:
    try:
        definition = await _definition(visit, snapshot)
    except Problem:  # the workflow is gone; the run is still worth showing
        return None
    states = {name: _status(value) for name, value in snapshot.node_states.items()}
    picture = svg(definition, states, link=_node_address(snapshot.run_id))
    width = _WIDTH.search(picture)
    return Graph(picture, int(width[1]) if width else 0)


async def _definition(visit: Visit, snapshot: RunSnapshot) -> dict[str, Any]:
    """Return the workflow as it was when the run began; the latest one if the ledger does not have that."""
    first = await visit.host.ledger.read(stream_of(snapshot.run_id), 0, 1)
    stream, seq = ((first[0].attrs.get("p") or {}).get("workflow") if first else None) or ("", -1)
    kept = await visit.host.ledger.read(stream, seq, 1) if seq >= 0 else []
    if kept:
        document: dict[str, Any] = kept[0].payload["document"]
        return document
    return await visit.host.runs.get_workflow(snapshot.workflow_id, visit.tenant)


def _status(value: object) -> str:
    return str(value.get("status", "")) if isinstance(value, dict) else str(value)

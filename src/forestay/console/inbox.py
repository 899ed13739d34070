"""The inbox: approvals, clarifications, capability prompts and all other questions of runs to a person."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from starlette.responses import Response

from forestay.console.faults import Refused, refused
from forestay.console.questions import Question, answer_of, groups
from forestay.console.render import go, segment
from forestay.console.visit import Visit, form, page
from forestay.extensions import SIGNED_IN
from forestay.host import Host
from forestay.kernel import Problem, canonical
from forestay.runs import pending_prompts
from forestay.surface import Caller


async def open_questions(visit: Visit) -> tuple[list[Question], int]:
    """Return the open questions of the caller's tenant, oldest first, and how many more runs wait.

    A caller who may not answer gets none.
    """
    if "approvals:respond" not in visit.caller.scopes:
        return [], 0
    found = await pending_prompts(visit.host.runs, visit.tenant)
    inputs = await _inputs(visit, {item.run_id for item in found.prompts})
    asked = [Question(item.run_id, item.workflow_id, item.interrupt, inputs.get(item.run_id)) for item in found.prompts]
    return asked, found.more


async def _inputs(visit: Visit, run_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the inputs of each run, for a visitor who may read runs."""
    if "runs:read" not in visit.caller.scopes:
        return {}
    return {run_id: (await visit.host.runs.get_run(run_id, visit.tenant)).inputs for run_id in run_ids}


async def waiting(host: Host, caller: Caller) -> int:
    """Count the questions that wait for a person, without reading any run: the number beside the inbox."""
    if not {"approvals:respond", "runs:read"} <= caller.scopes:
        return 0
    return await host.runs.count_questions(caller.tenant)


async def questions_of(visit: Visit, run_id: str) -> list[Question]:
    caller = visit.caller
    if "approvals:respond" not in caller.scopes:
        return []
    return [Question(run_id, "", item) for item in await visit.host.runs.interrupts(run_id, caller.tenant, caller.name)]


@page("/inbox", "inbox", "approvals:respond")
async def show(visit: Visit) -> Response:
    """The open questions of the tenant's runs, and those together that one answer may fit."""
    questions, more = await open_questions(visit)
    return visit.page(
        "inbox.html",
        questions=questions,
        groups=groups(questions),
        more=more,
        answered=visit.number("answered"),
        refusals=[],
        refused=Refused(),
    )


@form("/inbox/answers", "inbox.answers", "approvals:respond")
async def answer_many(visit: Visit) -> Response:
    """One answer to several approvals that were asked in the same words; each is a decision of its own."""
    chosen = [value.partition("/")[::2] for name, value in visit.form.items() if name.startswith("pick-")]
    refusals = []
    for run_id, node_id in chosen:
        try:
            asked = await _asked(visit, run_id, node_id)
            if asked is None or asked.form != "gate":
                raise Problem("not_found", "It waits for no approval any more.", runId=run_id)
            await _resolve(visit, run_id, node_id, answer_of(visit.form, asked))
        except Problem as problem:
            refusals.append((run_id, problem.message))
    if not refusals:
        return go(f"/inbox?answered={len(chosen)}")
    questions, more = await open_questions(visit)
    return visit.page(
        "inbox.html",
        http=409,
        questions=questions,
        groups=groups(questions),
        more=more,
        answered=len(chosen) - len(refusals),
        refusals=refusals,
        refused=Refused(),
    )


@page("/inbox/signed-in", "inbox.signed-in", "approvals:respond")
async def signed_in(visit: Visit) -> Response:
    """The question that a sign-in at an MCP server answers, by the state in its address."""
    query = visit.call.request.url.query
    questions, _ = await open_questions(visit)
    asked = next((item for item in questions if item.waits_for(visit.asked("state"))), None)
    edited = canonical.encode({"address": f"{SIGNED_IN}?{query}"}).decode()
    return visit.page("signed_in.html", asked=asked, edited=edited, query="")


@form("/inbox/{runId}/{nodeId}", "inbox.answer", "approvals:respond")
async def answer(visit: Visit) -> Response:
    """Answer a question; one that cannot be read is asked again, with what is wrong beside it."""
    run_id, node_id = visit.path["runId"], visit.path["nodeId"]
    asked = await _asked(visit, run_id, node_id)
    try:
        value = answer_of(visit.form, asked)
    except Problem as problem:
        if asked is None:
            raise
        said = refused(problem, visit.form, visit.form)
        return visit.page(
            "inbox.html",
            http=problem.row.http,
            questions=[asked],
            groups=[],
            more=0,
            answered=0,
            refusals=[],
            refused=said,
        )
    await _resolve(visit, run_id, node_id, value)
    back, _, session = visit.form.get("back", "").partition(":")
    places = {"run": f"/runs/{run_id}", "session": f"/sessions/{segment(session)}"}
    return go(places.get(back, "/inbox"))


async def _asked(visit: Visit, run_id: str, node_id: str) -> Question | None:
    """Return the open question of a node, or None."""
    found = [item for item in await questions_of(visit, run_id) if item.interrupt.node_id == node_id]
    return found[0] if found else None


async def _resolve(visit: Visit, run_id: str, node_id: str, value: Any) -> None:
    body = {"resumeValue": value}
    await visit.host.runs.resolve_by_node(run_id, node_id, visit.tenant, body, visit.caller.name)

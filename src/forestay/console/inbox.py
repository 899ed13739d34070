"""What waits for a person: approvals, clarifications, capability prompts and everything else a run asks."""

from __future__ import annotations

from starlette.responses import Response

from forestay.console.questions import Question, answer_of
from forestay.console.render import go
from forestay.console.visit import Visit, form, page
from forestay.host import Host
from forestay.runs import pending_prompts
from forestay.surface import Caller


async def open_questions(visit: Visit) -> tuple[list[Question], int]:
    """The open questions of the caller's tenant, oldest first, and how many runs more wait; none for a caller who may
    not answer."""
    if "approvals:respond" not in visit.caller.scopes:
        return [], 0
    found = await pending_prompts(visit.host.runs, visit.tenant)
    return [Question(item.run_id, item.workflow_id, item.interrupt) for item in found.prompts], found.more


async def waiting(host: Host, caller: Caller) -> int:
    """How many runs wait for a person, for the number beside the inbox; no run is read for it."""
    if not {"approvals:respond", "runs:read"} <= caller.scopes:
        return 0
    counts = await host.runs.count_runs(caller.tenant)
    return sum(counts.get(status, 0) for status in ("waiting-approval", "waiting-input"))


async def questions_of(visit: Visit, run_id: str) -> list[Question]:
    caller = visit.caller
    if "approvals:respond" not in caller.scopes:
        return []
    return [Question(run_id, "", item) for item in await visit.host.runs.interrupts(run_id, caller.tenant, caller.name)]


@page("/inbox", "inbox", "approvals:respond")
async def show(visit: Visit) -> Response:
    """The open questions of the tenant's runs."""
    questions, more = await open_questions(visit)
    return visit.page("inbox.html", questions=questions, more=more)


@form("/inbox/{runId}/{nodeId}", "inbox.answer", "approvals:respond")
async def answer(visit: Visit) -> Response:
    """Answer a question."""
    run_id, node_id = visit.path["runId"], visit.path["nodeId"]
    asked = [item for item in await questions_of(visit, run_id) if item.interrupt.node_id == node_id]
    body = {"resumeValue": answer_of(visit.form, asked[0] if asked else None)}
    await visit.host.runs.resolve_by_node(run_id, node_id, visit.tenant, body, visit.caller.name)
    return go(f"/runs/{run_id}" if visit.form.get("back") == "run" else "/inbox")

"""What waits for a person: approvals, clarifications, capability prompts and everything else a run asks."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forestay.console.parts import Parts, caller_of, form_of
from forestay.console.questions import Question, answer_of
from forestay.console.render import go
from forestay.runs import pending_prompts
from forestay.surface import Caller


async def open_questions(parts: Parts, caller: Caller) -> tuple[list[Question], int]:
    """The open questions of the caller's tenant, oldest first, and how many runs more wait; none for a caller who may
    not answer."""
    if "approvals:respond" not in caller.scopes:
        return [], 0
    found = await pending_prompts(parts.runs, caller.tenant)
    return [Question(item.run_id, item.workflow_id, item.interrupt) for item in found.prompts], found.more


async def waiting(parts: Parts, caller: Caller) -> int:
    """How many runs wait for a person, for the number beside the inbox; no run is read for it."""
    if not {"approvals:respond", "runs:read"} <= caller.scopes:
        return 0
    counts = await parts.runs.count_runs(caller.tenant)
    return sum(counts.get(status, 0) for status in ("waiting-approval", "waiting-input"))


async def questions_of(parts: Parts, caller: Caller, run_id: str, workflow_id: str = "") -> list[Question]:
    if "approvals:respond" not in caller.scopes:
        return []
    return [
        Question(run_id, workflow_id, item) for item in await parts.runs.interrupts(run_id, caller.tenant, caller.name)
    ]


async def show(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "approvals:respond")
    questions, more = await open_questions(parts, caller)
    return parts.templates.page(request, "inbox.html", questions=questions, more=more)


async def answer(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "approvals:respond")
    form = form_of(request)
    run_id, node_id = request.path_params["run_id"], request.path_params["node_id"]
    asked = [item for item in await questions_of(parts, caller, run_id) if item.interrupt.node_id == node_id]
    body = {"resumeValue": answer_of(form, asked[0] if asked else None)}
    await parts.runs.resolve_by_node(run_id, node_id, caller.tenant, body, caller.name)
    return go(f"/runs/{run_id}" if form.get("back") == "run" else "/inbox")

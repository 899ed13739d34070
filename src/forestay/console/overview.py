"""The first page: what runs, what waits for a person, whether the ledger is well."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forestay.console.inbox import open_questions
from forestay.console.parts import Parts, caller_of
from forestay.host import ASK
from forestay.kernel import canonical
from forestay.runs import RunFilter
from forestay.surface import Caller

_WORKFLOWS = 100

_GROUPS = {
    "running": ["pending", "running", "cancelling"],
    "waiting": ["paused", "waiting-approval", "waiting-input", "waiting-external"],
    "completed": ["completed"],
    "failed": ["failed"],
    "cancelled": ["cancelled"],
}


async def show(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "runs:read")
    recent = await parts.runs.list_runs(RunFilter(), caller.tenant, limit=8)
    by_status = await parts.runs.count_runs(caller.tenant)
    counts = {name: sum(by_status.get(state, 0) for state in states) for name, states in _GROUPS.items()}
    questions, unseen = await open_questions(parts, caller)
    return parts.templates.page(
        request,
        "overview.html",
        counts=counts,
        runs=recent.runs,
        questions=questions[:5],
        waiting=len(questions) + unseen,
        workflows=await _startable(parts, caller),
        agents=list(parts.host.agents) if "runs:create" in caller.scopes else [],
        ask=ASK["id"],
        records=await parts.ledger.position() if request.scope["forestay.session"].is_operator else None,
        facts=parts.facts,
    )


async def _startable(parts: Parts, caller: Caller) -> list[tuple[str, list[str], str]]:
    """The workflows that the caller can start: id, the names of their inputs, and an object to fill in."""
    if "runs:create" not in caller.scopes:
        return []
    found = []
    for item in (await parts.runs.list_workflows(caller.tenant))[:_WORKFLOWS]:
        document = await parts.runs.get_workflow(item.workflow_id, caller.tenant)
        variables = document.get("variables") or []
        names = [str(one["name"]) for one in variables]
        blank = {str(one["name"]): "" for one in variables if one.get("required")}
        found.append((item.workflow_id, names, canonical.encode(blank).decode()))
    return found

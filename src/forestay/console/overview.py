"""The first page: recent runs, open questions and what can be started; and the page of the host's API."""

from __future__ import annotations

from starlette.responses import Response

from forestay.console.faults import Refused
from forestay.console.inbox import open_questions, waiting
from forestay.console.render import VISITOR
from forestay.console.visit import Visit, page
from forestay.host import ASK
from forestay.kernel import canonical
from forestay.runs import RESERVED, RunFilter
from forestay.surface import host_operations

_WORKFLOWS = 100

_GROUPS = {
    "running": ["pending", "running", "cancelling"],
    "waiting": ["paused", "waiting-approval", "waiting-input", "waiting-external"],
    "completed": ["completed"],
    "failed": ["failed"],
    "cancelled": ["cancelled"],
}


@page("/", "overview", "runs:read")
async def show(visit: Visit) -> Response:
    """What runs, what waits, and what can be started."""
    return await overview(visit, Refused())


async def overview(visit: Visit, said: Refused, http: int = 200) -> Response:
    """Render the page; `said` is the form that was refused, or an empty one."""
    host = visit.host
    recent = await host.runs.search(visit.tenant, RunFilter(), limit=8)
    by_status = await host.runs.count_runs(visit.tenant)
    counts = {name: sum(by_status.get(state, 0) for state in states) for name, states in _GROUPS.items()}
    questions, _ = await open_questions(visit)
    return visit.page(
        "overview.html",
        counts=counts,
        runs=recent.runs,
        questions=questions[:5],
        waiting=await waiting(host, visit.caller),
        workflows=await _startable(visit),
        models=host.models.names,
        agents=list(host.agents) if "runs:create" in visit.caller.scopes else [],
        ask=ASK["id"],
        records=await host.ledger.count() if visit.call.request.scope[VISITOR].is_operator else None,
        facts=visit.console.facts,
        http=http,
        refused=said,
    )


@page("/api", "api")
async def api_page(visit: Visit) -> Response:
    """The operations of the host's own API, as its OpenAPI document lists them."""
    return visit.page("api.html", operations=host_operations(visit.console.services))


def _is_for_people(workflow_id: str) -> bool:
    """Whether people start this workflow here: the host's other workflows start in their own ways."""
    return workflow_id == ASK["id"] or not workflow_id.startswith(RESERVED)


async def _startable(visit: Visit) -> list[tuple[str, list[str], str]]:
    """Return the workflows that the caller can start: id, names of inputs, and a JSON object to fill in."""
    if "runs:create" not in visit.caller.scopes:
        return []
    runs = visit.host.runs
    found = []
    listed = await runs.list_workflows(visit.tenant)
    for item in [item for item in listed if _is_for_people(item.workflow_id)][:_WORKFLOWS]:
        document = await runs.get_workflow(item.workflow_id, visit.tenant)
        variables = document.get("variables") or []
        names = [str(one["name"]) for one in variables]
        blank = {str(one["name"]): "" for one in variables if one.get("required")}
        found.append((item.workflow_id, names, canonical.encode(blank).decode()))
    return found

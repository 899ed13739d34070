"""Test seams under `/v1/host/sample/`: they need the explicit flag and a key, and use production code only
(OpenWOP §2)."""

from __future__ import annotations

from typing import Any

from forestay.host import Host
from forestay.kernel import Problem
from forestay.runs import RunEvent, RunFilter, Staged
from forestay.surface.operations import Body, Call, Operations, Query, View

_ACTIVE = ["pending", "running", "paused", "waiting-approval", "waiting-input", "waiting-external", "cancelling"]
_PATH = "/v1/host/sample/test"
api = Operations[Host](tag="seams")


class SeamQuery(Query, frozen=True):
    type: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    node_id: str | None = None


class SeamEvents(View, frozen=True):
    events: list[RunEvent]


class MockProgram(Body, frozen=True):
    node_id: str
    program: list[Staged]


class NewVariables(Body, frozen=True):
    variables: dict[str, Any]


class BudgetQuery(Query, frozen=True):
    node_id: str


@api.post(f"{_PATH}/mock-ai/program", "seams.mock-program", dict[str, Any], scopes=("runs:create",))
async def mock_program(host: Host, call: Call, body: MockProgram) -> dict[str, Any]:
    """Write down what the provider `mock` answers to a node, one entry a call."""
    host.runs.mocks.stage(call.tenant, body.node_id, body.program)
    return {"nodeId": body.node_id, "entries": len(body.program)}


@api.get(f"{_PATH}/mock-ai/last-dispatch-budget", "seams.mock-budget", dict[str, Any], scopes=("runs:read",))
async def mock_budget(host: Host, call: Call, query: BudgetQuery) -> dict[str, Any]:
    """The `maxTokens` of the last call that the provider `mock` answered for a node."""
    return {"maxTokens": host.runs.mocks.last_budget(call.tenant, query.node_id)}


@api.get(f"{_PATH}/runs/{{runId}}/events", "seams.events", SeamEvents, scopes=("runs:read",))
async def events(host: Host, call: Call, query: SeamQuery) -> SeamEvents:
    """Events of a run by type, cause or node; empty for a run that is not there."""
    try:
        found = await host.runs.events(call.path["runId"], call.tenant)
    except Problem as problem:
        if problem.key != "not_found":
            raise
        found = []  # a probe asks for an unknown run, to learn whether the seam exists
    return SeamEvents(events=[event for event in found if _wanted(event, query)])


@api.post(f"{_PATH}/runs/{{runId}}/variables", "seams.variables", dict[str, Any], scopes=("runs:create",))
async def variables(host: Host, call: Call, body: NewVariables) -> dict[str, Any]:
    """Change variables of a run while it goes on."""
    await host.runs.set_variables(call.path["runId"], call.tenant, body.variables)
    return {"runId": call.path["runId"]}


@api.post(f"{_PATH}/reset", "seams.reset", dict[str, Any], scopes=("runs:cancel",))
async def reset(host: Host, call: Call) -> dict[str, Any]:
    """Cancel every active run of the tenant."""
    runs, caller = host.runs, call.caller
    cancelled = 0
    while True:
        page = await runs.list_runs(RunFilter(status=_ACTIVE), caller.tenant, None, 100)
        ids = [item.run_id for item in page.runs if item.status != "cancelling"]
        if not ids:
            return {"cancelled": cancelled}
        results = await runs.bulk_cancel(ids, caller.tenant, caller.principal, "test reset")
        cancelled += len(ids)
        if not any(result.ok for result in results):
            return {"cancelled": cancelled}


def _wanted(event: RunEvent, query: SeamQuery) -> bool:
    payload = event.payload if isinstance(event.payload, dict) else {}
    return (
        query.type in (None, event.type)
        and query.causation_id in (None, event.causation_id)
        and query.node_id in (None, event.node_id, payload.get("nodeId"))
        and query.correlation_id in (None, payload.get("correlationId"))
    )

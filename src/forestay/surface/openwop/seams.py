"""Test seams under `/v1/host/sample/`: only with the explicit flag, only for callers with a key, only through
production code (OpenWOP §2)."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from forestay.kernel import Problem
from forestay.runs import RunEvent, RunFilter, Staged
from forestay.surface.operations import Body, Call, Operation, Query, Result
from forestay.surface.services import Services

_ACTIVE = ["pending", "running", "paused", "waiting-approval", "waiting-input", "waiting-external", "cancelling"]


class SeamQuery(Query, frozen=True):
    type: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    node_id: str | None = None


class SeamEvents(Result, frozen=True, omit_defaults=False):
    events: list[RunEvent]


class MockProgram(Body, frozen=True):
    node_id: str
    program: list[Staged]


class BudgetQuery(Query, frozen=True):
    node_id: str


def operations(services: Services) -> list[Operation]:
    if not services.sample_seams:
        return []
    runs = services.runs

    async def events(call: Call) -> Response:
        query: SeamQuery = call.query
        try:
            found = await runs.events(call.path["runId"], call.caller.tenant)
        except Problem as problem:
            if problem.key != "not_found":
                raise
            found = []  # a probe asks for a run that is not there, to see whether the seam is
        return call.answer(SeamEvents(events=[event for event in found if _wanted(event, query)]))

    async def reset(call: Call) -> Response:
        """End what the tenant has running, as cancelling each run would."""
        caller = call.caller
        cancelled = 0
        while True:
            page = await runs.list_runs(RunFilter(status=_ACTIVE), caller.tenant, None, 100)
            ids = [item.run_id for item in page.runs if item.status != "cancelling"]
            if not ids:
                return call.answer({"cancelled": cancelled})
            results = await runs.bulk_cancel(ids, caller.tenant, caller.principal, "test reset")
            cancelled += len(ids)
            if not any(result.ok for result in results):
                return call.answer({"cancelled": cancelled})

    async def program(call: Call) -> Response:
        body: MockProgram = call.body
        runs.mocks.stage(call.caller.tenant, body.node_id, body.program)
        return call.answer({"nodeId": body.node_id, "entries": len(body.program)})

    async def budget(call: Call) -> Response:
        query: BudgetQuery = call.query
        return call.answer({"maxTokens": runs.mocks.last_budget(call.caller.tenant, query.node_id)})

    return [
        Operation(
            name="seams.mock-program",
            method="POST",
            path="/v1/host/sample/test/mock-ai/program",
            perform=program,
            summary="Write down what the provider `mock` answers to a node, one entry a call.",
            scopes=("runs:create",),
            body=MockProgram,
            answers={200: dict[str, Any]},
            problems=("schema_mismatch",),
            tag="seams",
        ),
        Operation(
            name="seams.mock-budget",
            method="GET",
            path="/v1/host/sample/test/mock-ai/last-dispatch-budget",
            perform=budget,
            summary="The `maxTokens` of the last call that the provider `mock` answered for a node.",
            scopes=("runs:read",),
            query=BudgetQuery,
            answers={200: dict[str, Any]},
            problems=("schema_mismatch",),
            tag="seams",
        ),
        Operation(
            name="seams.events",
            method="GET",
            path="/v1/host/sample/test/runs/{runId}/events",
            perform=events,
            summary="Events of a run by type, cause or node; empty for a run that is not there.",
            scopes=("runs:read",),
            query=SeamQuery,
            answers={200: SeamEvents},
            problems=("schema_mismatch",),
            tag="seams",
        ),
        Operation(
            name="seams.reset",
            method="POST",
            path="/v1/host/sample/test/reset",
            perform=reset,
            summary="Cancel every active run of the tenant.",
            scopes=("runs:cancel",),
            answers={200: dict[str, Any]},
            tag="seams",
        ),
    ]


def _wanted(event: RunEvent, query: SeamQuery) -> bool:
    payload = event.payload if isinstance(event.payload, dict) else {}
    return (
        query.type in (None, event.type)
        and query.causation_id in (None, event.causation_id)
        and query.node_id in (None, event.node_id, payload.get("nodeId"))
        and query.correlation_id in (None, payload.get("correlationId"))
    )

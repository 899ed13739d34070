"""Workflow definitions: read, list, store, check (OpenWOP §1.1, §1.6, W4)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from holdfast.http.operations import Call, Operation, Query, Result
from holdfast.http.services import Services
from holdfast.runs.types import WorkflowCheck, WorkflowVersion

_DOCUMENT_LIMIT = 4 * 1024 * 1024


class RevisionQuery(Query, frozen=True):
    revision: Annotated[int, Meta(ge=1, le=2**31)] | None = None


class Workflows(Result, frozen=True, omit_defaults=False):
    workflows: list[WorkflowVersion]


def operations(services: Services) -> list[Operation]:
    runs = services.runs

    async def list_(call: Call) -> Response:
        return call.answer(Workflows(workflows=await runs.list_workflows(call.caller.tenant)))

    async def get(call: Call) -> Response:
        return call.answer(await runs.get_workflow(call.path["workflowId"], call.caller.tenant, call.query.revision))

    async def put(call: Call) -> Response:
        caller = call.caller
        made = await runs.put_workflow(
            call.body, tenant=caller.tenant, principal=caller.principal, workflow_id=call.path["workflowId"]
        )
        return call.answer(made, 201 if made.created else 200)

    async def check(call: Call) -> Response:
        return call.answer(runs.check_workflow(call.body))

    return [
        Operation(
            name="workflows.list",
            method="GET",
            path="/v1/workflows",
            perform=list_,
            summary="The workflows that the caller's tenant can run.",
            scopes=("manifest:read",),
            answers={200: Workflows},
            tag="workflows",
        ),
        Operation(
            name="workflows.get",
            method="GET",
            path="/v1/workflows/{workflowId}",
            perform=get,
            summary="A definition, the latest unless a revision is asked for.",
            scopes=("manifest:read",),
            query=RevisionQuery,
            answers={200: dict[str, Any]},
            problems=("schema_mismatch", "not_found"),
            tag="workflows",
        ),
        Operation(
            name="workflows.put",
            method="PUT",
            path="/v1/workflows/{workflowId}",
            perform=put,
            summary="Store a definition; what is wrong with it is said with its place.",
            scopes=("manifest:write",),
            body=dict[str, Any],
            body_limit=_DOCUMENT_LIMIT,
            answers={200: WorkflowVersion, 201: WorkflowVersion},
            problems=("workflow_invalid", "schema_mismatch", "channel_schema_breaking_change", "conflict"),
            tag="workflows",
        ),
        Operation(
            name="workflows.check",
            method="POST",
            path="/v1/workflows:check",
            perform=check,
            summary="What is wrong with a definition; nothing is stored.",
            scopes=("manifest:read",),
            body=dict[str, Any],
            body_limit=_DOCUMENT_LIMIT,
            answers={200: WorkflowCheck},
            problems=("schema_mismatch",),
            tag="workflows",
        ),
    ]

"""Workflow definitions: read, list, store, check (OpenWOP §1.1, §1.6, W4)."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from forestay.kernel import Problem
from forestay.runs import Condition, WorkflowCheck, WorkflowVersion
from forestay.surface.operations import Call, Operation, Query, Result
from forestay.surface.services import Services

_DOCUMENT_LIMIT = 4 * 1024 * 1024
_TAG = re.compile(r'"[!#-~]*"')


class RevisionQuery(Query, frozen=True):
    revision: Annotated[int, Meta(ge=1, le=2**31)] | None = None


class Workflows(Result, frozen=True, omit_defaults=False):
    workflows: list[WorkflowVersion]


def _condition(call: Call) -> Condition | None:
    """What the request asks of the latest revision (RFC 9110 §13.1); None when it asks nothing."""
    wanted, unwanted = call.request.headers.get("if-match"), call.request.headers.get("if-none-match")
    if wanted is None and unwanted is None:
        return None
    if unwanted not in (None, "*"):
        raise Problem("schema_mismatch", "A PUT knows `If-None-Match: *` only.", at="If-None-Match")
    if wanted is None or wanted.strip() == "*":
        return Condition(exists=wanted is not None)
    tags = [item.strip() for item in wanted.split(",")]
    if not all(map(_TAG.fullmatch, tags)):
        fix = "Send the ETag that GET or PUT answered."
        raise Problem("schema_mismatch", "If-Match is `*` or a list of quoted tags.", at="If-Match", fix=fix)
    return Condition(digests=frozenset(item.strip('"') for item in tags))


def operations(services: Services) -> list[Operation]:
    runs = services.runs

    async def list_(call: Call) -> Response:
        return call.answer(Workflows(workflows=await runs.list_workflows(call.caller.tenant)))

    async def get(call: Call) -> Response:
        found = await runs.stored_workflow(call.path["workflowId"], call.caller.tenant, call.query.revision)
        tag = f'"{found.digest}"'
        status = 304 if tag in call.request.headers.get("if-none-match", "") else 200
        return call.answer(found.document, status, {"ETag": tag})

    async def put(call: Call) -> Response:
        caller = call.caller
        made = await runs.put_workflow(
            call.body,
            tenant=caller.tenant,
            principal=caller.principal,
            workflow_id=call.path["workflowId"],
            condition=_condition(call),
        )
        return call.answer(made, 201 if made.created else 200, {"ETag": f'"{made.digest}"'})

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
            answers={200: dict[str, Any], 304: None},
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
            headers=("If-Match", "If-None-Match"),
            answers={200: WorkflowVersion, 201: WorkflowVersion},
            problems=("workflow_invalid", "schema_mismatch", "channel_schema_breaking_change", "precondition_failed"),
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

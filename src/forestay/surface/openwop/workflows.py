"""Workflow definitions: read, list, store, check (OpenWOP §1.1, §1.6, W4)."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from forestay.host import Host
from forestay.kernel import Problem
from forestay.runs import Condition, WorkflowCheck, WorkflowVersion
from forestay.surface.operations import Call, Operations, Query, View

_DOCUMENT_LIMIT = 4 * 1024 * 1024
_TAG = re.compile(r'"[!#-~]*"')
api = Operations[Host](scopes=("manifest:read",), tag="workflows")


class RevisionQuery(Query, frozen=True):
    revision: Annotated[int, Meta(ge=1, le=2**31)] | None = None


class Workflows(View, frozen=True):
    workflows: list[WorkflowVersion]


def _condition(call: Call) -> Condition | None:
    """Return the request's precondition on the latest revision (RFC 9110 §13.1), or None."""
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


@api.get("/v1/workflows", "workflows.list", Workflows)
async def list_workflows(host: Host, call: Call) -> Workflows:
    """The workflows that the caller's tenant can run."""
    return Workflows(workflows=await host.runs.list_workflows(call.tenant))


@api.get("/v1/workflows/{workflowId}", "workflows.get", {200: dict[str, Any], 304: None})
async def get(host: Host, call: Call, query: RevisionQuery) -> Response:
    """A definition, the latest unless a revision is asked for."""
    found = await host.runs.stored_workflow(call.path["workflowId"], call.tenant, query.revision)
    tag = f'"{found.digest}"'
    status = 304 if tag in call.request.headers.get("if-none-match", "") else 200
    return call.answer(found.document, status, {"ETag": tag})


@api.put(
    "/v1/workflows/{workflowId}",
    "workflows.put",
    {200: WorkflowVersion, 201: WorkflowVersion},
    scopes=("manifest:write",),
    body_limit=_DOCUMENT_LIMIT,
    headers=("If-Match", "If-None-Match"),
    problems=("workflow_invalid", "channel_schema_breaking_change", "precondition_failed"),
)
async def put(host: Host, call: Call, body: dict[str, Any]) -> Response:
    """Store a definition; what is wrong with it is said with its place."""
    caller = call.caller
    made = await host.runs.put_workflow(
        body,
        tenant=caller.tenant,
        principal=caller.principal,
        workflow_id=call.path["workflowId"],
        condition=_condition(call),
    )
    return call.answer(made, 201 if made.created else 200, {"ETag": f'"{made.digest}"'})


@api.post("/v1/workflows:check", "workflows.check", WorkflowCheck, body_limit=_DOCUMENT_LIMIT)
async def check(host: Host, call: Call, body: dict[str, Any]) -> WorkflowCheck:
    """What is wrong with a definition; nothing is stored."""
    return host.runs.check_workflow(body)

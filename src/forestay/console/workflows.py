"""Workflows: the list, and each one's graph, document and newest runs."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from forestay.console.visit import Visit, page
from forestay.kernel import canonical
from forestay.runs import RESERVED, RunFilter, svg

_RECENT = 10


@page("/workflows", "workflows", "manifest:read")
async def listing(visit: Visit) -> Response:
    """The workflows that the tenant can run."""
    found = await visit.host.runs.list_workflows(visit.tenant)
    own = [item for item in found if not item.workflow_id.startswith(RESERVED)]
    return visit.page("workflows.html", workflows=own, others=[item for item in found if item not in own])


@page("/workflows/{workflowId}", "workflows.show", "manifest:read")
async def show(visit: Visit) -> Response:
    """One workflow: its graph, its document, its newest runs, and a form that starts one."""
    workflow_id = visit.path["workflowId"]
    stored = await visit.host.runs.stored_workflow(workflow_id, visit.tenant)
    reads = "runs:read" in visit.caller.scopes
    wanted = RunFilter(workflow_id=workflow_id)
    recent = await visit.host.runs.search(visit.tenant, wanted, limit=_RECENT) if reads else None
    variables: list[dict[str, Any]] = stored.document.get("variables") or []
    blank = {str(one["name"]): "" for one in variables if one.get("required")}
    return visit.page(
        "workflow.html",
        workflow=stored.document,
        document={**stored.document, "variables": [_shown(item) for item in variables]},
        digest=stored.digest,
        graph=svg(stored.document),
        variables=variables,
        blank=canonical.encode(blank).decode() if blank else "",
        recent=recent.runs if recent else [],
    )


def _shown(variable: dict[str, Any]) -> dict[str, Any]:
    """Return a variable; a sensitive default is redacted."""
    hidden = variable.get("sensitive") and "defaultValue" in variable
    return {**variable, "defaultValue": "[REDACTED]"} if hidden else variable

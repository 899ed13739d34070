"""Schedules: runs that start by the clock."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from forestay.console.faults import Refused, refused, typed_inputs
from forestay.console.render import go
from forestay.console.visit import Visit, form, page
from forestay.kernel import Problem, canonical
from forestay.runs import ScheduleSpec

_FIELDS = ("workflowId", "cron", "timezone", "inputs", "overlap")


@page("/schedules", "schedules", "schedules:manage")
async def listing(visit: Visit) -> Response:
    """The tenant's schedules, and a form for another one."""
    return await _listing(visit, Refused({"workflowId": visit.asked("workflow")}))


@form("/schedules", "schedules.create", "schedules:manage")
async def create(visit: Visit) -> Response:
    """Start runs of a workflow by the clock."""
    try:
        await visit.host.schedules.create(
            _spec(visit.form), visit.tenant, visit.caller.principal, visit.caller.workspace
        )
    except Problem as problem:
        return await _listing(visit, refused(problem, visit.form, _FIELDS), problem.row.http)
    return go("/schedules")


@form("/schedules/{scheduleId}/pause", "schedules.pause", "schedules:manage")
async def pause(visit: Visit) -> Response:
    """Start nothing until it is resumed."""
    await visit.host.schedules.pause(visit.path["scheduleId"], visit.tenant)
    return go("/schedules")


@form("/schedules/{scheduleId}/resume", "schedules.resume", "schedules:manage")
async def resume(visit: Visit) -> Response:
    """Go on with the next moment."""
    await visit.host.schedules.resume(visit.path["scheduleId"], visit.tenant)
    return go("/schedules")


@form("/schedules/{scheduleId}/delete", "schedules.delete", "schedules:manage")
async def delete(visit: Visit) -> Response:
    """End a schedule."""
    await visit.host.schedules.delete(visit.path["scheduleId"], visit.tenant)
    return go("/schedules")


def _spec(fields: Any) -> ScheduleSpec:
    given = {name: fields.get(name, "").strip() for name in _FIELDS}
    spec: dict[str, Any] = {name: value for name, value in given.items() if value and name != "inputs"}
    spec["inputs"] = typed_inputs(given["inputs"])
    try:
        return msgspec.convert(spec, ScheduleSpec)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$")
        raise Problem("schema_mismatch", f"{message}.", at=where) from error


async def _listing(visit: Visit, said: Refused, http: int = 200) -> Response:
    return visit.page(
        "schedules.html",
        http=http,
        schedules=await visit.host.schedules.schedules(visit.tenant),
        workflows=await visit.host.runs.list_workflows(visit.tenant),
        refused=said,
    )

"""Operations on schedules (W4)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from forestay.host import Host
from forestay.kernel import moment_of
from forestay.runs import Firing, Schedule
from forestay.surface.openwop.bodies import NewSchedule
from forestay.surface.operations import Body, Call, Operations, View

_PATH = "/v1/schedules/{scheduleId}"
_BAD = ("not_found", "out_of_range", "state_conflict")
Moment = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]
api = Operations[Host](scopes=("schedules:manage",), tag="schedules")


class Range(Body, frozen=True):
    from_: Moment
    to: Moment


class Backfill(Range, frozen=True, rename={"from_": "from"}):
    """The moments in [from, to]."""


class Schedules(View, frozen=True):
    schedules: list[Schedule]


class Firings(View, frozen=True):
    runs: list[Firing]


@api.post("/v1/schedules", "schedules.create", {201: Schedule}, problems=_BAD)
async def create(host: Host, call: Call, body: NewSchedule) -> Schedule:
    """Start runs by the clock."""
    caller = call.caller
    return await host.schedules.create(
        body, caller.tenant, caller.principal, caller.workspace, schedule_id=call.id_for("sch")
    )


@api.get("/v1/schedules", "schedules.list", Schedules)
async def list_schedules(host: Host, call: Call) -> Schedules:
    """The tenant's schedules."""
    return Schedules(schedules=await host.schedules.schedules(call.tenant))


@api.get(_PATH, "schedules.get", Schedule)
async def get(host: Host, call: Call) -> Schedule:
    """One schedule and when it starts its next run."""
    return await host.schedules.get(call.path["scheduleId"], call.tenant)


@api.put(_PATH, "schedules.update", Schedule, problems=_BAD)
async def update(host: Host, call: Call, body: NewSchedule) -> Schedule:
    """Change a schedule."""
    return await host.schedules.update(call.path["scheduleId"], call.tenant, body)


@api.delete(_PATH, "schedules.delete", {204: None})
async def delete(host: Host, call: Call) -> None:
    """End a schedule."""
    await host.schedules.delete(call.path["scheduleId"], call.tenant)


@api.post(f"{_PATH}:pause", "schedules.pause", Schedule)
async def pause(host: Host, call: Call) -> Schedule:
    """Start no runs until it is resumed."""
    return await host.schedules.pause(call.path["scheduleId"], call.tenant)


@api.post(f"{_PATH}:resume", "schedules.resume", Schedule)
async def resume(host: Host, call: Call) -> Schedule:
    """Go on with the next moment."""
    return await host.schedules.resume(call.path["scheduleId"], call.tenant)


@api.post(f"{_PATH}:backfill", "schedules.backfill", Firings, problems=("out_of_range", "run_already_active"))
async def backfill(host: Host, call: Call, body: Backfill) -> Firings:
    """Start the runs of past moments, each at most once."""
    start, end = moment_of(body.from_, "$.from"), moment_of(body.to, "$.to")
    return Firings(runs=await host.schedules.backfill(call.path["scheduleId"], call.tenant, start, end))

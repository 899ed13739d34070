"""Operations on schedules (W4)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from forestay.kernel import moment_of
from forestay.runs import Firing, Schedule
from forestay.surface.openwop.bodies import NewSchedule
from forestay.surface.operations import Body, Call, Operation, Perform, Result
from forestay.surface.services import Services

_PATH = "/v1/schedules/{scheduleId}"
Moment = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]


class Range(Body, frozen=True):
    from_: Moment
    to: Moment


class Backfill(Range, frozen=True, rename={"from_": "from"}):
    """The moments in [from, to]."""


class Schedules(Result, frozen=True, omit_defaults=False):
    schedules: list[Schedule]


class Firings(Result, frozen=True, omit_defaults=False):
    runs: list[Firing]


def operations(services: Services) -> list[Operation]:
    schedules = services.schedules

    async def create(call: Call) -> Response:
        caller = call.caller
        made = await schedules.create(
            call.body, caller.tenant, caller.principal, caller.workspace, schedule_id=call.id_for("sch")
        )
        return call.answer(made, 201)

    async def update(call: Call) -> Response:
        return call.answer(await schedules.update(call.path["scheduleId"], call.caller.tenant, call.body))

    async def list_(call: Call) -> Response:
        return call.answer(Schedules(schedules=await schedules.schedules(call.caller.tenant)))

    async def get(call: Call) -> Response:
        return call.answer(await schedules.get(call.path["scheduleId"], call.caller.tenant))

    async def delete(call: Call) -> Response:
        await schedules.delete(call.path["scheduleId"], call.caller.tenant)
        return call.answer(status=204)

    async def pause(call: Call) -> Response:
        return call.answer(await schedules.pause(call.path["scheduleId"], call.caller.tenant))

    async def resume(call: Call) -> Response:
        return call.answer(await schedules.resume(call.path["scheduleId"], call.caller.tenant))

    async def backfill(call: Call) -> Response:
        start, end = moment_of(call.body.from_, "$.from"), moment_of(call.body.to, "$.to")
        found = await schedules.backfill(call.path["scheduleId"], call.caller.tenant, start, end)
        return call.answer(Firings(runs=found))

    def operation(name: str, method: Any, path: str, perform: Perform, summary: str, **more: Any) -> Operation:
        common: dict[str, Any] = {
            "scopes": ("schedules:manage",),
            "answers": {200: Schedule},
            "problems": ("not_found",),
            "tag": "schedules",
        }
        return Operation(
            name=f"schedules.{name}", method=method, path=path, perform=perform, summary=summary, **{**common, **more}
        )

    bad = ("schema_mismatch", "out_of_range", "payload_too_large", "not_found", "state_conflict")
    return [
        operation(
            "create",
            "POST",
            "/v1/schedules",
            create,
            "Start runs by the clock.",
            body=NewSchedule,
            answers={201: Schedule},
            problems=bad,
        ),
        operation(
            "list", "GET", "/v1/schedules", list_, "The tenant's schedules.", answers={200: Schedules}, problems=()
        ),
        operation("get", "GET", _PATH, get, "One schedule and when it starts its next run."),
        operation("update", "PUT", _PATH, update, "Change a schedule.", body=NewSchedule, problems=bad),
        operation("delete", "DELETE", _PATH, delete, "End a schedule.", answers={204: None}),
        operation("pause", "POST", f"{_PATH}:pause", pause, "Start no runs until it is resumed."),
        operation("resume", "POST", f"{_PATH}:resume", resume, "Go on with the next moment."),
        operation(
            "backfill",
            "POST",
            f"{_PATH}:backfill",
            backfill,
            "Start the runs of past moments, each at most once.",
            body=Backfill,
            answers={200: Firings},
            problems=("schema_mismatch", "out_of_range", "not_found", "run_already_active"),
        ),
    ]

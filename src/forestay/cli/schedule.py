"""Schedules: runs that start by the clock."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, json_object, reading
from forestay.cli.output import Answer

_PATH = "/v1/schedules"
app = Group("schedule")
ScheduleId = Annotated[str, typer.Argument(help="The schedule's id, as `schedule list` shows it.")]


@app.command("list", using=reading)
async def list_(host: Connection) -> Answer:
    """The schedules of the tenant."""
    found = await host.get(_PATH)
    return Answer(found, human=[_line(item) for item in found["schedules"]] or ["No schedules."])


@app.command("create", using=connected)
async def create(
    host: Connection,
    workflow: Annotated[str, typer.Argument(help="The workflow to start.")],
    cron: Annotated[str, typer.Argument(help="When: minute hour day month weekday, as one word: '0 7 * * 1-5'.")],
    timezone: Annotated[str, typer.Option(help="The time zone of the cron words.")] = "UTC",
    inputs: Annotated[str | None, typer.Option(help="Inputs as JSON, @file or - for standard input.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag of its runs; may be repeated.")] = None,
    overlap: Annotated[
        Literal["skip", "queue", "allow", "cancel-previous"],
        typer.Option(help="What happens when the run before is still active."),
    ] = "skip",
    catch_up: Annotated[
        Literal["skip", "latest", "all"], typer.Option(help="What is done about moments missed while no host was up.")
    ] = "latest",
) -> Answer:
    """Start runs of a workflow by the clock."""
    wanted = {
        "workflowId": workflow,
        "cron": cron,
        "timezone": timezone,
        "inputs": json_object(inputs, "--inputs") or {},
        "tags": tag or [],
        "overlap": overlap,
        "catchUp": catch_up,
    }
    made = await host.post(_PATH, wanted)
    return Answer(made, human=[_line(made)])


@app.command("show", using=reading)
async def show(host: Connection, schedule: ScheduleId) -> Any:
    """One schedule, and when it starts its next run."""
    return await host.get(f"{_PATH}/{schedule}")


@app.command("pause", using=connected)
async def pause(host: Connection, schedule: ScheduleId) -> Answer:
    """Start nothing until it is resumed."""
    made = await host.post(f"{_PATH}/{schedule}:pause")
    return Answer(made, human=[_line(made)])


@app.command("resume", using=connected)
async def resume(host: Connection, schedule: ScheduleId) -> Answer:
    """Go on with the next moment."""
    made = await host.post(f"{_PATH}/{schedule}:resume")
    return Answer(made, human=[_line(made)])


@app.command("delete", using=connected)
async def delete(host: Connection, schedule: ScheduleId) -> Answer:
    """End a schedule; its runs stay."""
    await host.ask("DELETE", f"{_PATH}/{schedule}")
    return Answer({"deleted": schedule}, human=[f"deleted {schedule}"])


@app.command("backfill", using=connected)
async def backfill(
    host: Connection,
    schedule: ScheduleId,
    start: Annotated[str, typer.Option("--from", help="The first moment, RFC 3339.")],
    end: Annotated[str, typer.Option("--to", help="The last moment, RFC 3339.")],
) -> Answer:
    """Start the runs of past moments, each at most once."""
    made = await host.post(f"{_PATH}/{schedule}:backfill", {"from": start, "to": end})
    lines = [f"{item['scheduledFor']}  {item['runId']}" for item in made["runs"]]
    return Answer(made, human=lines or ["No moment lies between them."])


def _line(item: dict[str, Any]) -> str:
    spec, state = item["spec"], item.get("state", "active")
    after = f"next {item['nextAt']}" if item.get("nextAt") and state == "active" else ""
    when = f"{spec['cron']} {spec.get('timezone', 'UTC')}"
    return f"{item['scheduleId']}  {state:<7} {when:<24} {spec['workflowId']}  {after}".rstrip()

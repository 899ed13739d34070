"""Triggers: events from outside that start runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, json_object, reading
from forestay.cli.output import Answer

_PATH = "/host/v1/trigger-subscriptions"
app = Group("trigger")
Subscription = Annotated[str, typer.Argument(help="The subscription's id.")]


@app.command("list", using=reading)
async def list_(host: Connection) -> Answer:
    """The subscriptions of the tenant."""
    found = await host.get(_PATH)
    return Answer(found, human=map(_line, found["subscriptions"]))


@app.command("subscribe", using=connected)
async def subscribe(
    host: Connection,
    source: Annotated[
        Literal["queue", "webhook", "schedule", "email", "form"], typer.Argument(help="Where the events come from.")
    ],
    workflow: Annotated[str, typer.Argument(help="The workflow that they start.")],
    member: Annotated[str | None, typer.Option(help="The member of the roster whose run it is.")] = None,
    attempts: Annotated[int, typer.Option(min=1, max=100, help="Tries before an event is a dead letter.")] = 5,
    backoff: Annotated[
        Literal["none", "fixed", "exponential"], typer.Option(help="How the pause between tries grows.")
    ] = "exponential",
    cron: Annotated[str, typer.Option(help="With schedule: when, as a cron expression.")] = "",
    timezone: Annotated[str, typer.Option(help="With schedule: the zone of --cron.")] = "UTC",
    inputs: Annotated[str | None, typer.Option(help="With schedule: inputs as JSON, @file or -.")] = None,
    mailbox: Annotated[str, typer.Option(help="With email: a mailbox of the settings.")] = "",
) -> Answer:
    """Let events of a source start a workflow; the secret of a webhook is shown once."""
    retry = {"maxAttempts": attempts, "backoff": backoff}
    wanted = {"source": source, "workflowId": workflow, "retryPolicy": retry}
    told = {
        "rosterId": member,
        "cron": cron,
        "timezone": timezone if cron else None,
        "inputs": json_object(inputs, "--inputs"),
        "mailbox": mailbox,
    }
    made = await host.post(_PATH, wanted | {name: value for name, value in told.items() if value})
    return Answer(made, human=_bound(made))


@app.command("pause", using=connected)
async def pause(host: Connection, subscription: Subscription) -> Answer:
    """Take no events until it is resumed."""
    made = await host.post(f"{_PATH}/{subscription}:pause")
    return Answer(made, human=[_line(made)])


@app.command("resume", using=connected)
async def resume(host: Connection, subscription: Subscription) -> Answer:
    """Go on, after a pause or after a dead letter."""
    made = await host.post(f"{_PATH}/{subscription}:resume")
    return Answer(made, human=[_line(made)])


@app.command("remove", using=connected)
async def remove(host: Connection, subscription: Subscription) -> Answer:
    """End a subscription; what is due of it is a dead letter."""
    await host.ask("DELETE", f"{_PATH}/{subscription}")
    return Answer({"removed": subscription}, human=[f"removed {subscription}"])


@app.command("deliver", using=connected)
async def deliver(
    host: Connection,
    subscription: Subscription,
    event: Annotated[str, typer.Argument(help="Your id of the event: the same one again starts nothing.")],
    inputs: Annotated[str | None, typer.Option(help="Inputs as JSON, @file or - for standard input.")] = None,
) -> Answer:
    """Put an event into the queue of a subscription."""
    body = {"eventId": event, "inputs": json_object(inputs, "--inputs") or {}}
    made = await host.post(f"{_PATH}/{subscription}:deliver", body)
    return Answer(made, human=[_delivery(made)])


@app.command("deliveries", using=reading)
async def deliveries(
    host: Connection,
    state: Annotated[
        Literal["due", "delivered", "dead"] | None, typer.Option(help="Only these; dead are the dead letters.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, the newest first.")] = 50,
) -> Answer:
    """Events that came in, and what became of them."""
    found = await host.get("/host/v1/trigger-deliveries", state=state, limit=limit)
    return Answer(found, human=map(_delivery, found["deliveries"]))


@app.command("redrive", using=connected)
async def redrive(
    host: Connection, delivery: Annotated[str, typer.Argument(help="The id of a dead letter.")]
) -> Answer:
    """Try a dead letter again."""
    made = await host.post(f"/host/v1/trigger-deliveries/{delivery}:redrive")
    return Answer(made, human=[_delivery(made)])


def _bound(made: dict[str, Any]) -> Iterator[str]:
    yield _line(made["subscription"])
    if "path" in made["binding"]:
        form = made["subscription"]["source"] == "form"
        yield f"  {'the form is at' if form else 'events go to '} {'' if form else 'POST '}{made['binding']['path']}"
    if "secret" in made["binding"]:
        yield f"  secret        {made['binding']['secret']}  (shown once)"


def _line(item: dict[str, Any]) -> str:
    more = "".join(f"  {item[name]}" for name in ("cron", "mailbox", "rosterId") if name in item)
    return f"{item['subscriptionId']}  {item['source']:<8} {item['state']:<14} {item['workflowId']}{more}"


def _delivery(item: dict[str, Any]) -> str:
    became = item.get("runId") or item.get("error") or ""
    return (
        f"{item['deliveryId']}  {item['state']:<10} {item['attempts']} tried  {item['receivedAt']}  {became}".rstrip()
    )

"""Webhooks: addresses that events are sent to."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, reading
from forestay.cli.output import Answer

_PATH = "/v1/webhooks"
app = Group("webhook")
WebhookId = Annotated[str, typer.Argument(help="The webhook's id, as `webhook list` shows it.")]


@app.command("list", using=reading)
async def list_(host: Connection) -> Answer:
    """The webhooks of the tenant."""
    found = await host.get(_PATH)
    return Answer(found, human=[_line(item) for item in found["webhooks"]] or ["No webhooks."])


@app.command("register", using=connected)
async def register(
    host: Connection,
    address: Annotated[str, typer.Argument(help="Where events are sent.")],
    events: Annotated[list[str], typer.Argument(help="Types of events: run.completed run.failed …")],
    tag: Annotated[list[str] | None, typer.Option(help="Only of runs with this tag; may be repeated.")] = None,
) -> Answer:
    """Tell an address of events; its secret is shown once."""
    made = await host.post(_PATH, {"url": address, "events": events, "tags": tag or []})
    return Answer(made, human=_secret(made))


@app.command("rotate", using=connected)
async def rotate(host: Connection, webhook: WebhookId) -> Answer:
    """A new secret, shown once; for a day deliveries carry the old signature too."""
    made = await host.post(f"{_PATH}/{webhook}:rotate")
    return Answer(made, human=_secret(made))


@app.command("remove", using=connected)
async def remove(host: Connection, webhook: WebhookId) -> Answer:
    """Tell an address nothing more."""
    await host.ask("DELETE", f"{_PATH}/{webhook}")
    return Answer({"removed": webhook}, human=[f"removed {webhook}"])


@app.command("deliveries", using=reading)
async def deliveries(host: Connection, webhook: WebhookId) -> Answer:
    """What is on its way, and dead letters."""
    found = await host.get(f"{_PATH}/{webhook}/deliveries")
    return Answer(found, human=[_delivery(item) for item in found["deliveries"]] or ["Everything was delivered."])


@app.command("retry", using=connected)
async def retry(
    host: Connection, webhook: WebhookId, delivery: Annotated[str, typer.Argument(help="The id of a dead letter.")]
) -> Answer:
    """Take a dead letter up again."""
    await host.post(f"{_PATH}/{webhook}/deliveries/{delivery}:retry")
    return Answer({"retried": delivery}, human=[f"retried {delivery}"])


def _secret(made: dict[str, Any]) -> list[str]:
    return [made["webhookId"], f"  secret  {made['secret']}  (shown once)"]


def _line(item: dict[str, Any]) -> str:
    return f"{item['webhookId']}  {item.get('state', 'active'):<8} {item['url']}  {' '.join(item['events'])}"


def _delivery(item: dict[str, Any]) -> str:
    said = f"{item['deliveryId']}  {item['state']:<8} {item['attempts']} tried  {item['type']}  {item['runId']}"
    return f"{said}  {item.get('error') or ''}".rstrip()

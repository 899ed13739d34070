"""Webhooks: subscriptions of addresses to events, and their failed deliveries."""

from __future__ import annotations

from starlette.responses import Response

from forestay.console.faults import Refused, refused
from forestay.console.render import go, segment
from forestay.console.visit import Visit, form, page
from forestay.kernel import Problem
from forestay.runs import Registered

_FIELDS = ("url", "events", "tags")


@page("/webhooks", "webhooks", "webhooks:manage")
async def listing(visit: Visit) -> Response:
    """The tenant's subscriptions, and a form for another one."""
    return await _listing(visit, Refused())


@form("/webhooks", "webhooks.register", "webhooks:manage")
async def register(visit: Visit) -> Response:
    """Subscribe an address to events; its secret is shown on the page that answers, once."""
    fields = visit.form
    try:
        made = await visit.host.webhooks.register(
            visit.tenant,
            fields.get("url", "").strip(),
            _words(fields.get("events", "")),
            _words(fields.get("tags", "")),
        )
    except Problem as problem:
        return await _listing(visit, refused(problem, fields, _FIELDS), http=problem.row.http)
    return await _listing(visit, Refused(), made)


@page("/webhooks/{webhookId}", "webhooks.show", "webhooks:manage")
async def show(visit: Visit) -> Response:
    """One subscription, with what is on its way and what is dead."""
    webhook_id = visit.path["webhookId"]
    return visit.page(
        "webhook.html",
        hook=await visit.host.webhooks.get(webhook_id, visit.tenant),
        deliveries=await visit.host.webhooks.deliveries(webhook_id, visit.tenant),
    )


@form("/webhooks/{webhookId}/rotate", "webhooks.rotate", "webhooks:manage")
async def rotate(visit: Visit) -> Response:
    """A new secret, shown once; for a day deliveries carry the old signature too."""
    return await _listing(visit, Refused(), await visit.host.webhooks.rotate(visit.path["webhookId"], visit.tenant))


@form("/webhooks/{webhookId}/remove", "webhooks.remove", "webhooks:manage")
async def remove(visit: Visit) -> Response:
    """Tell this address nothing more."""
    await visit.host.webhooks.remove(visit.path["webhookId"], visit.tenant)
    return go("/webhooks")


@form("/webhooks/{webhookId}/deliveries/{deliveryId}/retry", "webhooks.retry", "webhooks:manage")
async def retry(visit: Visit) -> Response:
    """Take a dead letter up again."""
    webhook_id = visit.path["webhookId"]
    await visit.host.webhooks.retry(webhook_id, visit.path["deliveryId"], visit.tenant)
    return go(f"/webhooks/{segment(webhook_id)}")


def _words(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]


async def _listing(visit: Visit, said: Refused, made: Registered | None = None, http: int = 200) -> Response:
    hooks = await visit.host.webhooks.subscriptions(visit.tenant)
    return visit.page("webhooks.html", http=http, hooks=hooks, refused=said, made=made)

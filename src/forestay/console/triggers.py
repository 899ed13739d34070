"""Triggers: subscriptions to outside events, their deliveries, and dead letters to retry."""

from __future__ import annotations

from starlette.responses import Response

from forestay.console.render import go
from forestay.console.visit import Visit, form, page

_NEWEST = 50


@page("/triggers", "triggers", "manifest:read", "runs:read")
async def listing(visit: Visit) -> Response:
    """The tenant's subscriptions and the newest deliveries."""
    triggers, only = visit.host.triggers, visit.asked("only")
    state = "dead" if only == "dead" else None
    subscriptions = await triggers.subscriptions.listed(visit.tenant)
    return visit.page(
        "triggers.html",
        subscriptions=subscriptions,
        names={item.subscription_id: item for item in subscriptions},
        deliveries=await triggers.deliveries(visit.tenant, state, _NEWEST),
        only=state,
    )


@form("/triggers/{subscriptionId}/pause", "triggers.pause", "schedules:manage")
async def pause(visit: Visit) -> Response:
    """Take no events until it is resumed."""
    await visit.host.triggers.subscriptions.pause(visit.tenant, visit.path["subscriptionId"])
    return go("/triggers")


@form("/triggers/{subscriptionId}/resume", "triggers.resume", "schedules:manage")
async def resume(visit: Visit) -> Response:
    """Go on, after a pause or after a dead letter."""
    await visit.host.triggers.subscriptions.resume(visit.tenant, visit.path["subscriptionId"])
    return go("/triggers")


@form("/triggers/deliveries/{deliveryId}/redrive", "triggers.redrive", "schedules:manage")
async def redrive(visit: Visit) -> Response:
    """Try a dead letter again."""
    await visit.host.triggers.redrive(visit.tenant, visit.path["deliveryId"])
    return go("/triggers")

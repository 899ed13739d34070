"""Operations on webhooks (OpenWOP §1.1; listing, rotation and dead letters beyond it)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from forestay.host import Host
from forestay.runs import EVENT_TYPE, Delivery, Registered, Webhook
from forestay.surface.openwop.bodies import Tag, Url
from forestay.surface.operations import Body, Call, Operations, Query, View

_PATH = "/v1/webhooks/{webhookId}"
_UNKNOWN = ("subscription_not_found",)
EventType = Annotated[str, Meta(max_length=128, pattern=EVENT_TYPE)]
api = Operations[Host](scopes=("webhooks:manage",), tag="webhooks")


class Register(Body, frozen=True):
    url: Url
    events: Annotated[list[EventType], Meta(min_length=1, max_length=128)]
    tenant_id: str | None = None
    tags: Annotated[list[Tag], Meta(max_length=100)] = field(default_factory=list)


class TenantQuery(Query, frozen=True):
    tenant_id: str | None = None


class WebhookList(View, frozen=True):
    webhooks: list[Webhook]


class Deliveries(View, frozen=True):
    deliveries: list[Delivery]


@api.post(
    "/v1/webhooks",
    "webhooks.register",
    {201: Registered},
    problems=("webhook_url_rejected", "state_conflict"),
    sensitive=True,
)
async def register(host: Host, call: Call, body: Register) -> Registered:
    """Subscribe an address to events; the secret is shown once."""
    call.caller.require_tenant(body.tenant_id)
    return await host.webhooks.register(
        call.tenant, body.url, list(body.events), list(body.tags), webhook_id=call.id_for("wh")
    )


@api.get("/v1/webhooks", "webhooks.list", WebhookList)
async def list_subscriptions(host: Host, call: Call) -> WebhookList:
    """The tenant's subscriptions."""
    return WebhookList(webhooks=await host.webhooks.subscriptions(call.tenant))


@api.get(_PATH, "webhooks.get", Webhook, problems=_UNKNOWN)
async def get(host: Host, call: Call) -> Webhook:
    """One subscription, with its secret's fingerprint."""
    return await host.webhooks.get(call.path["webhookId"], call.tenant)


@api.delete(_PATH, "webhooks.remove", {204: None}, problems=(*_UNKNOWN,))
async def remove(host: Host, call: Call, query: TenantQuery) -> None:
    """End a subscription."""
    call.caller.require_tenant(query.tenant_id)
    await host.webhooks.remove(call.path["webhookId"], call.tenant)


@api.post(f"{_PATH}:rotate", "webhooks.rotate", Registered, problems=_UNKNOWN, sensitive=True)
async def rotate(host: Host, call: Call) -> Registered:
    """A new secret, shown once; for a day deliveries carry both signatures."""
    return await host.webhooks.rotate(call.path["webhookId"], call.tenant)


@api.get(f"{_PATH}/deliveries", "webhooks.deliveries", Deliveries, problems=_UNKNOWN)
async def deliveries(host: Host, call: Call) -> Deliveries:
    """What is not delivered: dead letters, then what is due."""
    return Deliveries(deliveries=await host.webhooks.deliveries(call.path["webhookId"], call.tenant))


@api.post(f"{_PATH}/deliveries/{{deliveryId}}:retry", "webhooks.retry", {204: None}, problems=(*_UNKNOWN,))
async def retry(host: Host, call: Call) -> None:
    """Take a dead letter up again."""
    await host.webhooks.retry(call.path["webhookId"], call.path["deliveryId"], call.tenant)

"""Operations on webhooks (OpenWOP §1.1; listing, rotation and dead letters beyond it)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field
from starlette.responses import Response

from forestay.runs import EVENT_TYPE, Delivery, Registered, Webhook
from forestay.surface.openwop.bodies import Tag, Url
from forestay.surface.operations import Body, Call, Operation, Query, Result
from forestay.surface.services import Services

_PATH = "/v1/webhooks/{webhookId}"
EventType = Annotated[str, Meta(max_length=128, pattern=EVENT_TYPE)]


class Register(Body, frozen=True):
    url: Url
    events: Annotated[list[EventType], Meta(min_length=1, max_length=128)]
    tenant_id: str | None = None
    tags: Annotated[list[Tag], Meta(max_length=100)] = field(default_factory=list)


class TenantQuery(Query, frozen=True):
    tenant_id: str | None = None


class WebhookList(Result, frozen=True, omit_defaults=False):
    webhooks: list[Webhook]


class Deliveries(Result, frozen=True, omit_defaults=False):
    deliveries: list[Delivery]


def operations(services: Services) -> list[Operation]:
    webhooks = services.webhooks

    async def register(call: Call) -> Response:
        body: Register = call.body
        call.caller.require_tenant(body.tenant_id)
        made = await webhooks.register(
            call.caller.tenant, body.url, list(body.events), list(body.tags), webhook_id=call.id_for("wh")
        )
        return call.answer(made, 201)

    async def list_(call: Call) -> Response:
        return call.answer(WebhookList(webhooks=await webhooks.subscriptions(call.caller.tenant)))

    async def get(call: Call) -> Response:
        return call.answer(await webhooks.get(call.path["webhookId"], call.caller.tenant))

    async def remove(call: Call) -> Response:
        call.caller.require_tenant(call.query.tenant_id)
        await webhooks.remove(call.path["webhookId"], call.caller.tenant)
        return call.answer(status=204)

    async def rotate(call: Call) -> Response:
        return call.answer(await webhooks.rotate(call.path["webhookId"], call.caller.tenant))

    async def deliveries(call: Call) -> Response:
        found = await webhooks.deliveries(call.path["webhookId"], call.caller.tenant)
        return call.answer(Deliveries(deliveries=found))

    async def retry(call: Call) -> Response:
        await webhooks.retry(call.path["webhookId"], call.path["deliveryId"], call.caller.tenant)
        return call.answer(status=204)

    scopes = ("webhooks:manage",)
    return [
        Operation(
            name="webhooks.register",
            method="POST",
            path="/v1/webhooks",
            perform=register,
            summary="Subscribe an address to events; the secret is shown once.",
            scopes=scopes,
            body=Register,
            answers={201: Registered},
            problems=("schema_mismatch", "webhook_url_rejected", "state_conflict"),
            sensitive=True,
            tag="webhooks",
        ),
        Operation(
            name="webhooks.list",
            method="GET",
            path="/v1/webhooks",
            perform=list_,
            summary="The tenant's subscriptions.",
            scopes=scopes,
            answers={200: WebhookList},
            tag="webhooks",
        ),
        Operation(
            name="webhooks.get",
            method="GET",
            path=_PATH,
            perform=get,
            summary="One subscription, with its secret's fingerprint.",
            scopes=scopes,
            answers={200: Webhook},
            problems=("subscription_not_found",),
            tag="webhooks",
        ),
        Operation(
            name="webhooks.remove",
            method="DELETE",
            path=_PATH,
            perform=remove,
            summary="End a subscription.",
            scopes=scopes,
            query=TenantQuery,
            answers={204: None},
            problems=("subscription_not_found", "schema_mismatch"),
            tag="webhooks",
        ),
        Operation(
            name="webhooks.rotate",
            method="POST",
            path=f"{_PATH}:rotate",
            perform=rotate,
            summary="A new secret, shown once; for a day deliveries carry both signatures.",
            scopes=scopes,
            answers={200: Registered},
            problems=("subscription_not_found",),
            sensitive=True,
            tag="webhooks",
        ),
        Operation(
            name="webhooks.deliveries",
            method="GET",
            path=f"{_PATH}/deliveries",
            perform=deliveries,
            summary="What is not delivered: dead letters, then what is due.",
            scopes=scopes,
            answers={200: Deliveries},
            problems=("subscription_not_found",),
            tag="webhooks",
        ),
        Operation(
            name="webhooks.retry",
            method="POST",
            path=f"{_PATH}/deliveries/{{deliveryId}}:retry",
            perform=retry,
            summary="Take a dead letter up again.",
            scopes=scopes,
            answers={204: None},
            problems=("subscription_not_found", "not_found"),
            tag="webhooks",
        ),
    ]

"""`/host/v1/trigger-subscriptions`, `/host/v1/trigger-deliveries`: events from outside that start runs.

An event comes with a key (`:deliver`, a queue) or with a signature (`:ingest`, a webhook). The answer is sent when the
event is on disk; its run starts after that.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from forestay.governance import (
    Signed,
    Source,
    SourceSettings,
    Subscription,
    SubscriptionState,
    TriggerDelivery,
    TriggerRetry,
)
from forestay.host import Host
from forestay.kernel import Problem
from forestay.surface.operations import Body, Call, Operations, Query, Result, View
from forestay.surface.reading import BODY_LIMIT, parse_json

_PATH = "/host/v1/trigger-subscriptions"
_ONE = f"{_PATH}/{{subscriptionId}}"
_DELIVERY = "/host/v1/trigger-deliveries/{deliveryId}"
Name = Annotated[str, Meta(min_length=1, max_length=128)]
api = Operations[Host](scopes=("schedules:manage",), contract="lafs", tag="triggers")
signed = Operations[Host](auth="token", contract="lafs", tag="triggers")


class NewSubscription(Body, frozen=True):
    """`cron`, `timezone` and `inputs` are a schedule's, `mailbox` is that of email and named in the settings."""

    source: Source
    workflow_id: Name
    cron: Annotated[str, Meta(max_length=256)] = ""
    timezone: Annotated[str, Meta(max_length=64)] = "UTC"
    inputs: dict[str, Any] = field(default_factory=dict)
    mailbox: Annotated[str, Meta(max_length=128)] = ""
    roster_id: Name | None = None
    dedup_enabled: bool = True
    retry_policy: TriggerRetry = TriggerRetry()


class SubscriptionView(Result, frozen=True):
    """A subscription as its tenant manages it."""

    subscription_id: str
    source: str
    state: SubscriptionState
    workflow_id: str
    dedup_enabled: bool
    retry_policy: TriggerRetry
    roster_id: str | None = None
    secret_fingerprint: str | None = None
    cron: str | None = None
    timezone: str | None = None
    mailbox: str | None = None


class Binding(Result, frozen=True):
    """Where events go, and what their sender signs them with; the secret is shown once."""

    path: str | None = None
    secret: str | None = None


class Subscribed(View, frozen=True):
    subscription: SubscriptionView
    binding: Binding


class SubscriptionList(View, frozen=True):
    subscriptions: list[SubscriptionView]


class InboundEvent(Body, frozen=True):
    """An event of a queue. `eventId` is the producer's: the same one again is the same delivery."""

    event_id: Annotated[str, Meta(min_length=1, max_length=256)]
    inputs: dict[str, Any] = field(default_factory=dict)


class DeliveryQuery(Query, frozen=True):
    state: Literal["due", "delivered", "dead"] | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class DeliveryList(View, frozen=True):
    deliveries: list[TriggerDelivery]


@api.post(
    _PATH,
    "triggers.subscribe",
    {201: Subscribed},
    problems=("not_found", "schema_mismatch", "state_conflict", "capability_not_provided"),
    sensitive=True,
)
async def subscribe(host: Host, call: Call, body: NewSubscription) -> Subscribed:
    """Let events of a source start a workflow; for a webhook, the secret that its sender signs with."""
    made = await host.triggers.subscriptions.subscribe(
        call.tenant,
        body.source,
        body.workflow_id,
        retry=body.retry_policy,
        dedup=body.dedup_enabled,
        roster_id=body.roster_id,
        subscription_id=call.id_for("sub"),
        settings=SourceSettings(body.cron, body.timezone, body.inputs, body.mailbox),
    )
    binding = Binding(path=_place(made), secret=host.triggers.subscriptions.secret(made))
    return Subscribed(subscription=_view(made), binding=binding)


def _place(made: Subscription) -> str | None:
    """Return the address for its events; None for a schedule and a mailbox, which need none."""
    if made.source == "form":
        return f"/forms/{made.subscription_id}"
    verbs = {"webhook": "ingest", "queue": "deliver"}
    return f"{_PATH}/{made.subscription_id}:{verbs[made.source]}" if made.source in verbs else None


@api.get(_PATH, "triggers.subscriptions", SubscriptionList, scopes=("manifest:read",))
async def subscriptions(host: Host, call: Call) -> SubscriptionList:
    """The tenant's subscriptions, with the workflows that they start."""
    found = await host.triggers.subscriptions.listed(call.tenant)
    return SubscriptionList(subscriptions=[_view(item) for item in found])


@api.delete(_ONE, "triggers.remove", {204: None})
async def remove(host: Host, call: Call) -> None:
    """End a subscription; what is due of it is a dead letter."""
    await host.triggers.subscriptions.remove(call.tenant, call.path["subscriptionId"])


@api.post(f"{_ONE}:pause", "triggers.pause", SubscriptionView, problems=("state_conflict",))
async def pause(host: Host, call: Call) -> SubscriptionView:
    """Take no events, and start nothing, until it is resumed."""
    return _view(await host.triggers.subscriptions.pause(call.tenant, call.path["subscriptionId"]))


@api.post(f"{_ONE}:resume", "triggers.resume", SubscriptionView, problems=("state_conflict",))
async def resume(host: Host, call: Call) -> SubscriptionView:
    """Go on, after a pause or after a dead letter."""
    return _view(await host.triggers.subscriptions.resume(call.tenant, call.path["subscriptionId"]))


@api.post(
    f"{_ONE}:deliver", "triggers.deliver", {202: TriggerDelivery}, scopes=("runs:create",), problems=("state_conflict",)
)
async def deliver(host: Host, call: Call, body: InboundEvent) -> TriggerDelivery:
    """Put an event into the queue; it is on disk when the answer is sent."""
    found = await host.triggers.subscriptions.get(call.tenant, call.path["subscriptionId"])
    if found.source != "queue":
        raise Problem("state_conflict", "Events of this subscription do not come with a key.", source=found.source)
    return await host.triggers.offer(call.tenant, found.subscription_id, body.event_id, body.inputs)


@signed.post(
    f"{_ONE}:ingest",
    "triggers.ingest",
    {202: TriggerDelivery},
    body=dict[str, Any],
    reads_body=False,
    headers=("webhook-id", "webhook-timestamp", "webhook-signature"),
    problems=("permission_denied", "state_conflict"),
)
async def ingest(host: Host, call: Call) -> TriggerDelivery:
    """Take a signed event (Standard Webhooks); its JSON object is what the run is given."""
    told = Signed.of(call.request.headers)
    found = await host.triggers.subscriptions.verified(call.path["subscriptionId"], told, call.data)
    inputs = parse_json(call.request, call.data, dict[str, Any], BODY_LIMIT)
    return await host.triggers.offer(found.tenant, found.subscription_id, told.id, inputs)


@api.get("/host/v1/trigger-deliveries", "triggers.deliveries", DeliveryList, scopes=("runs:read",))
async def deliveries(host: Host, call: Call, query: DeliveryQuery) -> DeliveryList:
    """The newest events that came in, and what became of them; `dead` are the dead letters."""
    return DeliveryList(deliveries=await host.triggers.deliveries(call.tenant, query.state, query.limit))


@api.get(_DELIVERY, "triggers.delivery", TriggerDelivery, scopes=("runs:read",))
async def delivery(host: Host, call: Call) -> TriggerDelivery:
    """What became of one event."""
    return await host.triggers.delivery(call.tenant, call.path["deliveryId"])


@api.post(f"{_DELIVERY}:redrive", "triggers.redrive", {202: TriggerDelivery}, problems=("state_conflict",))
async def redrive(host: Host, call: Call) -> TriggerDelivery:
    """Try a dead letter again."""
    return await host.triggers.redrive(call.tenant, call.path["deliveryId"])


def _view(found: Subscription) -> SubscriptionView:
    return SubscriptionView(
        subscription_id=found.subscription_id,
        source=found.source,
        state=found.state,
        workflow_id=found.workflow_id,
        dedup_enabled=found.dedup_enabled,
        retry_policy=found.retry_policy,
        roster_id=found.roster_id,
        secret_fingerprint=found.secret_fingerprint,
        cron=found.settings.cron or None,
        timezone=found.settings.timezone if found.source == "schedule" else None,
        mailbox=found.settings.mailbox or None,
    )

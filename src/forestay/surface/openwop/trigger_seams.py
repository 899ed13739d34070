"""The test seam of triggers under `/v1/host/sample/`: events through the production queue (OpenWOP RFC 0083, W26)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from forestay.governance import Source, SourceSettings, TriggerRetry
from forestay.host import Host
from forestay.surface.openwop.governance_seams import STEP
from forestay.surface.operations import Body, Call, Operations, Result

api = Operations[Host](tag="seams", scopes=("runs:create",))
# It requires an input that the event of the scenario `exhaust` does not have.
_DEMANDING: dict[str, Any] = {
    **STEP,
    "id": "sample-demanding",
    "variables": [{"name": "order", "type": "string", "required": True}],
}


_NEVER = "0 0 29 2 *"  # the schedule never needs to fire: the seam offers the event itself


class TriggerScenario(Body, frozen=True):
    scenario: Literal["dedup", "exhaust", "deliver"]
    dedup_key: Annotated[str, Meta(min_length=1, max_length=256)] = "sample-event"
    source: Source = "queue"


class TriggerRun(Result, frozen=True):
    subscription_id: str
    outcome: Literal["delivered", "dead-lettered"]
    delivered_count: int
    attempts: int
    run_id: str | None = None
    delivery_run_id: str | None = None


@api.post("/v1/host/sample/trigger-bridge/deliver", "seams.triggers", TriggerRun, problems=("capability_not_provided",))
async def deliver(host: Host, call: Call, body: TriggerScenario) -> TriggerRun:
    """Offer an event to a new subscription, twice for `dedup`, and wait until it is delivered or dead."""
    document = _DEMANDING if body.scenario == "exhaust" else STEP
    await host.runs.put_workflow(document, tenant=call.tenant)
    triggers, tenant = host.triggers, call.tenant
    made = await triggers.subscriptions.subscribe(
        tenant,
        body.source,
        document["id"],
        retry=TriggerRetry(max_attempts=2, backoff="none"),
        settings=SourceSettings(cron=_NEVER, mailbox=next(iter(host.config.mailboxes), "")),
    )
    name = made.subscription_id
    offered = {
        (await triggers.offer(tenant, name, body.dedup_key, {})).delivery_id
        for _ in range(2 if body.scenario == "dedup" else 1)
    }
    await triggers.deliver_due()
    ended = [await triggers.delivery(tenant, delivery_id) for delivery_id in sorted(offered)]
    await triggers.subscriptions.remove(tenant, name)
    run_id = ended[0].run_id
    return TriggerRun(
        subscription_id=name,
        outcome="dead-lettered" if run_id is None else "delivered",
        delivered_count=sum(item.state == "delivered" for item in ended),
        attempts=ended[0].attempts,
        run_id=run_id,
        delivery_run_id=run_id,
    )

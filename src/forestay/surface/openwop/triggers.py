"""Trigger subscriptions as the contract shows them (OpenWOP RFC 0083, W26); the host's own API makes them."""

from __future__ import annotations

from forestay.governance import ShownSubscription
from forestay.host import Host
from forestay.surface.operations import Call, Operations

api = Operations[Host](scopes=("manifest:read",), tag="triggers")


@api.get("/v1/trigger-subscriptions", "triggers.list", list[ShownSubscription])
async def listed(host: Host, call: Call) -> list[ShownSubscription]:
    """The tenant's subscriptions to events from outside, with their states."""
    return [item.shown for item in await host.triggers.subscriptions.listed(call.tenant)]


@api.get("/v1/trigger-subscriptions/{subscriptionId}", "triggers.get", ShownSubscription)
async def get(host: Host, call: Call) -> ShownSubscription:
    """One subscription."""
    return (await host.triggers.subscriptions.get(call.tenant, call.path["subscriptionId"])).shown

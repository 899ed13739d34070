"""`/host/v1/grants`: people's decisions about extensions; a decision is in force when its answer is sent."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from forestay.extensions import CAPABILITIES, Grants
from forestay.host import Host, grant_of
from forestay.kernel import moment_of
from forestay.surface.operations import Body, Call, Operations, Query, View

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Capability = Annotated[str, Meta(extra_json_schema={"enum": sorted(CAPABILITIES)})]
api = Operations[Host](scopes=("grants:manage",), operator=True, contract="lafs", tag="grants")


class GrantsQuery(Query, frozen=True):
    extension: Name | None = None


class NewGrant(Body, frozen=True):
    """`scope` is a list of patterns with commas between them; none means the whole capability."""

    extension: Name
    effect: Literal["allow", "deny"]
    capability: Capability
    scope: Annotated[str, Meta(max_length=4096)] = ""
    expires_at: Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})] | None = None


class GrantView(View, frozen=True):
    """A decision that holds; an expired one does not speak any more."""

    subject: str
    effect: str
    capability: str
    scope: list[str]
    methods: list[str]
    since: str
    expires: str | None
    expired: bool


class GrantList(View, frozen=True):
    grants: list[GrantView]


class Revoked(View, frozen=True):
    revoked: int


async def _standing(host: Host, extension: str | None) -> GrantList:
    now = host.clock.now_ms()
    found = await Grants(host.ledger, host.clock).standing(extension)
    return GrantList(grants=[GrantView(**item.shown(now)) for item in found])


@api.get("/host/v1/grants", "grants.list", GrantList)
async def list_grants(host: Host, call: Call, query: GrantsQuery) -> GrantList:
    """What was granted and denied, with scope and expiry."""
    return await _standing(host, query.extension)


@api.post("/host/v1/grants", "grants.decide", {201: GrantList}, problems=("invalid_usage", "invalid_request"))
async def decide(host: Host, call: Call, body: NewGrant) -> GrantList:
    """Allow or deny a capability to an extension, from now on."""
    expires_ms = None if body.expires_at is None else moment_of(body.expires_at, "$.expiresAt")
    grant = grant_of(body.capability, body.scope, expires_ms)
    await host.extensions.decide(body.extension, body.effect, grant, by=call.caller.name)
    return await _standing(host, body.extension)


@api.delete("/host/v1/grants/{name}/{capability}", "grants.revoke", Revoked)
async def revoke(host: Host, call: Call) -> Revoked:
    """Take back what was decided about a capability of an extension."""
    path = call.path
    return Revoked(revoked=await host.extensions.take_back(path["name"], path["capability"], by=call.caller.name))

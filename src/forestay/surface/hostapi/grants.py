"""`/host/v1/grants`: what people decided about extensions; a decision is in force when the answer is sent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.responses import Response

from forestay.extensions import CAPABILITIES, Grants
from forestay.host import Host, grant_of
from forestay.kernel import moment_of
from forestay.surface.operations import Body, Call, Operation, Query, Result

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Capability = Annotated[str, Meta(extra_json_schema={"enum": sorted(CAPABILITIES)})]


class GrantsQuery(Query, frozen=True):
    extension: Name | None = None


class NewGrant(Body, frozen=True):
    """`scope` is a list of patterns with commas between them; none means the whole capability."""

    extension: Name
    effect: Literal["allow", "deny"]
    capability: Capability
    scope: Annotated[str, Meta(max_length=4096)] = ""
    expires_at: Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})] | None = None


class GrantView(Result, frozen=True, omit_defaults=False):
    """A decision that holds; an expired one does not speak any more."""

    subject: str
    effect: str
    capability: str
    scope: list[str]
    methods: list[str]
    since: str
    expires: str | None
    expired: bool


class GrantList(Result, frozen=True, omit_defaults=False):
    grants: list[GrantView]


class Revoked(Result, frozen=True, omit_defaults=False):
    revoked: int


def operations(host: Host) -> list[Operation]:
    async def standing(extension: str | None) -> list[GrantView]:
        now = host.clock.now_ms()
        found = await Grants(host.ledger, host.clock).standing(extension)
        return [GrantView(**item.shown(now)) for item in found]

    async def list_(call: Call) -> Response:
        call.caller.require_operator()
        return call.answer(GrantList(grants=await standing(call.query.extension)))

    async def decide(call: Call) -> Response:
        call.caller.require_operator()
        body: NewGrant = call.body
        expires_ms = None if body.expires_at is None else moment_of(body.expires_at, "$.expiresAt")
        grant = grant_of(body.capability, body.scope, expires_ms)
        await host.extensions.decide(body.extension, body.effect, grant, by=_who(call))
        return call.answer(GrantList(grants=await standing(body.extension)), 201)

    async def revoke(call: Call) -> Response:
        call.caller.require_operator()
        count = await host.extensions.take_back(call.path["name"], call.path["capability"], by=_who(call))
        return call.answer(Revoked(revoked=count))

    common: dict[str, Any] = {"scopes": ("grants:manage",), "contract": "lafs", "tag": "grants"}
    return [
        Operation(
            name="grants.list",
            method="GET",
            path="/host/v1/grants",
            perform=list_,
            summary="What was granted and denied, with scope and expiry.",
            query=GrantsQuery,
            answers={200: GrantList},
            problems=("schema_mismatch",),
            **common,
        ),
        Operation(
            name="grants.decide",
            method="POST",
            path="/host/v1/grants",
            perform=decide,
            summary="Allow or deny a capability to an extension, from now on.",
            body=NewGrant,
            answers={201: GrantList},
            problems=("schema_mismatch", "invalid_usage", "invalid_request"),
            **common,
        ),
        Operation(
            name="grants.revoke",
            method="DELETE",
            path="/host/v1/grants/{name}/{capability}",
            perform=revoke,
            summary="Take back what was decided about a capability of an extension.",
            answers={200: Revoked},
            problems=("not_found",),
            **common,
        ),
    ]


def _who(call: Call) -> str:
    return call.caller.principal or call.caller.key_id

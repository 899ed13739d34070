"""The host's own operations on API keys, in LAFS envelopes."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from forestay.kernel import OPERATOR, iso, moment_of
from forestay.surface.auth import SCOPES, ApiKey, Caller
from forestay.surface.operations import Body, Call, Operation, Result
from forestay.surface.services import Services

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}$")]
Scope = Annotated[str, Meta(extra_json_schema={"enum": list(SCOPES)})]


class NewKey(Body, frozen=True):
    name: Name
    # Without it, the scopes of the key that asks, but not to speak for others (W18).
    scopes: list[Scope] | None = None
    # Another than the caller's: for the operator, who has no other way to admit one.
    tenant: Name | None = None
    principal: Name | None = None
    workspace: Name | None = None
    expires_at: Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})] | None = None
    test: bool = False


class KeyView(Result, frozen=True):
    """A key as it may be shown: never its text, never its hash."""

    key_id: str
    name: str
    tenant: str
    scopes: list[str]
    created_at: str
    expires_at: str | None = None
    revoked_at: str | None = None
    principal: str | None = None
    workspace: str | None = None
    test: bool = False


class KeyMade(Result, frozen=True):
    """The only time a key's text is shown."""

    api_key: str
    description: KeyView


class KeyList(Result, frozen=True, omit_defaults=False):
    keys: list[KeyView]


def view(key: ApiKey) -> KeyView:
    return KeyView(
        key_id=key.key_id,
        name=key.name,
        tenant=key.tenant,
        scopes=list(key.scopes),
        created_at=iso(key.created_ms),
        expires_at=None if key.expires_ms is None else iso(key.expires_ms),
        revoked_at=None if key.revoked_ms is None else iso(key.revoked_ms),
        principal=key.principal,
        workspace=key.workspace,
        test=key.test,
    )


def _reach(caller: Caller) -> str | None:
    """Whose keys a caller sees and revokes: his tenant's; the operator everybody's."""
    return None if caller.tenant == OPERATOR else caller.tenant


def operations(services: Services) -> list[Operation]:
    keys = services.keys

    async def create(call: Call) -> Response:
        body: NewKey = call.body
        caller = call.caller
        scopes = sorted(caller.scopes - {"approvals:delegate"}) if body.scopes is None else body.scopes
        caller.require(*scopes)  # nobody hands out more than he has
        if body.tenant not in (None, caller.tenant):
            caller.require_operator()
        key, text = await keys.create(
            body.name,
            tenant=body.tenant or caller.tenant,
            scopes=scopes,
            principal=body.principal,
            workspace=body.workspace,
            expires_ms=None if body.expires_at is None else moment_of(body.expires_at, "$.expiresAt"),
            test=body.test,
        )
        return call.answer(KeyMade(api_key=text, description=view(key)), 201)

    async def list_(call: Call) -> Response:
        return call.answer(KeyList(keys=[view(key) for key in keys.list(_reach(call.caller))]))

    async def revoke(call: Call) -> Response:
        return call.answer(view(await keys.revoke(call.path["keyId"], _reach(call.caller), "asked over HTTP")))

    common: dict[str, Any] = {"scopes": ("keys:manage",), "contract": "lafs", "tag": "keys"}
    return [
        Operation(
            name="keys.create",
            method="POST",
            path="/host/v1/keys",
            perform=create,
            summary="A new key of the caller's tenant, or of one that the operator names; its text is shown once.",
            body=NewKey,
            answers={201: KeyMade},
            problems=("schema_mismatch", "already_exists"),
            sensitive=True,
            **common,
        ),
        Operation(
            name="keys.list",
            method="GET",
            path="/host/v1/keys",
            perform=list_,
            summary="The tenant's keys; the operator sees every tenant's.",
            answers={200: KeyList},
            **common,
        ),
        Operation(
            name="keys.revoke",
            method="DELETE",
            path="/host/v1/keys/{keyId}",
            perform=revoke,
            summary="Refuse a key from now on.",
            answers={200: KeyView},
            problems=("not_found",),
            **common,
        ),
    ]

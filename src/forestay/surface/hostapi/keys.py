"""The host's own operations on API keys, in LAFS envelopes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from forestay.kernel import OPERATOR, iso, moment_of
from forestay.surface.auth import SCOPES, ApiKey, Caller
from forestay.surface.operations import Body, Call, Operations, Result, View
from forestay.surface.services import Services

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}$")]
Scope = Annotated[str, Meta(extra_json_schema={"enum": list(SCOPES)})]
api = Operations[Services](scopes=("keys:manage",), contract="lafs", tag="keys")


class NewKey(Body, frozen=True):
    name: Name
    # By default the scopes of the calling key, without the one to answer for others (W18).
    scopes: list[Scope] | None = None
    # Another tenant than the caller's: only for the operator, who admits a new tenant in this way.
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


class KeyList(View, frozen=True):
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


def keys_within_reach(caller: Caller) -> str | None:
    """Return the tenant whose keys a caller manages: its own; None, for every tenant, when it is the operator."""
    return None if caller.tenant == OPERATOR else caller.tenant


async def make_key(services: Services, caller: Caller, wanted: NewKey, key_id: str | None = None) -> tuple[ApiKey, str]:
    """Make a key with no more scopes than the caller has; return it with its text."""
    scopes = sorted(caller.scopes - {"approvals:delegate"}) if wanted.scopes is None else wanted.scopes
    caller.require(*scopes)
    if wanted.tenant not in (None, caller.tenant):
        caller.require_operator()
    return await services.keys.create(
        wanted.name,
        tenant=wanted.tenant or caller.tenant,
        scopes=scopes,
        principal=wanted.principal,
        workspace=wanted.workspace,
        expires_ms=None if wanted.expires_at is None else moment_of(wanted.expires_at, "$.expiresAt"),
        test=wanted.test,
        key_id=key_id,
    )


@api.post("/host/v1/keys", "keys.create", {201: KeyMade}, problems=("already_exists",), sensitive=True)
async def create(services: Services, call: Call, body: NewKey) -> KeyMade:
    """A new key of the caller's tenant, or of one that the operator names; its text is shown once."""
    key, text = await make_key(services, call.caller, body, call.id_for("key"))
    return KeyMade(api_key=text, description=view(key))


@api.get("/host/v1/keys", "keys.list", KeyList)
async def list_keys(services: Services, call: Call) -> KeyList:
    """The tenant's keys; the operator sees every tenant's."""
    return KeyList(keys=[view(key) for key in services.keys.list(keys_within_reach(call.caller))])


@api.delete("/host/v1/keys/{keyId}", "keys.revoke", KeyView)
async def revoke(services: Services, call: Call) -> KeyView:
    """Refuse a key from now on."""
    return view(await services.keys.revoke(call.path["keyId"], keys_within_reach(call.caller), "asked over HTTP"))

"""`/host/v1/credentials`: secrets that requests of runs may carry, and the hosts they may go to (OpenWOP RFC 0079).

A value is written and never read: no answer, record or log contains it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from forestay.governance import Credential, Secret
from forestay.host import Host
from forestay.kernel import iso, moment_of
from forestay.surface.operations import Body, Call, Operations, Result, View

_PATH = "/host/v1/credentials"
_ONE = f"{_PATH}/{{credentialId}}"
Name = Annotated[str, Meta(min_length=1, max_length=256)]
api = Operations[Host](scopes=("grants:manage",), contract="lafs", tag="credentials")


class NewCredential(Body, frozen=True):
    """A value and where it may go. Outside of `audiences` a request is refused, or sent without it (`downgrade`);
    with `approval` a person agrees to each request; `workflows` are patterns over those that may use it."""

    value: Annotated[str, Meta(min_length=8, max_length=8192)]
    audiences: Annotated[list[Name], Meta(min_length=1, max_length=64)]
    scopes: Annotated[list[Name], Meta(max_length=64)] = field(default_factory=list)
    expires_at: Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})] | None = None
    header: Annotated[str, Meta(min_length=1, max_length=64)] = "Authorization"
    prefix: Annotated[str, Meta(max_length=64)] = "Bearer "
    outside: Literal["deny", "downgrade"] = "deny"
    approval: bool = False
    workflows: Annotated[list[Name], Meta(max_length=64)] = field(default_factory=list)


class CredentialView(Result, frozen=True):
    """A credential as it may be shown."""

    credential_id: str
    issuer: str
    audiences: list[str]
    scopes: list[str]
    header: str
    outside: Literal["deny", "downgrade"]
    approval: bool
    workflows: list[str]
    expires_at: str | None = None


class CredentialList(View, frozen=True):
    credentials: list[CredentialView]


@api.put(_ONE, "credentials.put", CredentialView, problems=("schema_mismatch", "state_conflict"), sensitive=True)
async def put(host: Host, call: Call, body: NewCredential) -> CredentialView:
    """Keep a credential of the caller's tenant, in place of one with the same id."""
    about = Credential(
        credential_id=call.path["credentialId"],
        audiences=tuple(body.audiences),
        scopes=tuple(dict.fromkeys(body.scopes)),
        expires_ms=None if body.expires_at is None else moment_of(body.expires_at, "$.expiresAt"),
        header=body.header,
        prefix=body.prefix,
        outside=body.outside,
        approval=body.approval,
        workflows=tuple(body.workflows),
    )
    return view(await host.credentials.put(call.tenant, about, Secret(body.value), call.caller.principal))


@api.get(_PATH, "credentials.list", CredentialList)
async def listed(host: Host, call: Call) -> CredentialList:
    """The tenant's credentials, without their values."""
    return CredentialList(credentials=[view(item) for item in await host.credentials.listed(call.tenant)])


@api.delete(_ONE, "credentials.revoke", {204: None})
async def revoke(host: Host, call: Call) -> None:
    """Take a credential back: its key is destroyed when the answer is sent."""
    await host.credentials.revoke(call.tenant, call.path["credentialId"], by=call.caller.principal)


def view(about: Credential) -> CredentialView:
    return CredentialView(
        credential_id=about.credential_id,
        issuer=about.issuer,
        audiences=list(about.audiences),
        scopes=list(about.scopes),
        header=about.header,
        outside=about.outside,
        approval=about.approval,
        workflows=list(about.workflows),
        expires_at=None if about.expires_ms is None else iso(about.expires_ms),
    )

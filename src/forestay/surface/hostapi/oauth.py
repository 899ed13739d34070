"""`/host/v1/oauth`: a person agrees at an authorization server that runs act for them (OpenWOP RFC 0047).

The browser comes back without a key: its state is valid once, for the tenant that began. No answer shows a state, a
code or a token.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field
from starlette.responses import PlainTextResponse, Response

from forestay.governance import Credential, read_return
from forestay.host import Host
from forestay.kernel import Problem, iso
from forestay.surface.hostapi.credentials import Name
from forestay.surface.operations import Body, Call, Operations, Query, Result

CALLBACK = "/host/v1/oauth/callback"
_PATH = "/host/v1/oauth/authorizations"
api = Operations[Host](scopes=("grants:manage",), contract="lafs", tag="credentials")
Text = Annotated[str, Meta(max_length=4096)]


class NewAuthorization(Body, frozen=True):
    """Which provider a person signs in at, and the credential that comes of it; without an id it is the provider's."""

    provider: Name
    credential_id: Name | None = None
    scopes: Annotated[list[Name], Meta(max_length=64)] | None = None
    outside: Literal["deny", "downgrade"] = "deny"
    approval: bool = False
    workflows: Annotated[list[Name], Meta(max_length=64)] = field(default_factory=list)


class AuthorizationBegun(Result, frozen=True):
    authorization_id: str
    credential_id: str
    open: str
    expires_at: str


class Came(Body, frozen=True):
    """The address that the browser ended at."""

    address: Annotated[str, Meta(min_length=1, max_length=8192)]


class CallbackQuery(Query, frozen=True):
    state: Text = ""
    code: Text = ""
    error: Text = ""


class Authorized(Result, frozen=True):
    credential_id: str
    provider: str
    run_id: str


@api.post(_PATH, "oauth.begin", {201: AuthorizationBegun}, problems=("not_found", "schema_mismatch"), sensitive=True)
async def begin(host: Host, call: Call, body: NewAuthorization) -> AuthorizationBegun:
    """Begin a sign-in: a person opens the address and agrees there."""
    provider = host.authorizations.providers.get(body.provider)
    if provider is None:
        known = sorted(host.authorizations.providers)
        raise Problem("not_found", "There is no such provider.", provider=body.provider[:64], known=known)
    about = Credential(
        credential_id=body.credential_id or provider.id,
        issuer=provider.id,
        audiences=provider.audiences,
        scopes=provider.scopes if body.scopes is None else tuple(body.scopes),
        outside=body.outside,
        approval=body.approval,
        workflows=tuple(body.workflows),
    )
    redirect = host.config.http.url + CALLBACK
    begun = await host.authorizations.begin(call.tenant, about, redirect, principal=call.caller.principal)
    return AuthorizationBegun(
        authorization_id=begun.authorization_id,
        credential_id=about.credential_id,
        open=begun.open,
        expires_at=iso(begun.expires_ms),
    )


@api.post(
    f"{_PATH}:finish", "oauth.finish", Authorized, problems=("not_found", "credential_forbidden", "state_conflict")
)
async def finish(host: Host, call: Call, body: Came) -> Authorized:
    """End a sign-in with the address that the browser ended at, where it could not reach the host itself."""
    return await _finished(host, urlsplit(body.address).query, call.tenant)


@api.get(
    CALLBACK,
    "oauth.callback",
    str,
    auth="token",
    scopes=(),
    media="text/plain",
    problems=("not_found", "credential_forbidden", "state_conflict"),
)
async def callback(host: Host, call: Call, query: CallbackQuery) -> Response:
    """Where an authorization server sends the browser back to."""
    done = await _finished(host, call.request.url.query, None)
    text = f"{done.credential_id} can be used now. You can close this page.\n"
    return PlainTextResponse(text, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})


async def _finished(host: Host, query: str, tenant: str | None) -> Authorized:
    found, run = await host.authorizations.finish(read_return(query), tenant)
    ended = await host.runs.wait(run.run_id, found.tenant)
    if ended.status != "completed":
        why = ended.error.message if ended.error is not None else ended.status
        raise Problem("state_conflict", f"No token was kept: {why}", runId=run.run_id, fix="Begin again.")
    return Authorized(credential_id=found.about.credential_id, provider=found.provider, run_id=run.run_id)

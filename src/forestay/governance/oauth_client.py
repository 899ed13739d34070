"""OAuth 2 as a client: the address for a person, the requests for tokens, and their answers (RFC 6749, 7636).

It is pure: it sends and stores nothing.
"""

from __future__ import annotations

import hashlib
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from forestay.governance.credentials import Secret
from forestay.kernel import Problem, base64url
from forestay.runs import HttpRequest, HttpResponse

_SKEW_MS = 60_000  # a token is renewed this long before its end
_MAX_ANSWER = 256 * 1024


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """An authorization server, and the audiences of its tokens."""

    id: str
    auth_url: str
    token_url: str
    client_id: str
    client_secret: str = ""
    scopes: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()


class Returned(msgspec.Struct, frozen=True):
    """The answer of an authorization server through the browser."""

    state: str
    code: str = ""
    error: str = ""


class _Answer(msgspec.Struct, frozen=True):
    access_token: str = ""
    token_type: str = "Bearer"  # noqa: S105 - a kind, not a token
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None
    error: str = ""


def challenge(verifier: str) -> str:
    """Return the challenge of a verifier for the authorization server (PKCE, S256)."""
    return base64url.encode(hashlib.sha256(verifier.encode()).digest())


def authorization_url(provider: Provider, redirect: str, state: str, verifier: str, scopes: tuple[str, ...]) -> str:
    """Return the address where a person gives consent."""
    asked = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": challenge(verifier),
        "code_challenge_method": "S256",
        **({"scope": " ".join(scopes)} if scopes else {}),
    }
    return f"{provider.auth_url}{'&' if urlsplit(provider.auth_url).query else '?'}{urlencode(asked)}"


def read_return(query: str) -> Returned:
    """Read the browser's return; a parameter that occurs twice is ignored."""
    found = {name: values[0] for name, values in parse_qs(query).items() if len(values) == 1}
    return Returned(found.get("state", ""), found.get("code", ""), found.get("error", ""))


def code_request(provider: Provider, code: str, verifier: str, redirect: str) -> HttpRequest:
    """Return the request that exchanges a code for tokens."""
    return _form(provider, grant_type="authorization_code", code=code, code_verifier=verifier, redirect_uri=redirect)


def refresh_request(provider: Provider, refresh: str) -> HttpRequest:
    """Return the request for newer tokens."""
    return _form(provider, grant_type="refresh_token", refresh_token=refresh)


def _form(provider: Provider, **fields: str) -> HttpRequest:
    fields["client_id"] = provider.client_id
    if provider.client_secret:
        fields["client_secret"] = provider.client_secret
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    body = urlencode(fields).encode()
    return HttpRequest(
        method="POST", url=provider.token_url, headers=headers, body=body, max_response_bytes=_MAX_ANSWER
    )


def tokens(
    provider: Provider, response: HttpResponse, now_ms: int, before: str | None = None
) -> tuple[Secret, tuple[str, ...] | None]:
    """Return the tokens of an answer, and the scopes that it names. Without a new refresh token, `before` stays.

    `credential_forbidden` when the server refuses for good; `credential_unavailable` when it may agree later.
    Neither repeats the server's text.
    """
    try:
        answer = msgspec.json.decode(response.body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = _Answer(error="unreadable")
    if response.status in (400, 401) and answer.error == "invalid_grant":
        message = f"{provider.id} no longer accepts this sign-in."
        raise Problem("credential_forbidden", message, provider=provider.id, fix="Authorize it again.")
    if response.status != 200 or not answer.access_token or answer.token_type.lower() != "bearer":
        message = f"{provider.id} gave no token."
        raise Problem("credential_unavailable", message, provider=provider.id, status=response.status)
    until = None if answer.expires_in is None else now_ms + int(answer.expires_in * 1000)
    granted = None if answer.scope is None else tuple(answer.scope.split())
    return Secret(answer.access_token, answer.refresh_token or before, until), granted


def is_due(secret: Secret, now_ms: int) -> bool:
    """Whether a token ends so soon that it must be renewed first."""
    return secret.until_ms is not None and now_ms >= secret.until_ms - _SKEW_MS

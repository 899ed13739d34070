"""The sidecar as a server of its own (CRP C9): `forestay relay serve`.

Without a token only this machine is answered; `/health`, `/ready` and the description are open.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp

from forestay.kernel import OPERATOR, Ids, Problem
from forestay.relay import Relay
from forestay.surface.auth import SCOPES, Caller
from forestay.surface.crp.operations import operations
from forestay.surface.crp.service import MAX_SESSIONS, Service
from forestay.surface.dispatch import Dispatch
from forestay.surface.limits import Load, RateLimits, Rates
from forestay.surface.routing import Routes

_CALLER = Caller("sidecar", OPERATOR, frozenset(SCOPES))


def crp_app(relay: Relay, *, token: str | None = None, max_sessions: int = MAX_SESSIONS, prefix: str = "") -> ASGIApp:
    """The sidecar over `relay`, below `prefix`."""
    service = Service(relay, max_sessions=max_sessions, auth_required=token is not None)
    return Dispatch(
        Routes(operations(lambda tenant: service, prefix)),
        _by_token(token) if token is not None else _by_address,
        RateLimits(Rates(tenant=None, key=None), relay.clock),
        Load(),
        None,
        clock=relay.clock,
        ids=Ids(relay.clock),
        contract="crp",
        fallback=lambda request: Problem(
            "not_found", "There is nothing at this address.", fix="See openapi.json for what there is."
        ),
    )


def _by_token(token: str) -> Callable[[Request], Caller]:
    def authenticate(request: Request) -> Caller:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode()):
            return _CALLER
        raise Problem(
            "unauthenticated", "The request carries no valid token.", fix="Send Authorization: Bearer <token>."
        )

    return authenticate


def _by_address(request: Request) -> Caller:
    if request.client is not None and not _is_loopback(request.client.host):
        raise Problem(
            "unauthenticated", "Without a token only this machine is answered.", fix="Start the sidecar with a token."
        )
    return _CALLER


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False

"""The sidecar: `/crp` of a host, or a separate server (CRP C9, `forestay relay serve`).

A separate server without a token answers only this machine; `/health`, `/ready` and the description are open.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from forestay.kernel import OPERATOR, HttpRates, Ids, Problem
from forestay.relay import PROTOCOL_VERSION, CrpError, Relay
from forestay.relay import schemas as library
from forestay.surface.auth import SCOPES, Caller
from forestay.surface.crp.operations import ServiceOf, api
from forestay.surface.crp.service import MAX_SESSIONS, Service
from forestay.surface.crp.tenants import Sidecars
from forestay.surface.dispatch import Dispatch
from forestay.surface.limits import Load, RateLimits
from forestay.surface.openapi import About, document, openapi
from forestay.surface.operations import Operation

_CALLER = Caller("sidecar", OPERATOR, frozenset(SCOPES))


def operations(relay: Relay) -> list[Operation]:
    """Return the operations of a host's sidecar, for every tenant."""
    return _operations(Sidecars(relay).of, "/crp")


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of the contract: the library's objects and the sidecar's OpenAPI description."""
    return {**library.schemas(), "openapi": document(_below("/crp", api.declared), _about("/crp"))}


def _operations(service_of: ServiceOf, prefix: str, *, key_required: bool = True) -> list[Operation]:
    made = _below(prefix, api.of(service_of))
    about = _about(prefix or "/", key_required=key_required)
    made.append(openapi("crp.getOpenapi", f"{prefix}/openapi.json", lambda: made, lambda: about))
    return made


def _below(prefix: str, declared: list[Operation]) -> list[Operation]:
    return [msgspec.structs.replace(item, path=prefix + item.path) for item in declared]


def _about(server: str, *, key_required: bool = True) -> About:
    return About(
        summary="Sessions, dispatches and facts over HTTP (CRP 2.0).",
        title="forestay relay",
        version=PROTOCOL_VERSION,
        server=server,
        errors=CrpError,
        key_required=key_required,
    )


def crp_app(relay: Relay, *, token: str | None = None, max_sessions: int = MAX_SESSIONS, prefix: str = "") -> ASGIApp:
    """Return an application that serves `relay` below `prefix`."""
    service = Service(relay, max_sessions=max_sessions, auth_required=token is not None)
    return Dispatch(
        _operations(lambda tenant: service, prefix, key_required=service.auth_required),
        _by_token(token) if token is not None else _by_address,
        RateLimits(HttpRates(tenant=None, key=None), relay.clock),
        Load(),
        None,
        clock=relay.clock,
        ids=Ids(relay.clock),
        contract="crp",
        unmatched=lambda request: Problem(
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

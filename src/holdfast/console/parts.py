"""What the pages stand on, and what they ask of a request."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from holdfast.console.render import Templates
from holdfast.console.session import Session
from holdfast.http.auth import Caller, Keys
from holdfast.kernel.clock import Clock
from holdfast.kernel.ledger import Ledger
from holdfast.kernel.problems import Problem
from holdfast.runs.service import Runs

OPERATOR_TENANT = "default"


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a running host that pages show."""

    ledger: Ledger
    runs: Runs
    keys: Keys
    clock: Clock
    templates: Templates
    facts: dict[str, str] = {}  # what the overview says of the host: model, address, version


def caller_of(request: Request, *scopes: str) -> Caller:
    """The signed-in caller, who must have these scopes."""
    session: Session = request.scope["holdfast.session"]
    session.caller.require(*scopes)
    return session.caller


def operator_of(request: Request) -> Caller:
    """The signed-in caller, who must be the host's own operator: the ledger holds every tenant's records."""
    caller = caller_of(request, "audit:read")
    if caller.tenant != OPERATOR_TENANT:
        raise Problem("permission_denied", "Only the host's operator may read the whole ledger.")
    return caller


def form_of(request: Request) -> dict[str, str]:
    form: dict[str, Any] = request.scope["holdfast.form"]
    return form

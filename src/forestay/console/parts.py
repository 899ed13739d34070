"""What the pages stand on, and what they ask of a request."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from forestay.console.render import Templates
from forestay.console.session import Session
from forestay.host import Host
from forestay.kernel import Clock, Ledger, Problem
from forestay.relay import SessionHistories
from forestay.runs import Runs
from forestay.surface import Caller, Keys, Operation


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a running host that pages show."""

    host: Host
    keys: Keys
    templates: Templates
    looks: SessionHistories  # relay sessions as they were last looked at
    facts: dict[str, str] = {}  # what the overview says of the host: model, address, version
    operations: tuple[Operation, ...] = ()  # of the host's own API

    @property
    def ledger(self) -> Ledger:
        return self.host.ledger

    @property
    def runs(self) -> Runs:
        return self.host.runs

    @property
    def clock(self) -> Clock:
        return self.host.clock


def caller_of(request: Request, *scopes: str) -> Caller:
    """The signed-in caller, who must have these scopes."""
    session: Session = request.scope["forestay.session"]
    session.caller.require(*scopes)
    return session.caller


def operator_of(request: Request, *scopes: str) -> Caller:
    """The signed-in caller, who must be the host's own operator: these pages hold every tenant's records."""
    caller = caller_of(request, "audit:read", *scopes)
    caller.require_operator()
    return caller


def form_of(request: Request) -> dict[str, str]:
    form: dict[str, Any] = request.scope["forestay.form"]
    return form


def number_of(request: Request, name: str, default: int = 0) -> int:
    """A whole number out of the query."""
    return whole(request.query_params.get(name) or str(default), name)


def whole(text: str, name: str) -> int:
    """What a person or a link wrote as a whole number from 0 on."""
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Problem("out_of_range", f"`{name}` is a whole number from 0 on.", at=name)
    return int(text)

"""The state of one request and its answer, shared by every layer that the request passes."""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.requests import HTTPConnection

from forestay.kernel import Clock, Ids, SystemClock
from forestay.surface.auth import Caller

_NAME = "forestay.exchange"
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{2,127}")
_system_clock = SystemClock()
_system_ids = Ids(_system_clock)


class Refused(Exception):
    """The request already has its answer: the code that would have answered it stops here."""


class Exchange:
    """The state of one request: layers fill in what they learn; logs, metrics, limits and answers read it."""

    __slots__ = ("caller", "clock", "ids", "operation", "request_id", "route", "status", "trace", "waits")

    def __init__(self, request_id: str, clock: Clock, ids: Ids, trace: str | None = None) -> None:
        self.request_id = request_id
        self.clock = clock
        self.ids = ids
        self.trace = trace
        self.operation = ""  # the name that envelopes carry
        self.route = "unmatched"  # a name from the code, never the caller's text
        self.caller: Caller | None = None
        self.status = 0
        self.waits: Callable[[], None] | None = None  # called when the request may stay open for long


def open_exchange(request: HTTPConnection, clock: Clock, ids: Ids, trace: str | None = None) -> Exchange:
    """Return the exchange of this request; the first layer that asks makes it.

    Its id is the caller's `X-Request-Id` when that is plain, else one of ours.
    """
    found: Exchange | None = request.scope.get(_NAME)
    if found is None:
        given = request.headers.get("x-request-id", "")
        found = Exchange(given if _REQUEST_ID.fullmatch(given) else ids.new("req"), clock, ids, trace)
        request.scope[_NAME] = found
    return found


def exchange_of(request: HTTPConnection) -> Exchange:
    return open_exchange(request, _system_clock, _system_ids)


def request_id(request: HTTPConnection) -> str:
    return exchange_of(request).request_id

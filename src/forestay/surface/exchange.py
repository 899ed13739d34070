"""What is known of one request and its answer, shared by every layer and mount that the request passes."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from forestay.surface.auth import Caller

_NAME = "forestay.exchange"


class Refused(Exception):
    """The request has its answer from elsewhere: what would have answered it ends here."""


class Exchange:
    """One request on its way: filled by whoever learns something, read by logs, metrics and limits."""

    __slots__ = ("caller", "request_id", "route", "status", "trace", "waits")

    def __init__(self, request_id: str, trace: str | None = None) -> None:
        self.request_id = request_id
        self.trace = trace
        self.route = "unmatched"
        self.caller: Caller | None = None
        self.status = 0
        self.waits: Callable[[], None] | None = None  # to be told that the request may stay open for long


def open_exchange(scope: MutableMapping[str, Any], request_id: str, trace: str | None) -> Exchange:
    made = Exchange(request_id, trace)
    scope[_NAME] = made
    return made


def exchange_of(scope: MutableMapping[str, Any]) -> Exchange | None:
    found: Exchange | None = scope.get(_NAME)
    return found


def note_caller(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Say whose request this is, once it is known."""
    exchange = exchange_of(scope)
    if exchange is not None:
        exchange.caller = caller


def note_waiting(scope: MutableMapping[str, Any]) -> None:
    """Say that the request may stay open for long, and so must end with its key."""
    exchange = exchange_of(scope)
    if exchange is not None and exchange.waits is not None:
        exchange.waits()


def note_route(scope: MutableMapping[str, Any], route: str) -> None:
    """Say which operation or page answers: a name from the code, never text of the caller."""
    exchange = exchange_of(scope)
    if exchange is not None:
        exchange.route = route

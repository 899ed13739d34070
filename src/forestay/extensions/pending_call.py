"""A host call under way, and the extension that makes it, as the dispatcher knows them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Literal

import msgspec

from forestay.extensions.connectors.contract import Call
from forestay.extensions.connectors.paths import Roots
from forestay.extensions.evidence import Correlation, Event
from forestay.extensions.protocol import HostCall
from forestay.kernel import Decision, Grant, Scope


class Subject(msgspec.Struct, frozen=True):
    """An extension as the dispatcher knows it."""

    id: str
    roots: Roots
    runtime: str = "js"
    correlation: Correlation | None = None
    methods: Mapping[str, tuple[str, ...]] = {}
    """By capability: the methods that its manifest limits it to (§3.3)."""


class Learned(msgspec.Struct, frozen=True):
    """What the dispatcher was told beside the policy; `session` says that it ends with the session."""

    subject: str
    effect: Literal["allow", "deny"]
    grant: Grant
    session: bool = False


class PendingCall:
    """A call under way: who asks, what it needs, since when, and how it stands."""

    def __init__(self, subject: Subject, request: HostCall, started: float) -> None:
        self.subject = subject
        self.roots = subject.roots
        self.correlation = subject.correlation or Correlation(subject.id, "scn-local")
        self.request = request
        self.capability = ""
        self.started = started
        self.ids = {"host_call_id": request.call_id[:128]}
        self.decided: set[tuple[str, str | None]] = set()
        self.by_person: dict[str, Scope] = {}  # what somebody allowed for this very call
        self.opened: set[tuple[str, str]] = set()  # outside the project: what somebody was asked about and allowed
        self.asked_for = 0.0  # seconds that a person took to answer
        self.call: Call | None = None
        self.asking: Future[Decision] | None = None  # of a synchronous call, whose thread waits for a person
        self.ended = False
        self.params_hash = ""
        self.size = 0  # bytes of its parameters
        self.held: list[Event] | None = None  # its records, as long as it may turn out to be a repeat

    def stop(self) -> None:
        if self.call is not None:
            self.call.cancel()
        if self.asking is not None:
            self.asking.cancel()

    def allows(self, capability: str, resource: str | None) -> bool:
        """Whether a person allowed it for this call."""
        scope = self.by_person.get(capability)
        return scope is not None and scope.covers(resource)

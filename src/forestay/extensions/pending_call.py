"""A host call under way, and the extension that makes it, as the dispatcher knows them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Literal

import msgspec

from forestay.extensions.connectors.contract import Call
from forestay.extensions.connectors.paths import Roots
from forestay.extensions.evidence import Correlation
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


class Held:
    """What is to be told of a call: when it began, what was decided and when.

    It is told when the call ends, if that may turn out to be a `repeat`; else with the first decision.
    """

    __slots__ = ("decisions", "repeat", "started")

    def __init__(self, started: int, repeat: bool) -> None:
        self.started = started
        self.repeat = repeat
        self.decisions: list[tuple[Decision, int]] = []


class PendingCall:
    """A call under way: who asks, what it needs, since when, and how it stands."""

    capability = ""
    params_hash = ""
    size = 0  # bytes of its parameters
    by_person: Mapping[str, Scope] = {}  # what somebody allowed for this very call
    opened: frozenset[tuple[str, str]] = frozenset()  # outside the project: what somebody was asked about and allowed
    asked_for = 0.0  # seconds that a person took to answer
    asking: Future[Decision] | None = None  # of a synchronous call, whose thread waits for a person
    call: Call | None = None
    held: Held | None = None
    ended = False

    def __init__(self, subject: Subject, request: HostCall, started: float) -> None:
        self.subject = subject
        self.roots = subject.roots
        self.correlation = subject.correlation or Correlation(subject.id, "scn-local")
        self.request = request
        self.started = started
        self.decided: set[tuple[str, str | None]] = set()

    @property
    def id(self) -> str:
        """As the records have it."""
        return self.request.call_id[:128]

    def stop(self) -> None:
        if self.call is not None:
            self.call.cancel()
        if self.asking is not None:
            self.asking.cancel()

    def allows(self, capability: str, resource: str | None) -> bool:
        """Whether a person allowed it for this call."""
        scope = self.by_person.get(capability)
        return scope is not None and scope.covers(resource)

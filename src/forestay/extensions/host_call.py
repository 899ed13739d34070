"""A host call under way, and its evidence: host_call.start, policy.decision, host_call.end (Pi §3.1, §3.4).

The start of a call is written with its decision. A call that may turn out to be a repeat keeps its records until its
end; then they are counted or written. A keeper keeps the calls that work of an extension may not make twice, when a
process died and the work is begun again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from functools import lru_cache, partial
from typing import Any, Literal, Protocol

import msgspec

from forestay.extensions.api_table import NONE
from forestay.extensions.connectors.contract import Call, Output
from forestay.extensions.connectors.paths import Roots
from forestay.extensions.connectors.ui import DIALOGS
from forestay.extensions.evidence import Correlation, Ended, Event, Evidence
from forestay.extensions.protocol import HostCall
from forestay.extensions.repeats import Key
from forestay.kernel import Clock, Decision, Grant, Problem, Scope, cut, redact_text

_OURS = frozenset(("capability", "method", "source", "subject", "rule"))
"""Fields whose words are the host's own; everything else may hold what an extension chose."""


class Subject(msgspec.Struct, frozen=True):
    """An extension as the dispatcher knows it."""

    id: str
    roots: Roots
    runtime: str = "js"
    correlation: Correlation | None = None
    methods: Mapping[str, tuple[str, ...]] = {}
    """By capability: the methods that its manifest limits it to (§3.3)."""


class Learned(msgspec.Struct, frozen=True):
    """A decision that was made beside the policy; `session` says that it ends with the session."""

    subject: str
    effect: Literal["allow", "deny"]
    grant: Grant
    session: bool = False


class Held:
    """What is to be written of a call: when it began, what was decided and when.

    It is written when the call ends if the call may be a `repeat`, else with the first decision.
    """

    __slots__ = ("decisions", "repeat", "started")

    def __init__(self, started: int, repeat: bool) -> None:
        self.started = started
        self.repeat = repeat
        self.decisions: list[tuple[Decision, int]] = []


class PendingCall:
    """A call under way: its extension, what it needs, when it began, and how it stands."""

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
        self.id = request.call_id[:128]  # as the records have it
        self.started = started
        self.decided: set[tuple[str, str | None]] = set()

    def stop(self) -> None:
        if self.call is not None:
            self.call.cancel()
        if self.asking is not None:
            self.asking.cancel()

    def allows(self, capability: str, resource: str | None) -> bool:
        """Whether a person allowed it for this call."""
        scope = self.by_person.get(capability)
        return scope is not None and scope.covers(resource)


class CallRecords:
    """Writes what happens to host calls; pure computation leaves no record."""

    def __init__(self, evidence: Evidence, clock: Clock) -> None:
        self._evidence = evidence
        self._clock = clock

    def started(self, pending: PendingCall, *, streams: bool) -> None:
        """A call has begun; its records are held back until its decision, or its end."""
        if pending.capability != NONE:
            now = self._clock.now_ms()
            pending.held = Held(now, repeat=not streams and not self._evidence.in_full(pending.correlation, now))

    def decided(self, pending: PendingCall, decision: Decision) -> None:
        held = pending.held
        if held is not None:
            held.decisions.append((decision, self._clock.now_ms()))
            if not held.repeat:
                self.release(pending)
        elif pending.capability != NONE:
            self._evidence.write(pending.correlation, _decision(pending, decision))

    def consent(self, pending: PendingCall, name: str, data: dict[str, Any]) -> None:
        """A person is asked or has answered."""
        self.release(pending)
        self._evidence.write(pending.correlation, Event(name, redacted(data), _ids(pending)))

    def ended(self, pending: PendingCall, problem: Problem | None) -> None:
        if pending.capability == NONE:
            return
        took = (self._clock.monotonic() - pending.started) * 1000
        held, pending.held = pending.held, None
        if held is None or not held.repeat:
            before = [] if held is None else _held(pending, held)
            self._evidence.write(pending.correlation, *before, _end(pending, problem, took))
            return
        key, id = _key(pending, held, problem), pending.id
        if not self._evidence.counted(pending.correlation, key, held.started, id, took):
            events = partial(_events, pending, held, problem, took, self._clock.now_ms())
            self._evidence.repeat(pending.correlation, Ended(key, held.started, id, took, events))

    def release(self, pending: PendingCall) -> None:
        """Write the records that were held back, because the call is no repeat."""
        held, pending.held = pending.held, None
        if held is not None:
            self._evidence.write(pending.correlation, *_held(pending, held))

    def close(self) -> None:
        self._evidence.close()


def _start(pending: PendingCall, at: int = 0) -> Event:
    call = pending.request
    data: dict[str, Any] = {
        "capability": pending.capability,
        "method": call.method[:40],
        "params_hash": pending.params_hash,
        "runtime": pending.subject.runtime,
    }
    if call.timeout_ms is not None:
        data["timeout_ms"] = call.timeout_ms
    return Event("host_call.start", data, _ids(pending), at=at)


def _decision(pending: PendingCall, decision: Decision, at: int = 0) -> Event:
    data = {
        **redacted(decision.evidence),
        "effect": decision.effect,
        "rule": decision.rule,
        "reason": _shown(decision.reason),
        "runtime": pending.subject.runtime,
    }
    return Event("policy.decision", data, _ids(pending), "info" if decision.allowed else "warn", at)


def _end(pending: PendingCall, problem: Problem | None, took: float, at: int = 0) -> Event:
    data: dict[str, Any] = {
        "capability": pending.capability,
        "method": pending.request.method[:40],
        "duration_ms": round(took, 3),
        "is_error": problem is not None,
        "runtime": pending.subject.runtime,
    }
    if pending.call is not None:
        data.update(pending.call.facts)
    if problem is not None:
        data["error"] = {"code": problem.row.pi, "problem": problem.key}
    return Event("host_call.end", data, _ids(pending), "info" if problem is None else "warn", at)


def _events(pending: PendingCall, held: Held, problem: Problem | None, took: float, at: int) -> list[Event]:
    """All records of a call that ended."""
    return [*_held(pending, held), _end(pending, problem, took, at)]


def _ids(pending: PendingCall) -> dict[str, str]:
    return {"host_call_id": pending.id}


def _held(pending: PendingCall, held: Held) -> list[Event]:
    """The records that were held back so far, with the times at which things happened."""
    return [_start(pending, held.started), *(_decision(pending, made, at) for made, at in held.decisions)]


def _key(pending: PendingCall, held: Held, problem: Problem | None) -> Key:
    """What makes two calls the same: the request, every decision, the end."""
    key: list[Any] = [pending.capability, pending.request.method[:40], pending.params_hash]
    for made, _ in held.decisions:
        told = made.evidence.get
        key += (made.effect, made.rule, told("resource"), told("capability"))
    if problem is not None:
        key.append(problem.key)
    return tuple(key)


@lru_cache(maxsize=2048)  # an extension asks for the same few things again and again
def _shown(text: str) -> str:
    return redact_text(cut(text, 4096))


def redacted(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _shown(value) if isinstance(value, str) and key not in _OURS else value for key, value in data.items()}


Kind = Literal["answer", "change", "deed", "last"]
"""An `answer` is asked for again when it was not heard. A `change` of the session has a place there. A `deed` may not
be done again. After a `last` one the work cannot be begun again."""

_CHANGES = ("appendEntry", "sendMessage", "sendUserMessage", "setSessionName", "setLabel", "setModel")
_DEEDS = ("navigateTree", "compact")
_LAST = ("newSession", "switchSession", "fork")
_FREE = frozenset(("", "read", "env", "events", "log"))
"""Capabilities whose use leaves nothing behind."""

Perform = Callable[[str | None], Awaitable[Output]]
"""Performs a call, by the name that is its own in every life."""


class CallKeeper(Protocol):
    """Keeps what extensions heard and did, for the work that they do it in."""

    async def once(self, extension: str, call: HostCall, kind: Kind, perform: Perform) -> Output:
        """What `perform` gives, or what it gave in another life."""


def kind_of(call: HostCall, capability: str, *, streams: bool) -> Kind | None:
    """What identifies a call when its work begins again; None: the call may be repeated."""
    operation = call.params.get("op")
    if call.method == "ui":
        return "answer" if operation in DIALOGS else None
    if call.method == "session":
        kinds: dict[Kind, tuple[str, ...]] = {"change": _CHANGES, "deed": _DEEDS, "last": _LAST}
        return next((kind for kind, operations in kinds.items() if operation in operations), None)
    if capability in _FREE:
        return None
    if streams:
        return "last"
    return "answer" if call.method == "model" else "deed"

"""The evidence of one host call: host_call.start, policy.decision, host_call.end (Pi §3.1, §3.4).

A call that may turn out to be a repeat keeps its records until its end; then they are counted or written.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from forestay.extensions.api_table import NONE
from forestay.extensions.evidence import Event, Evidence
from forestay.extensions.pending_call import PendingCall
from forestay.extensions.repeats import Key
from forestay.kernel import Clock, Decision, Problem, cut, redact_text

_OURS = frozenset(("capability", "method", "source", "subject", "rule"))
"""Fields whose words are the host's own; everything else may hold what an extension chose."""


class CallRecords:
    """Writes what happens to host calls; pure computation leaves no record."""

    def __init__(self, evidence: Evidence, clock: Clock) -> None:
        self._evidence = evidence
        self._clock = clock

    def begin(self, pending: PendingCall, *, streams: bool) -> None:
        """Decide whether the records of a call are held back until its end."""
        if not self._evidence.in_full(pending.correlation) and not streams:
            pending.held = []

    def started(self, pending: PendingCall) -> None:
        if pending.capability == NONE:
            return
        call = pending.request
        data: dict[str, Any] = {
            "capability": pending.capability,
            "method": call.method[:40],
            "params_hash": pending.params_hash,
            "runtime": pending.subject.runtime,
        }
        if call.timeout_ms is not None:
            data["timeout_ms"] = call.timeout_ms
        self._write(pending, Event("host_call.start", data, pending.ids))

    def decided(self, pending: PendingCall, decision: Decision) -> None:
        data = {
            **redacted(decision.evidence),
            "effect": decision.effect,
            "rule": decision.rule,
            "reason": _shown(decision.reason),
            "runtime": pending.subject.runtime,
        }
        self._write(pending, Event("policy.decision", data, pending.ids, "info" if decision.allowed else "warn"))

    def consent(self, pending: PendingCall, name: str, data: dict[str, Any]) -> None:
        """A person is asked or has answered."""
        self._write(pending, Event(name, redacted(data), pending.ids))

    def ended(self, pending: PendingCall, problem: Problem | None) -> None:
        if pending.capability == NONE:
            return
        data: dict[str, Any] = {
            "capability": pending.capability,
            "method": pending.request.method[:40],
            "duration_ms": round((self._clock.monotonic() - pending.started) * 1000, 3),
            "is_error": problem is not None,
            "runtime": pending.subject.runtime,
        }
        if pending.call is not None:
            data.update(pending.call.facts)
        if problem is not None:
            data["error"] = {"code": problem.row.pi, "problem": problem.key}
        self._write(pending, Event("host_call.end", data, pending.ids, "info" if problem is None else "warn"))

    def release(self, pending: PendingCall) -> None:
        """Write the records that were held back: the call is no repeat."""
        held, pending.held = pending.held, None
        if held:
            self._evidence.write(pending.correlation, *held)

    def close(self) -> None:
        self._evidence.close()

    def _write(self, pending: PendingCall, event: Event) -> None:
        if pending.held is None:
            self._evidence.write(pending.correlation, event)
            return
        pending.held.append(self._evidence.stamped(event))
        if event.name == "host_call.end":
            held, pending.held = pending.held, None
            key, data = _summary(held)
            self._evidence.repeat(pending.correlation, key, data, held)


def _summary(events: list[Event]) -> tuple[Key, dict[str, Any]]:
    """What makes two calls the same (the request, every decision, the end), and what is told of them."""
    start, end = events[0].data, events[-1].data
    decisions = [event.data for event in events[1:-1]]
    error = end.get("error") or {}
    key = (
        *(start.get(name) for name in ("capability", "method", "params_hash")),
        *((item.get("effect"), item.get("rule"), item.get("resource"), item.get("capability")) for item in decisions),
        error.get("problem"),
    )
    last = {name: value for name, value in (decisions[-1] if decisions else {}).items() if name != "scope"}
    return key, {**last, **{name: start[name] for name in start if name != "timeout_ms"}, **end}


@functools.lru_cache(maxsize=2048)  # an extension asks for the same few things again and again
def _shown(text: str) -> str:
    return redact_text(cut(text, 4096))


def redacted(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _shown(value) if isinstance(value, str) and key not in _OURS else value for key, value in data.items()}

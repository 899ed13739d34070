"""What callers ask of a run, as data: another process can carry it out (see `inbox`)."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.kernel import Clock, Problem
from forestay.runs import decider, interrupts
from forestay.runs.interrupts import Voter
from forestay.runs.outcome import Outcome
from forestay.runs.state import Event, RunState
from forestay.runs.types import DrainPolicy

MAX_SIGNALS = 10_000


class Cancel(msgspec.Struct, frozen=True, tag_field="do", tag="cancel"):
    """Cancel a run; the result is its status."""

    principal: str | None = None
    reason: str | None = None

    def make(self, state: RunState, clock: Clock) -> Outcome:
        if state.ended is not None:
            return Outcome([], state.ended)
        return Outcome(decider.cancel_run(state, clock.now_ms(), self.reason, self.principal), "cancelled")


class Pause(msgspec.Struct, frozen=True, tag_field="do", tag="pause"):
    """Start no further node (W17)."""

    drain_policy: DrainPolicy
    reason: str | None = None

    def make(self, state: RunState, clock: Clock) -> Outcome:
        if state.ended is not None or state.paused_ms is not None:
            raise _wrong_status(state, "paused")
        if state.pausing is not None and self.drain_policy != "immediate":
            raise Problem("state_conflict", "The run pauses when its node has ended.", runStatus=state.status)
        return Outcome(decider.pause_run(state, self.drain_policy, self.reason))


class Resume(msgspec.Struct, frozen=True, tag_field="do", tag="resume"):
    """Go on after a pause."""

    principal: str | None = None

    def make(self, state: RunState, clock: Clock) -> Outcome:
        if state.paused_ms is None and state.pausing is None:
            raise _wrong_status(state, "resumed")
        return Outcome([Event("run.resumed", {"resumedBy": self.principal} if self.principal else {})])


class Signal(msgspec.Struct, frozen=True, tag_field="do", tag="signal"):
    """Hand a named event to a run (W4)."""

    name: str
    payload: Any = None
    principal: str | None = None

    def make(self, state: RunState, clock: Clock) -> Outcome:
        if state.ended is not None:
            raise _wrong_status(state, "signalled")
        kept = sum(map(len, state.signals.values()))
        if kept >= MAX_SIGNALS and not decider.waits_for(state, self.name, self.payload):
            raise Problem(
                "state_conflict",
                f"The run keeps {MAX_SIGNALS} signals that no node has taken.",
                runStatus=state.status,
                limit=MAX_SIGNALS,
            )
        told = {"name": self.name, "by": self.principal} if self.principal else {"name": self.name}
        return Outcome([Event("forestay.signal.received", told, None, {"payload": self.payload})])


class Resolve(msgspec.Struct, frozen=True, tag_field="do", tag="resolve"):
    """Answer an interrupt: the one with this id, or the open one of a node (W7). The result names it."""

    body: dict[str, Any]
    caller: Voter
    node_id: str = ""
    interrupt_id: str = ""

    def make(self, state: RunState, clock: Clock) -> Outcome:
        now = clock.now_ms()
        if self.interrupt_id:
            asked = state.interrupts[self.interrupt_id]
        else:
            asked = interrupts.find_open(state, self.node_id, now)
        answer = interrupts.answer(asked, self.body, self.caller, now)
        return Outcome(answer.events, [asked.node, asked.id, answer.resumed])


Command = Cancel | Pause | Resume | Signal | Resolve


def _wrong_status(state: RunState, verb: str) -> Problem:
    return Problem("state_conflict", f"A run that is {state.status} cannot be {verb}.", runStatus=state.status)

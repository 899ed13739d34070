"""The commands to a run, as data, so that another process can execute them (see `inbox`)."""

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
            raise Problem("state_conflict", "The run is pausing; it waits for its node to end.", runStatus=state.status)
        return Outcome(decider.pause_run(state, self.drain_policy, self.reason))


class Resume(msgspec.Struct, frozen=True, tag_field="do", tag="resume"):
    """Continue after a pause."""

    principal: str | None = None

    def make(self, state: RunState, clock: Clock) -> Outcome:
        if state.paused_ms is None and state.pausing is None:
            raise _wrong_status(state, "resumed")
        return Outcome([Event("run.resumed", {"resumedBy": self.principal} if self.principal else {})])


class Signal(msgspec.Struct, frozen=True, tag_field="do", tag="signal"):
    """Send a named event to a run (W4); a repeated `id` is ignored, as long as the run remembers it."""

    name: str
    payload: Any = None
    principal: str | None = None
    id: str | None = None

    def make(self, state: RunState, clock: Clock) -> Outcome:
        if self.id is not None and self.id in state.heard:
            return Outcome([])
        if state.ended is not None:
            raise _wrong_status(state, "signalled")
        kept = sum(map(len, state.signals.values()))
        if kept >= MAX_SIGNALS and not decider.waits_for(state, self.name, self.payload):
            raise Problem(
                "state_conflict",
                f"The run has {MAX_SIGNALS} signals that no node has received.",
                runStatus=state.status,
                limit=MAX_SIGNALS,
            )
        told = {"name": self.name, "by": self.principal} if self.principal else {"name": self.name}
        private = {"payload": self.payload, **({"id": self.id} if self.id is not None else {})}
        return Outcome([Event("forestay.signal.received", told, None, private)])


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


class SetVariables(msgspec.Struct, frozen=True, tag_field="do", tag="set-variables"):
    """Change variables of a run from outside; only the test seams use it."""

    values: dict[str, Any]

    def make(self, state: RunState, clock: Clock) -> Outcome:
        if state.ended is not None:
            raise _wrong_status(state, "changed")
        known = {item.name for item in state.plan.workflow.variables} - state.plan.sensitive
        if unknown := sorted(self.values.keys() - known):
            message = f"The run has no variable {unknown[0][:80]!r} that can be changed."
            raise Problem("schema_mismatch", message, at="$.variables")
        return Outcome(
            [
                Event("variable.changed", {"name": name, "previous": state.variables.get(name), "next": value})
                for name, value in self.values.items()
            ]
        )


Command = Cancel | Pause | Resume | Signal | Resolve | SetVariables


def _wrong_status(state: RunState, verb: str) -> Problem:
    return Problem("state_conflict", f"A run that is {state.status} cannot be {verb}.", runStatus=state.status)

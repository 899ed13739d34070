"""Replay: walks a recorded log, decides and computes again, and compares (K3, K4, K6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.kernel import Problem, Record
from forestay.runs import decider
from forestay.runs.diff import VOLATILE, without_volatile
from forestay.runs.evolve import evolve
from forestay.runs.execution import Execution
from forestay.runs.log import to_event
from forestay.runs.outcome import Make, Parked, error_of
from forestay.runs.refusal import REFUSAL, answer_now, kind_of
from forestay.runs.state import Event, RunState
from forestay.runs.types import TERMINAL_EVENTS
from forestay.runs.values import plain

if TYPE_CHECKING:
    from forestay.runs.engine import Engine

# Events that the decider makes from the state alone. All others come from outside: time, people, effects, code.
_DECIDED = frozenset({"node.started", "node.skipped", "run.completed", "forestay.loop.taken"})
_OUTCOMES = frozenset({"node.completed", "node.failed", "node.retried"})
_IGNORED = VOLATILE | {"delayMs"}
_PATIENCE = 10.0


class Unrecorded(Exception):
    """The code of a replayed node asked for something that the log does not have."""


class _Replayer:
    """Replaces the run's actor, and gives the code only recorded results."""

    def __init__(self, engine: Engine, state: RunState) -> None:
        self.engine = engine
        self.state = state

    def now(self) -> int:
        return self.state.ts

    def moment(self) -> int:
        return self.state.at

    async def instead(self, execution: Execution, key: str, fn: Callable[[], Any]) -> Any:
        raise Unrecorded(key)

    async def next_ended(self, node_id: str) -> str:
        raise Unrecorded(node_id)

    async def new_child(self, execution: Execution, key: str, workflow_id: str, inputs: Any, **options: Any) -> Any:
        raise Unrecorded(key)

    async def post(self, make: Make) -> Any:
        return make(self.state).result


class Replay:
    """One replay of `expected` on top of `state`."""

    def __init__(self, engine: Engine, state: RunState, fork: dict[str, Any], expected: list[Record]) -> None:
        self._engine = engine
        self._state = state
        self._fork = fork
        self._expected = [to_event(record) for record in expected]
        self._actor = _Replayer(engine, state)
        self._decided: list[Event] = []
        self._computed: list[Event] = []
        self._events: list[Event] = []

    async def run(self) -> list[Event]:
        """Return the fork's events from `fromSeq` on."""
        for event in self._expected:
            if self._engine.replays_ask and await self._refusal_changed(event):
                return self._events
            kind = await self._compare(event)
            if kind is not None:
                self._report(event, kind)
            self._take(event)
        if self._expected and self._expected[-1].type not in TERMINAL_EVENTS:
            forked = {"sourceRunId": self._fork["source"], "fromSeq": self._fork["fromSeq"], "mode": "replay"}
            now = max(self._engine.clock.now_ms(), self._state.ts)
            self._append(Event("forestay.run.forked", forked, ts=now))
        return self._events

    async def _refusal_changed(self, event: Event) -> bool:
        """Ask a model its recorded question again; end the replay when it now refuses, or no longer does (K6)."""
        before = kind_of(event)
        if before is None or event.node is None or self._state.budget is not None:
            return False
        kind = self._engine.registry.get(self._state.plan.nodes[event.node].doc.type_id)
        now = None if kind is None else await answer_now(self._engine, self._state, kind, event)
        if now is None or now == before:
            return False
        payload = {
            "sourceRunId": self._fork["source"],
            "atSequence": event.seq,
            "originalEventId": event.id,
            "nodeId": event.node,
            "originalEnvelopeKind": before,
            "replayEnvelopeKind": now,
        }
        self._append(Event(REFUSAL, payload, event.node, ts=event.ts, at=event.at))
        said = "refuses what it answered" if now == "refusal" else "answers what it refused"
        told = {"code": "replay_diverged_at_refusal", "message": f"The model now {said} in the replayed run."}
        error = {**told, "details": {key: payload[key] for key in payload if key != "originalEventId"}}
        for made in decider.finish_failed(self._state, event.ts, error, event.node):
            made.ts, made.at = event.ts, event.at
            self._append(made)
        return True

    async def _compare(self, event: Event) -> str | None:
        """Return how the recorded event differs from the computed one; None when they match, or it is a fact."""
        if event.type == "forestay.run.forked":  # a branch may begin in the middle of a group of events
            self._computed, self._decided = [], []
            return None
        if self._computed:
            return self._against(self._computed, event)
        if self._decided and (self._decided[0].type, self._decided[0].node) == (event.type, event.node):
            return self._against(self._decided, event)
        if event.type in _DECIDED or (event.type == "run.failed" and self._state.failure is not None):
            if event.type == "node.started" and event.payload.get("attempt", 1) > 1:
                return None
            if not self._decided:
                self._decided = decider.decide(self._state, 0)
            return self._against(self._decided, event)
        name = event.node
        if name is None or name not in self._state.nodes or self._state.nodes[name].status != "running":
            return None
        kind = self._engine.registry.get(self._state.plan.nodes[name].doc.type_id)
        if kind is None:
            return None
        if kind.inline:
            if event.type in ("node.cancelled", "node.resumed") or _code(event) in _TIMED:
                return None
            self._computed = await self._execute(name)
            return self._against(self._computed, event)
        if event.type in _OUTCOMES and _code(event) not in _TIMED:
            return await self._recompute(name, event)
        return None

    def _against(self, queue: list[Event], event: Event) -> str | None:
        if not queue:
            return "extra"
        made = queue.pop(0)
        if (made.type, made.node) != (event.type, event.node):
            queue.clear()
            return "type-mismatch"
        return None if _essence(made) == _essence(event) else "output"

    async def _execute(self, name: str) -> list[Event]:
        """Return the events of a node's code, run with the recorded results."""
        kind = self._engine.registry.get(self._state.plan.nodes[name].doc.type_id)
        assert kind is not None
        execution = Execution(self._actor, name)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(_PATIENCE):
                make = execution.completed(plain(await kind.execute(execution)))
        except Parked as parked:
            make = parked.outcome
        except Unrecorded:
            raise
        except Exception as error:  # noqa: BLE001 - node code may raise anything
            execution.drop_changes()
            events = decider.failed(self._state, name, error_of(error), lambda: 0.0)
            return [*execution.take(), *events]
        return make(self._state).events

    async def _recompute(self, name: str, event: Event) -> str | None:
        """Run a node's code against its recorded effects; only its outcome is compared."""
        try:
            made = await self._execute(name)
        except Unrecorded:
            # A failed attempt may have failed in an effect, which leaves no record.
            return "missing" if event.type == "node.completed" else None
        except Problem:
            return None if event.type != "node.completed" else "output"
        last = made[-1] if made else None
        if last is None or last.type != event.type:
            return "type-mismatch"
        return None if event.type != "node.completed" or _essence(last) == _essence(event) else "output"

    def _report(self, event: Event, kind: str) -> None:
        payload: dict[str, Any] = {
            "sourceRunId": self._fork["source"],
            "atSequence": event.seq,
            "originalEventId": event.id,
            "divergenceKind": kind,
        }
        if event.node is not None:
            payload["divergencePoint"] = event.node
        self._append(Event("replay.diverged", payload, ts=event.ts, at=event.at))

    def _take(self, event: Event) -> None:
        """Copy a recorded event with its time, because the age of a channel's entries affected later events."""
        self._append(msgspec.structs.replace(event))

    def _append(self, event: Event) -> None:
        event.id, event.ts, event.seq = "", event.ts or self._actor.now(), self._state.seq + 1
        event.at = event.at or event.ts
        evolve(self._state, event)
        if event.seq == 0:
            from forestay.runs.engine import fork_origin

            fork_origin(self._state, self._fork)
        self._events.append(event)


_TIMED = frozenset({"node_timeout", "interrupt_timeout", "capability_not_provided", "input_unresolved"})


def _code(event: Event) -> str | None:
    error = event.payload.get("error") or event.payload.get("lastError")
    return error.get("code") if isinstance(error, dict) else None


def _essence(event: Event) -> Any:
    return {key: without_volatile(value) for key, value in event.payload.items() if key not in _IGNORED}

"""Clients that do not wait for each other: whatever they ask at the same moment, a run stays one story with one end.

Hypothesis writes what happens in rounds. Everything of a round is asked at the same time; between rounds time passes,
the host may be restarted, and at the end every question is answered. Then each log must hold (C1-C7).

- C1  A request is done, or refused with a problem that its caller can understand; nothing breaks.
- C2  A log counts from 0 without a gap, begins with `run.started`, and has one terminal event, the last.
- C3  A node starts once per iteration and attempt; while a run is paused, none starts.
- C4  Of the answers to one question exactly one is taken, and its answer is in the log.
- C5  A run of which somebody was told that it is cancelled, is cancelled; no child outlives it.
- C6  An effect is performed once in a run; a replay performs none.
- C7  The state in memory is what the log says; a fork's history is its source's; a replay does not differ.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forestay.kernel import Ids, Problem, SeededRandomness, iso, parse_iso
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeError, NodeRegistry
from forestay.runs.service import Runs, projections
from forestay.runs.types import TERMINAL, TERMINAL_EVENTS, CreateRun, ForkRequest, RunEvent, RunFilter
from tests.runs.documents import edge, node, workflow
from tests.runs.patient import CountedLedger, PatientClock

# What a client may hear, by what it asked. `ledger_conflict` or `internal` would be ours to handle.
REFUSALS = {
    "answer": {"interrupt_already_resolved", "interrupt_cancelled", "interrupt_expired", "not_found"},
    "cancel": set(),
    "pause": {"state_conflict"},
    "resume": {"state_conflict"},
    "signal": {"state_conflict"},
    "fork": {"replay_out_of_range"},
}
RETRY = {"maxAttempts": 3, "initialDelayMs": 2000, "jitter": 0.5}
ACTIONS = ["accept", "reject", "refine", "ask"]
BRANCHES = ("gate", "ask", "delay", "slow", "flaky", "sub", "hear")
PARENT = workflow(
    "racing",
    [
        node("begin"),
        node("gate", "core.approvalGate", config={"actions": ACTIONS, "timeoutMs": 90_000}),
        node("ask", "core.clarificationGate", config={"questions": [{"id": "q", "question": "Which?"}]}),
        node("delay", "core.delay", config={"delayMs": 5000}),
        node("slow", "test.slow"),
        node("flaky", "test.flaky", settings={"retry": RETRY}),
        node("sub", "core.subWorkflow", config={"workflowId": "racing-child"}),
        node("hear", "core.waitForEvent", config={"event": "go"}),
        node("end"),
    ],
    [
        *(edge("begin", name) for name in BRANCHES),
        *(edge(name, "end", triggerRule="all_complete") for name in BRANCHES),
    ],
)  # fmt: skip
CHILD = workflow(
    "racing-child",
    [
        node("nap", "core.delay", config={"delayMs": 1000}),
        node("gate", "core.approvalGate", config={"actions": ACTIONS}),
        node("work", "test.slow"),
    ],
    [edge("nap", "gate"), edge("gate", "work")],
)

ACTION = st.sampled_from(["accept", *ACTIONS])
RUN = st.integers(0, 3)
OPERATION = st.one_of(
    st.tuples(st.just("answer"), RUN, st.sampled_from(["gate", "ask"]), ACTION),
    st.tuples(st.just("token"), RUN, st.integers(0, 2), ACTION),
    st.tuples(st.just("pause"), RUN),
    st.tuples(st.just("resume"), RUN),
    st.tuples(st.just("signal"), RUN),
    st.tuples(st.just("cancel"), RUN),
    st.tuples(st.just("fork"), RUN, st.sampled_from(["replay", "branch"]), st.integers(0, 40)),
)
ROUND = st.tuples(
    st.lists(OPERATION, min_size=1, max_size=6), st.sampled_from([0, 0, 1, 2500, 6000, 95_000]), st.booleans()
)
STORY = st.lists(ROUND, min_size=1, max_size=6)


class World:
    """One host, its clients, and what they were told."""

    def __init__(self, folder: Path) -> None:
        self.clock = PatientClock()
        self._randomness = SeededRandomness(7)
        self._ids = Ids(self.clock, self._randomness)
        self._folder = folder
        self.effects: Counter[tuple[str, str]] = Counter()
        self.cancelled: set[str] = set()
        self.resumed: Counter[tuple[str, str]] = Counter()
        self.replays_of_ended: set[str] = set()
        self.told: Counter[str] = Counter()
        self.sources: dict[str, tuple[str, int]] = {}
        self.runs: Any = None

    def registry(self) -> NodeRegistry:
        types = standard_registry(custom=False)

        @types.node("test.slow")
        async def slow(ctx: Any) -> dict[str, Any]:
            async def work() -> int:
                self.effects[(ctx.run_id, ctx.node_id)] += 1
                return 1

            await ctx.effect("before", work)
            await asyncio.sleep(3)
            return {"done": True}

        @types.node("test.flaky")
        async def flaky(ctx: Any) -> dict[str, Any]:
            await asyncio.sleep(0.5)
            if ctx.attempt < 3:
                raise NodeError("busy", "not yet")
            return {}

        return types

    async def play(self, story: list[Any], restarts: bool) -> None:
        async with CountedLedger.open(
            self._folder / "ledger.db", projections=projections(), clock=self.clock, ids=self._ids
        ) as ledger:
            self.ledger = ledger
            await self._open()
            for document in (CHILD, PARENT):
                await self.runs.put_workflow(document, tenant=None)
            await self.runs.create_run(CreateRun(workflow_id="racing"), "acme", "alice")
            for operations, wait, again in story:
                known = [item.run_id for item in (await self.runs.list_runs(RunFilter(), "acme")).runs]
                known.reverse()
                await asyncio.gather(*(self._ask(known, *operation) for operation in operations))
                await asyncio.sleep(wait / 1000)
                if again and restarts:
                    await self.runs.close()
                    await self._open()
            await self._finish()
            await self._check()
            await self.runs.close()

    async def _open(self) -> None:
        self.runs = Runs(
            self.ledger,
            clock=self.clock,
            ids=self._ids,
            randomness=self._randomness,
            secret=b"s" * 32,
            nodes=self.registry(),
            sweep_seconds=30.0,
            lease_seconds=3600.0,
        )
        await self.runs.start()

    async def _ask(self, known: list[str], kind: str, index: int, *more: Any) -> None:
        run_id = known[index % len(known)]
        try:
            await getattr(self, f"_{kind}")(run_id, *more)
        except Problem as problem:
            assert problem.key in REFUSALS["answer" if kind == "token" else kind], (kind, problem)  # C1
            self.told[f"{kind} {problem.key}"] += 1
        else:
            self.told[kind] += 1

    async def _answer(self, run_id: str, name: str, action: str) -> None:
        body = {"action": action} if name == "gate" else {"answers": {"q": "x"}}
        done = await self.runs.resolve_by_node(run_id, name, "acme", {"resumeValue": body}, "ann")
        self.resumed[(run_id, done.interrupt_id)] += done.resumed

    async def _token(self, run_id: str, index: int, action: str) -> None:
        asked = await self.runs.interrupts(run_id, "acme")
        if not asked:
            return
        chosen = asked[index % len(asked)]
        body: Any = {"action": action} if chosen.kind == "approval" else {"answers": {"q": "x"}}
        done = await self.runs.resolve_by_token(chosen.token, {"resumeValue": body})
        self.resumed[(run_id, done.interrupt_id)] += done.resumed

    async def _pause(self, run_id: str) -> None:
        await self.runs.pause(run_id, "acme")

    async def _resume(self, run_id: str) -> None:
        await self.runs.resume(run_id, "acme")

    async def _signal(self, run_id: str) -> None:
        await self.runs.signal(run_id, "acme", "go", {"n": 1})

    async def _cancel(self, run_id: str) -> None:
        if (await self.runs.cancel(run_id, "acme")).status == "cancelled":
            self.cancelled.add(run_id)

    async def _fork(self, run_id: str, mode: Any, start: int) -> None:
        made = await self.runs.fork(run_id, "acme", ForkRequest(mode=mode, from_seq=start))
        self.sources[made.run_id] = (run_id, start)
        if mode == "replay" and made.status in TERMINAL:
            self.replays_of_ended.add(made.run_id)

    async def _finish(self) -> None:
        """Answer whatever is asked, until every run has ended."""
        for _ in range(60):
            page = await self.runs.list_runs(RunFilter(), "acme", limit=200)
            open_runs = [item for item in page.runs if item.status not in TERMINAL]
            if not open_runs:
                return
            for item in open_runs:
                known = [item.run_id]
                if item.status == "paused":
                    await self._ask(known, "resume", 0)
                await self._ask(known, "signal", 0)
                for index, _ in enumerate(await self.runs.interrupts(item.run_id, "acme")):
                    await self._ask(known, "token", 0, index, "accept")
            await asyncio.sleep(10)
        states = {item.run_id: item.status for item in open_runs}
        logs = {id: [(e.type, e.node_id) for e in await self.runs.events(id, "acme")] for id in states}
        raise AssertionError(f"did not end: {states} {self.sources} {logs}")

    async def _check(self) -> None:
        page = await self.runs.list_runs(RunFilter(), "acme", limit=200)
        for item in page.runs:
            events = await self.runs.events(item.run_id, "acme")
            check_log(events)
            self._check_answers(item.run_id, events)
            snapshot = await self.runs.get_run(item.run_id, "acme")
            assert snapshot.status == item.status == events[-1].type.removeprefix("run.")
            if item.run_id in self.cancelled:
                assert item.status == "cancelled"  # C5
            await self._check_fork(item.run_id, events)
            await self._check_child(item.run_id, events)
            again = await self.runs._engine.read_state(item.run_id)
            mine = await self.runs._engine.state(item.run_id)
            assert essence_of(again) == essence_of(mine)  # C7
        assert all(count == 1 for count in self.effects.values()), self.effects  # C6
        assert not {run_id for run_id, _ in self.effects} & self.replays_of_ended

    async def _check_child(self, run_id: str, events: list[RunEvent]) -> None:
        link = events[0].payload.get("parent")
        if link is None or run_id in self.sources:
            return
        parent = await self.runs.events(link["runId"], "acme")
        if parent[-1].type == "run.cancelled":  # C5
            assert events[-1].type == "run.cancelled" or events[-1].timestamp <= parent[-1].timestamp
            assert events[-1].timestamp <= later(parent[-1].timestamp)

    def _check_answers(self, run_id: str, events: list[RunEvent]) -> None:
        taken = Counter(event.payload["interruptId"] for event in events if event.type == "interrupt.resolved")
        assert all(count == 1 for count in taken.values()), taken  # C4
        for (owner, asked), told in self.resumed.items():
            if owner == run_id and told:
                assert told == taken[asked] == 1, "told to one, and in the log"

    async def _check_fork(self, run_id: str, events: list[RunEvent]) -> None:
        if run_id not in self.sources:
            return
        source, start = self.sources[run_id]
        history = (await self.runs.events(source, "acme"))[:start]
        for mine, other in zip(events[:start], history, strict=True):
            assert (mine.event_id, mine.timestamp, mine.payload) == (other.event_id, other.timestamp, other.payload)
        assert not [event for event in events if event.type == "replay.diverged"]  # C7


def later(timestamp: str) -> str:
    return iso(parse_iso(timestamp) + 1000)


def essence_of(state: Any) -> Any:
    names = ("seq", "ended", "outputs", "error", "variables", "executions", "edges", "children", "signals")
    nodes = {name: (item.status, item.attempt, item.outputs, item.error) for name, item in state.nodes.items()}
    asked = {id: (item.status, item.votes) for id, item in state.interrupts.items()}
    return msgspec.to_builtins([{name: getattr(state, name) for name in names}, nodes, asked], order="sorted")


def check_log(events: list[RunEvent]) -> None:
    types = [event.type for event in events]
    assert [event.sequence for event in events] == list(range(len(events)))  # C2
    assert types[0] == "run.started" and types.count("run.started") == 1
    assert [index for index, type in enumerate(types) if type in TERMINAL_EVENTS] == [len(types) - 1]
    paused = False
    started: Counter[Any] = Counter()
    for event in events:
        if event.type in ("run.paused", "run.resumed"):
            paused = event.type == "run.paused"
        if event.type == "node.started":
            assert not paused, (event.node_id, types)  # C3
            started[(event.node_id, event.payload.get("iteration", 0), event.payload["attempt"])] += 1
    assert all(count == 1 for count in started.values()), started


def played(story: list[Any], restarts: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.clock.run(world.play(story, restarts))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(STORY)
def test_c1_to_c7_clients_at_the_same_moment(story: list[Any]) -> None:
    played(story, restarts=False)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STORY)
def test_c1_to_c7_with_restarts_in_between(story: list[Any]) -> None:
    played(story, restarts=True)


@pytest.mark.sweep
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(STORY, st.booleans())
def test_c1_to_c7_many_stories(story: list[Any], restarts: bool) -> None:
    played(story, restarts)

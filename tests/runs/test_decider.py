"""The decider against a slow, obvious interpreter: random graphs, every rule and condition, random outcomes (D1-D6)."""

from __future__ import annotations

import random
import re
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.kernel import ManualClock
from forestay.runs.commands import Signal
from forestay.runs.decider import decide
from forestay.runs.definition import read_workflow
from forestay.runs.evolve import evolve, fold
from forestay.runs.plan import compile_plan
from forestay.runs.state import MAX_HEARD, Event, RunState, new_state
from forestay.runs.types import Limits
from tests.runs.documents import edge, node, when, workflow

RULES = ("all_success", "any_success", "all_complete", "none_failed", "any_failed")
CONDITIONS: list[dict[str, Any] | None] = [
    None,
    {"type": "expression", "expression": "output.v > 1"},
    {"type": "expression", "expression": "status == 'failed' || v == 0"},
    {"type": "equals", "left": "output.v", "right": 1},
    {"type": "notEquals", "left": "output.v", "right": 2},
    {"type": "contains", "left": "output.tags", "right": "x"},
    {"type": "regex", "left": "output.text", "right": "^a+$"},
]


class Sim:
    """Drives evolve and decide as the engine does, without an engine."""

    def __init__(self, document: dict[str, Any], **limits: Any) -> None:
        self.state: RunState = new_state("r", compile_plan(read_workflow(document)), Limits(**limits))
        self.log: list[Event] = []
        self.take(Event("run.started", {"workflowId": "w", "inputs": {}}))
        self.quiet()

    def take(self, event: Event) -> None:
        event.seq, event.ts = self.state.seq + 1, 1000 + self.state.seq
        event.at = event.ts
        self.log.append(event)
        evolve(self.state, event)

    def quiet(self) -> None:
        while events := decide(self.state, 1000):
            for event in events:
                self.take(event)

    def end(self, name: str, outputs: dict[str, Any] | None) -> None:
        if outputs is None:
            self.take(Event("node.failed", {"nodeId": name, "error": {"code": "x", "message": "x"}}, name))
        else:
            self.take(Event("node.completed", {"nodeId": name, "outputs": outputs}, name))
        self.quiet()

    def nodes(self, *types: str) -> list[str]:
        return [event.payload["nodeId"] for event in self.log if event.type in types]


# The reference: everything from scratch, straight from the words of W10.


def holds(condition: dict[str, Any] | None, status: str, out: dict[str, Any]) -> bool:
    if condition is None:
        return True
    if condition.get("expression") == "output.v > 1":
        return isinstance(out.get("v"), int) and out["v"] > 1
    if condition["type"] == "expression":
        return status == "failed" or out.get("v") == 0
    value = out.get(condition["left"].split(".")[1])
    if condition["type"] == "equals":
        return bool(value == condition["right"])
    if condition["type"] == "notEquals":
        return bool(value != condition["right"])
    if condition["type"] == "contains":
        return isinstance(value, list) and condition["right"] in value
    return isinstance(value, str) and re.search(condition["right"], value) is not None


def brings(link: dict[str, Any], ended: dict[str, Any]) -> str | None:
    """What an edge says about its source: success, failed, skipped, or nothing yet."""
    if link["sourceNodeId"] not in ended:
        return None
    status, out = ended[link["sourceNodeId"]]
    if status == "skipped" or not holds(link.get("condition"), status, out):
        return "skipped"
    return "success" if status == "completed" else "failed"


def verdict(rule: str, brought: list[str | None]) -> str | None:
    every = None not in brought
    if rule == "all_success":
        return (
            "start"
            if all(b == "success" for b in brought)
            else "skip"
            if {"failed", "skipped"} & set(brought)
            else None
        )
    if rule == "any_success":
        return "start" if "success" in brought else "skip" if every else None
    if rule == "all_complete":
        return "start" if every else None
    if rule == "none_failed":
        if "failed" in brought:
            return "skip"
        return None if not every else "start" if "success" in brought else "skip"
    return "start" if "failed" in brought else "skip" if every else None


def reference(document: dict[str, Any], history: dict[str, Any]) -> tuple[set[str], set[str], str | None]:
    """(started, skipped, how the run ended) after the outcomes of `history`, computed to a fixpoint."""
    into = {n["id"]: [e for e in document["edges"] if e["targetNodeId"] == n["id"]] for n in document["nodes"]}
    rule = {name: next((e["triggerRule"] for e in links), "all_success") for name, links in into.items()}
    started: set[str] = set()
    skipped: set[str] = set()
    changed = True
    while changed:
        changed = False
        ended = {**history, **{name: ("skipped", {}) for name in skipped}}
        for name, links in into.items():
            if name in started or name in skipped:
                continue
            said = verdict(rule[name], [brings(link, ended) for link in links])
            if said is not None:
                (started if said == "start" else skipped).add(name)
                changed = True
    for name, (status, out) in history.items():
        if status == "failed" and not any(
            e["sourceNodeId"] == name
            and rule[e["targetNodeId"]] in ("any_failed", "all_complete")
            and holds(e.get("condition"), "failed", out)
            for e in document["edges"]
        ):
            return started, skipped, "failed"
    return started, skipped, "completed" if started <= history.keys() else None


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    count = draw(st.integers(1, 9))
    names = [f"n{i}" for i in range(count)]
    links = []
    for target in range(1, count):
        rule = draw(st.sampled_from(RULES))
        for source in range(target):
            if draw(st.integers(0, 2)) == 0:
                condition = draw(st.sampled_from(CONDITIONS))
                extra = {"condition": condition} if condition else {}
                links.append(edge(names[source], names[target], triggerRule=rule, **extra))
    return workflow("w", [node(name) for name in names], links), draw(st.integers(0, 2**32))


@settings(max_examples=400, deadline=None)
@given(graphs())
def test_d1_d2_d3_d4_random_graphs_behave_as_the_reference_says(drawn: tuple[dict[str, Any], int]) -> None:
    document, seed = drawn
    chance = random.Random(seed)
    sim = Sim(document)
    history: dict[str, Any] = {}
    for _ in range(len(document["nodes"]) + 1):
        started, skipped, ended = reference(document, history)
        if ended == "failed":
            assert sim.state.ended == "failed"
            break
        assert set(sim.nodes("node.started")) == started
        assert set(sim.nodes("node.skipped")) == skipped
        assert sim.state.ended == ended
        if ended is not None:
            break
        name = chance.choice(sorted(sim.state.active))
        if chance.random() < 0.3:
            history[name] = ("failed", {"error": {"code": "x", "message": "x"}})
            sim.end(name, None)
        else:
            out = {"v": chance.randrange(4), "tags": chance.choice([["x"], []]), "text": chance.choice(["aa", "b"])}
            history[name] = ("completed", out)
            sim.end(name, out)
    assert sim.state.ended is not None, "every run ends"
    names = sim.nodes("node.started")
    assert len(names) == len(set(names)), "no node starts twice"
    assert sim.log[-1].type in ("run.completed", "run.failed")


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 40))
def test_v1_the_same_events_give_the_same_state(drawn: tuple[dict[str, Any], int], cut: int) -> None:
    document, seed = drawn
    chance = random.Random(seed)
    sim = Sim(document)
    while sim.state.ended is None:
        sim.end(chance.choice(sorted(sim.state.active)), None if chance.random() < 0.3 else {"v": chance.randrange(4)})
    again = fold(new_state("r", sim.state.plan, Limits()), sim.log[:cut])
    rest = Sim.__new__(Sim)
    rest.state, rest.log = again, list(sim.log[:cut])
    for event in sim.log[cut:]:
        evolve(again, event)
    assert again.status == sim.state.status
    assert again.nodes == sim.state.nodes
    assert again.edges == sim.state.edges


def loop_document(limit: int = 5) -> dict[str, Any]:
    links = [
        edge("a", "b"),
        edge("b", "c", condition=when("output.again != true")),
        edge("b", "a", id="back", label="loopback", condition=when("output.again == true")),
    ]
    return workflow("w", [node("a"), node("b"), node("c")], links, settings={"maxLoopbackIterations": limit})


@pytest.mark.parametrize("times", [0, 1, 4, 5])
def test_d5_a_loop_runs_as_often_as_its_condition_holds(times: int) -> None:
    sim = Sim(loop_document())
    for index in range(times + 1):
        sim.end("a", {})
        sim.end("b", {"again": index < times})
    sim.end("c", {})
    assert sim.state.ended == "completed"
    assert sim.nodes("node.started").count("a") == times + 1
    assert sim.nodes("node.skipped") == []


def test_d5_a_loop_beyond_its_limit_fails_the_run() -> None:
    sim = Sim(loop_document(limit=2))
    for _ in range(3):
        sim.end("a", {})
        sim.end("b", {"again": True})
    assert sim.state.ended == "failed"
    assert [event.type for event in sim.log[-3:]] == ["workflow.loopback-limit", "cap.breached", "run.failed"]
    assert sim.log[-1].payload["error"]["code"] == "loop_limit_exceeded"
    assert sim.log[-2].payload == {"nodeId": "b", "kind": "loop-iterations", "limit": 2, "observed": 3}


def test_d6_a_late_event_costs_what_an_early_one_does() -> None:
    """Counted in calls into our own code, not in time: a loop's thousandth turn takes the steps of its tenth."""
    import sys

    sim = Sim(loop_document(limit=100_000), max_loop_iterations=100_000, max_node_executions=10**6)
    costs = []
    for _ in range(1500):
        count = 0

        def tracer(frame: Any, what: str, arg: Any) -> None:
            nonlocal count
            count += what == "call"

        sys.setprofile(tracer)
        try:
            sim.end("a", {})
            sim.end("b", {"again": True})
        finally:
            sys.setprofile(None)
        costs.append(count)
    # The median: a garbage collection in between calls into code that is not ours.
    assert statistics.median(costs[10:110]) == statistics.median(costs[1400:])


def test_the_execution_limit_breaches_at_the_first_node_beyond_it() -> None:
    document = workflow("w", [node(f"n{i}") for i in range(6)], [edge(f"n{i}", f"n{i + 1}") for i in range(5)])
    sim = Sim(document, max_node_executions=3)
    for index in range(3):
        sim.end(f"n{index}", {})
    assert sim.state.ended == "failed"
    assert sim.log[-2].payload == {"nodeId": "n3", "kind": "node-executions", "limit": 3, "observed": 4}
    assert sim.log[-1].payload["error"]["code"] == "recursion_limit_exceeded"


def test_disabled_nodes_are_skipped_and_skipping_propagates() -> None:
    sim = Sim(workflow("w", [node("a", disabled=True), node("b"), node("c")], [edge("a", "b")]))
    sim.end("c", {})
    assert sim.nodes("node.skipped") == ["a", "b"]
    assert sim.state.ended == "completed"


def test_w4_a_run_hears_a_signal_with_an_id_once_and_remembers_so_many_ids() -> None:
    sim, clock = Sim(workflow("w", [node("a")], [])), ManualClock()

    def hear(id: str) -> int:
        events = Signal("s", id=id).make(sim.state, clock).events
        for event in events:
            evolve(sim.state, event)
        sim.state.signals.clear()  # a node takes each
        return len(events)

    assert [hear(f"sig_{number}") for number in range(MAX_HEARD)] == [1] * MAX_HEARD
    assert hear("sig_0") == 0
    assert hear("one more") == 1
    assert len(sim.state.heard) == MAX_HEARD
    assert (hear("sig_1"), hear("sig_0")) == (0, 1)

"""Handoffs of a dispatch (M1, M2), and the gate of a node's model."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeType
from forestay.runs.types import RunEvent
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, node, start, waiting, workflow
from tests.runs.events import check_events
from tests.runs.test_fixtures import Deciding

CHAIN = "core.workflowChain.event"


def led(plan: list[dict[str, Any]], **config: Any) -> dict[str, Any]:
    """A supervisor with a plan, and its dispatch."""
    nodes = [node("lead", "core.orchestrator.supervisor", config={"plan": plan})]
    nodes.append(node("send", "core.dispatch", config=config))
    return workflow("led", nodes, [edge("lead", "send"), edge("send", "lead")])


def sent(*workers: str, **more: Any) -> dict[str, Any]:
    return {"kind": "next-worker", "nextWorkerIds": list(workers), **more}


def chain(events: list[RunEvent]) -> list[tuple[str, str]]:
    """The phases of every handoff with its worker; each is caused by the one before, the first by a decision."""
    check_events(events)
    known = {event.event_id: event for event in events}
    found: dict[str, list[RunEvent]] = {}
    for event in events:
        if event.type == CHAIN:
            found.setdefault(event.payload["workerId"], []).append(event)
    for steps in found.values():
        causes = [known[step.causation_id or ""] for step in steps]
        assert causes[0].type == "runOrchestrator.decided"
        assert causes[1:] == steps[:-1]
    return [(step.payload["workerId"], step.payload["phase"]) for steps in found.values() for step in steps]


async def test_m1_each_worker_has_a_chain_of_its_own_and_a_failed_one_is_not_harvested(host: Host) -> None:
    async with host() as runs:
        await runs.put_workflow(workflow("good", [node("a", "core.noop")]), tenant=None)
        await runs.put_workflow(workflow("bad", [node("a", "core.fail")]), tenant=None)
        run_id = await start(runs, led([sent("bad", "good")], outputMapping={"x": "nothing"}))
        assert (await finish(runs, run_id)).status == "completed"
        assert chain(await runs.events(run_id, "acme")) == [
            ("bad", "dispatch.began"),
            ("bad", "dispatch.succeeded"),
            ("bad", "child.failed"),
            ("good", "dispatch.began"),
            ("good", "dispatch.succeeded"),
            ("good", "child.completed"),
            ("good", "output.harvested"),
        ]


async def test_m1_a_worker_that_is_not_there_fails_its_dispatch(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, led([sent("nobody")]))
        assert (await finish(runs, run_id)).status == "failed"
        events = await runs.events(run_id, "acme")
        assert chain(events) == [("nobody", "dispatch.began"), ("nobody", "dispatch.failed")]
        assert events[-1].payload["error"]["code"]


@pytest.mark.parametrize("kind", ["next-worker", "terminate"])
async def test_m2_an_unsure_decision_is_done_after_a_person_said_so(host: Host, kind: str) -> None:
    async with host() as runs:
        await runs.put_workflow(workflow("good", [node("a", "core.noop")]), tenant=None)
        decision = sent("good") if kind == "next-worker" else {"kind": kind}
        run_id = await start(runs, led([{**decision, "confidence": 0.49}]))
        await waiting(runs, run_id, "clarification.requested")
        assert not [event for event in await runs.events(run_id, "acme") if event.type == CHAIN]
        await runs.resolve_by_node(run_id, "send", "acme", {"resumeValue": {"answers": {"confirm": True}}}, "ann")
        assert (await finish(runs, run_id)).status == "completed"
        events = await runs.events(run_id, "acme")
        assert len([event for event in events if event.type.endswith("confidence-escalated")]) == 1
        assert len(chain(events)) == (3 if kind == "next-worker" else 0)


async def test_m2_a_decision_that_says_nothing_of_its_confidence_is_done_at_once(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, led([{"kind": "terminate"}]))
        assert (await finish(runs, run_id)).status == "completed"


@pytest.mark.parametrize(("known", "status"), [({"vision-input"}, "completed"), (set[str](), "failed")])
async def test_a_node_runs_when_its_model_is_capable(host: Host, known: set[str], status: str) -> None:
    ran: list[str] = []

    async def look(ctx: Any) -> dict[str, Any]:
        ran.append(ctx.run_id)
        return {}

    types = standard_registry(custom=False)
    types.add(NodeType(type_id="test.look", execute=look, model_capabilities=("vision-input",)))
    given: dict[str, Any] = {"nodes": types, "models": Deciding(), "capabilities_of": lambda _model: frozenset(known)}
    async with host(**given) as runs:
        run_id = await start(runs, workflow("w", [node("look", "test.look")]))
        run = await finish(runs, run_id)
        assert run.status == status
        assert bool(ran) == (status == "completed")
        events = await runs.events(run_id, "acme")
        check_events(events)
        told = [event for event in events if event.type.startswith("model.")]
        assert [event.payload["missingCapabilities"] for event in told] == [["vision-input"]] * (status == "failed")

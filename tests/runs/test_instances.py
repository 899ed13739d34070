"""Two engines on one ledger: leases, takeover, fencing (G1-G3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Ids, SeededRandomness
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeRegistry
from forestay.runs.service import Runs, projections
from forestay.runs.types import CreateRun
from tests.runs.documents import edge, finish, kinds, node, waiting, workflow
from tests.runs.patient import CountedLedger, PatientClock


@pytest.fixture
def clock() -> PatientClock:
    return PatientClock()


@asynccontextmanager
async def engine(path: Path, clock: PatientClock, name: str, nodes: NodeRegistry) -> AsyncIterator[Runs]:
    randomness = SeededRandomness(name)
    ids = Ids(clock, randomness)
    async with (
        CountedLedger.open(path / "ledger.db", projections=projections(), clock=clock, ids=ids) as ledger,
        Runs(ledger, clock=clock, ids=ids, randomness=randomness, secret=b"s", nodes=nodes, instance=name) as runs,
    ):
        yield runs


def types(calls: list[str], name: str, hold: asyncio.Event) -> NodeRegistry:
    registry = standard_registry(custom=False)

    @registry.node("test.work")
    async def work(ctx: Any) -> dict[str, Any]:
        calls.append(name)
        await hold.wait()
        return {"by": await ctx.effect("who", lambda: name)}

    return registry


async def ended(runs: Runs, run_id: str) -> None:
    """The other engine's ledger does not announce to this one: look."""
    while (await runs.get_run(run_id, "acme")).status != "completed":
        await asyncio.sleep(1)


def document() -> dict[str, Any]:
    return workflow("w", [node("gate", "core.approvalGate"), node("work", "test.work")], [edge("gate", "work")])


async def test_g1_only_the_owner_executes_and_anybody_may_answer(tmp_path: Path, clock: PatientClock) -> None:
    calls: list[str] = []
    hold = asyncio.Event()
    hold.set()
    async with (
        engine(tmp_path, clock, "a", types(calls, "a", hold)) as a,
        engine(tmp_path, clock, "b", types(calls, "b", hold)) as b,
    ):
        await a.put_workflow(document(), tenant=None)
        run_id = (await a.create_run(CreateRun(workflow_id="w"), "acme")).run_id
        assert (await b.get_run(run_id, "acme")).status == "waiting-approval"
        await b.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "accept"}}, "ann")
        run = await finish(a, run_id)
        assert run.outputs == {"by": "a"}
        assert calls == ["a"]


async def test_g2_a_run_is_taken_over_when_its_owners_beat_stops(tmp_path: Path, clock: PatientClock) -> None:
    calls: list[str] = []
    never, now = asyncio.Event(), asyncio.Event()
    now.set()
    async with engine(tmp_path, clock, "b", types(calls, "b", now)) as b:
        async with engine(tmp_path, clock, "a", types(calls, "a", never)) as a:
            await a.put_workflow(document(), tenant=None)
            run_id = (await a.create_run(CreateRun(workflow_id="w"), "acme")).run_id
            await a.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "accept"}}, "ann")
            await asyncio.sleep(5)
            assert calls == ["a"]
        begun = clock.now_ms()
        await ended(b, run_id)
        assert calls == ["a", "b"]
        assert 5_000 < clock.now_ms() - begun < 60_000, "not before the lease ran out"
        assert "lease.acquired" in await kinds(b, run_id)


async def test_g1_an_owner_that_was_taken_over_cannot_append(tmp_path: Path, clock: PatientClock) -> None:
    """A process that slept through its lease wakes up: its node's result must not go into the log."""
    calls: list[str] = []
    late, now = asyncio.Event(), asyncio.Event()
    now.set()
    async with engine(tmp_path, clock, "a", types(calls, "a", late)) as a:
        await a.put_workflow(document(), tenant=None)
        run_id = (await a.create_run(CreateRun(workflow_id="w"), "acme")).run_id
        await a.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "accept"}}, "ann")
        await waiting(a, run_id, "node.resumed")
        await asyncio.sleep(0.5)
        assert calls == ["a"]
        for task in list(a._engine._background):
            task.cancel()  # the process is frozen: no beat, no sweep
        async with engine(tmp_path, clock, "b", types(calls, "b", now)) as b:
            await ended(b, run_id)
            late.set()
            await asyncio.sleep(1)
            events = await b.events(run_id, "acme")
            results = [event.payload["outputs"] for event in events if event.type == "node.completed"]
            assert results[-1] == {"by": "b"}
            assert [event.type for event in events].count("run.completed") == 1


async def test_a_second_incarnation_of_an_instance_stops_the_first(tmp_path: Path, clock: PatientClock) -> None:
    calls: list[str] = []
    hold = asyncio.Event()
    async with (
        engine(tmp_path, clock, "a", types(calls, "a", hold)) as first,
        engine(tmp_path, clock, "a", types(calls, "a", hold)),
    ):
        await asyncio.sleep(30)
        assert first.load().draining

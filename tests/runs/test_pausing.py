"""Pausing and resuming a run (W17)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeRegistry
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, kinds, node, start, waiting, workflow
from tests.runs.events import check_events


def registry() -> NodeRegistry:
    return standard_registry(sample_seams=True, custom=False)


async def test_pause_starts_nothing_until_resume(host: Host) -> None:
    async with host() as runs:
        document = workflow("w", [node("a", "core.delay", config={"delayMs": 1000}), node("b")], [edge("a", "b")])
        run_id = await start(runs, document)
        assert (await runs.pause(run_id, "acme", drain_policy="immediate")).status == "paused"
        with pytest.raises(Problem) as refused:
            await runs.pause(run_id, "acme")
        assert refused.value.row.http == 409
        assert refused.value.details["runStatus"] == "paused"
        await asyncio.sleep(30)
        assert (await runs.get_run(run_id, "acme")).status == "paused"
        assert "forestay.timer.fired" not in await kinds(runs, run_id)
        await runs.resume(run_id, "acme")
        assert (await finish(runs, run_id)).status == "completed"


@pytest.mark.parametrize("kind", ["core.delay", "test.slow", "core.subWorkflow"])
async def test_w17_a_pause_waits_for_the_node_under_way(host: Host, kind: str) -> None:
    types = registry()

    @types.node("test.slow")
    async def slow(ctx: Any) -> None:
        await asyncio.sleep(5)

    async with host(nodes=types) as runs:
        wait = {"delayMs": 5000}
        await runs.put_workflow(workflow("child", [node("c", "core.delay", config=wait)]), tenant=None)
        a = node("a", kind, config={**wait, "workflowId": "child"})
        run_id = await start(runs, workflow("w", [a, node("b")], [edge("a", "b")]))
        await asyncio.sleep(1)
        await runs.pause(run_id, "acme", reason="later")
        assert (await runs.get_run(run_id, "acme")).status == "running"
        with pytest.raises(Problem, match="waits for its node to end"):
            await runs.pause(run_id, "acme")
        await waiting(runs, run_id, "run.paused")
        events = await runs.events(run_id, "acme")
        check_events(events)
        assert [event.type for event in events][-2:] == ["node.completed", "run.paused"]
        assert events[-1].payload == {"drainPolicy": "drain-current-node", "reason": "later"}
        assert (await runs.get_run(run_id, "acme")).status == "paused"
        await runs.resume(run_id, "acme")
        assert (await finish(runs, run_id)).status == "completed"


async def test_w17_a_pause_at_the_last_node_is_a_pause(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a", "core.delay", config={"delayMs": 1000})]))
        await runs.pause(run_id, "acme")
        await waiting(runs, run_id, "run.paused")
        assert (await runs.get_run(run_id, "acme")).status == "paused"
        await runs.resume(run_id, "acme")
        assert (await finish(runs, run_id)).status == "completed"


async def test_w17_a_pause_that_waits_can_be_taken_back_or_hurried(host: Host) -> None:
    async with host() as runs:
        document = workflow("w", [node("a", "core.delay", config={"delayMs": 5000}), node("b")], [edge("a", "b")])
        run_id = await start(runs, document)
        await runs.pause(run_id, "acme")
        await runs.resume(run_id, "acme")
        await runs.pause(run_id, "acme")
        await runs.pause(run_id, "acme", drain_policy="immediate")
        assert (await runs.get_run(run_id, "acme")).status == "paused"
        await runs.resume(run_id, "acme")
        assert (await finish(runs, run_id)).status == "completed"
        assert (await kinds(runs, run_id)).count("run.paused") == 1


async def test_w17_an_immediate_pause_gives_up_the_attempt_and_keeps_its_effects(host: Host) -> None:
    types, calls = registry(), []

    @types.node("test.two")
    async def two(ctx: Any) -> dict[str, Any]:
        first = await ctx.effect("one", lambda: calls.append("one") or len(calls))
        await asyncio.sleep(5)
        await ctx.effect("two", lambda: calls.append("two"))
        return {"first": first}

    async with host(nodes=types) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.two", settings={"timeoutMs": 6000})]))
        await asyncio.sleep(2)
        await runs.pause(run_id, "acme", drain_policy="immediate")
        await asyncio.sleep(600)
        paused = await runs.get_run(run_id, "acme")
        assert (paused.status, paused.node_states["a"]["status"], calls) == ("paused", "suspended", ["one"])
    async with host(nodes=types) as runs:
        await asyncio.sleep(600)
        assert calls == ["one"], "a restart is no resume"
        await runs.resume(run_id, "acme")
        run = await finish(runs, run_id)
        assert (run.status, run.outputs, calls) == ("completed", {"first": 1}, ["one", "two"])


async def test_w17_nothing_goes_on_while_a_run_is_paused(host: Host) -> None:
    """An answer and a child's end are taken in; the nodes go on with the resume."""
    async with host() as runs:
        await runs.put_workflow(workflow("child", [node("c", "core.delay", config={"delayMs": 1000})]), tenant=None)
        nodes = [node("gate", "core.approvalGate"), node("sub", "core.subWorkflow", config={"workflowId": "child"})]
        run_id = await start(runs, workflow("w", nodes))
        await asyncio.sleep(0.5)
        await runs.pause(run_id, "acme", drain_policy="immediate")
        await runs.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "accept"}}, "ann")
        await asyncio.sleep(60)
        assert "node.completed" not in await kinds(runs, run_id)
        await runs.resume(run_id, "acme")
        assert (await finish(runs, run_id)).status == "completed"

"""Parents, children and maps: each shows the other (W21)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeError, NodeRegistry
from forestay.runs.types import RunFilter
from tests.runs.conftest import Host
from tests.runs.documents import finish, node, start, waiting, workflow


def registry() -> NodeRegistry:
    return standard_registry(sample_seams=True, custom=False)


async def test_cancel_stops_the_run_its_node_and_its_children(host: Host) -> None:
    async with host() as runs:
        await runs.put_workflow(workflow("child", [node("gate", "core.approvalGate")]), tenant=None)
        parent = workflow("parent", [node("sub", "core.subWorkflow", config={"workflowId": "child"})])
        run_id = await start(runs, parent)
        told = await waiting(runs, run_id, "node.dispatched")
        child_id = told.payload["childRunId"]
        await waiting(runs, child_id, "approval.requested")
        token = (await runs.interrupts(child_id, "acme"))[0].token
        assert (await runs.cancel(run_id, "acme", "alice", "enough")).status == "cancelled"
        child = await finish(runs, child_id)
        assert child.status == "cancelled"
        last = (await runs.events(child_id, "acme"))[-1]
        assert last.payload["reason"] == "parent-cancelled"
        assert last.payload["parentRunId"] == run_id
        with pytest.raises(Problem) as refused:
            await runs.resolve_by_token(token, {"resumeValue": {"action": "accept"}})
        assert refused.value.key == "interrupt_expired"  # withdrawn with its parent
        assert (await runs.cancel(run_id, "acme")).status == "cancelled", "cancelling twice answers the status"


@pytest.mark.parametrize(
    ("kind", "config", "status"),
    [
        ("core.approvalGate", {}, "waiting-approval"),
        ("core.clarificationGate", {"questions": [{"id": "q", "question": "?"}]}, "waiting-input"),
        ("core.waitForEvent", {"event": "go"}, "waiting-external"),
        ("core.delay", {"delayMs": 60_000}, "running"),
    ],
)
@pytest.mark.parametrize("mapped", [False, True])
async def test_w21_parents_and_children_show_each_other(
    host: Host, kind: str, config: dict[str, Any], status: str, mapped: bool
) -> None:
    async with host() as runs:
        await runs.put_workflow(workflow("inner", [node("ask", kind, config=config)]), tenant=None)
        middle = node("sub", "core.subWorkflow", config={"workflowId": "inner"})
        await runs.put_workflow(workflow("middle", [middle]), tenant=None)
        call = {"workflowId": "middle", **({"items": [1, 2]} if mapped else {})}
        run_id = await start(
            runs, workflow("w", [node("a", "core.map" if mapped else "core.subWorkflow", config=call)])
        )
        await asyncio.sleep(1)
        shown = await runs.get_run(run_id, "acme")
        assert shown.status == status
        assert [item.workflow_id for item in shown.child_runs] == ["middle"] * (2 if mapped else 1)
        child = await runs.get_run(shown.child_runs[0].run_id, "acme")
        assert (child.parent_run_id, child.parent_node_id, child.status) == (run_id, "a", status)
        listed = await runs.list_runs(RunFilter(status=[status]), "acme")
        assert len(listed.runs) == (5 if mapped else 3), "the list says what the snapshots say"
        assert await runs.count_runs("acme") == {status: len(listed.runs)}


async def test_w21_a_parent_with_work_of_its_own_is_running(host: Host) -> None:
    async with host() as runs:
        await runs.put_workflow(workflow("inner", [node("ask", "core.approvalGate")]), tenant=None)
        wait = node("b", "core.delay", config={"delayMs": 60_000})
        nodes = [node("a", "core.subWorkflow", config={"workflowId": "inner"}), wait]
        run_id = await start(runs, workflow("w", nodes))
        await asyncio.sleep(1)
        assert await runs.count_runs("acme") == {"running": 1, "waiting-approval": 1}
        assert (await runs.get_run(run_id, "acme")).status == "running"
        await asyncio.sleep(60)
        assert (await runs.get_run(run_id, "acme")).status == "waiting-approval"
        assert await runs.count_runs("acme") == {"waiting-approval": 2}
        inner = (await runs.get_run(run_id, "acme")).child_runs[0].run_id
        await runs.resolve_by_node(inner, "ask", "acme", {"resumeValue": {"action": "accept"}}, "ann")
        assert (await finish(runs, run_id)).status == "completed"
        assert await runs.count_runs("acme") == {"completed": 2}


async def test_w21_a_run_that_ends_while_it_is_read_is_shown_as_of_one_moment(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host() as runs:
        wait = node("wait", "core.delay", config={"delayMs": 60_000})
        await runs.put_workflow(workflow("inner", [wait]), tenant=None)
        nodes = [node("a", "core.map", config={"workflowId": "inner", "items": [1]})]
        run_id = await start(runs, workflow("w", nodes))
        await asyncio.sleep(1)
        look = runs._engine.status

        async def late(asked: str) -> Any:
            await finish(runs, run_id)
            return await look(asked)

        with monkeypatch.context() as patch:
            patch.setattr(runs._engine, "status", late)
            shown = await runs.get_run(run_id, "acme")
        assert (shown.status, shown.outputs) == ("running", None)
        shown = await runs.get_run(run_id, "acme")
        assert (shown.status, (shown.outputs or {})["count"]) == ("completed", 1)


async def test_a_map_keeps_the_order_and_the_limit(host: Host) -> None:
    types, inside, most = registry(), 0, 0

    @types.node("test.square")
    async def square(ctx: Any) -> dict[str, Any]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.1)
        inside -= 1
        return {"v": ctx.inputs["n"] ** 2}

    config = {"items": "inputs.numbers", "as": "n", "concurrency": 3, "node": {"typeId": "test.square"}}
    async with host(nodes=types) as runs:
        run_id = await start(runs, workflow("w", [node("m", "core.map", config=config)]), {"numbers": [3, 1, 2, 5, 4]})
        run = await finish(runs, run_id)
        assert run.outputs == {"results": [{"v": 9}, {"v": 1}, {"v": 4}, {"v": 25}, {"v": 16}], "count": 5}
        assert most == 3


async def test_a_map_over_a_workflow_runs_children(host: Host) -> None:
    async with host() as runs:
        child = workflow("child", [node("t", "core.transform", config={"outputs": {"twice": "inputs.n * 2"}})])
        await runs.put_workflow(child, tenant=None)
        config = {"items": "inputs.numbers", "as": "n", "concurrency": 2, "workflowId": "child"}
        run_id = await start(runs, workflow("w", [node("m", "core.map", config=config)]), {"numbers": [1, 2, 3, 4]})
        run = await finish(runs, run_id)
        assert run.outputs is not None
        assert [item["twice"] for item in run.outputs["results"]] == [2, 4, 6, 8]


async def test_a_child_that_failed_is_tried_again_as_a_new_one(host: Host) -> None:
    types, tries = registry(), []

    @types.node("test.second")
    async def second(ctx: Any) -> dict[str, Any]:
        tries.append(ctx.run_id)
        if len(tries) == 1:
            raise NodeError("first", "the first one fails")
        return {}

    async with host(nodes=types) as runs:
        await runs.put_workflow(workflow("child", [node("n", "test.second")]), tenant=None)
        settings = {"retry": {"maxAttempts": 2, "initialDelayMs": 10}}
        document = workflow("w", [node("s", "core.subWorkflow", config={"workflowId": "child"}, settings=settings)])
        run = await finish(runs, await start(runs, document))
        assert run.status == "completed"
        assert len(set(tries)) == 2

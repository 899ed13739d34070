"""A disk that refuses for a while delays a run and does not change how it ends (A5, G4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs.engine import Engine
from forestay.runs.family import Family
from forestay.runs.nodes.core import standard_registry
from tests.runs.conftest import Host
from tests.runs.documents import finish, kinds, node, start, waiting, workflow


async def test_a5_a_node_whose_own_writing_the_disk_refuses_begins_again(host: Host) -> None:
    types, asked, paid = standard_registry(custom=False), [], []

    @types.node("test.writes")
    async def writes(ctx: Any) -> dict[str, Any]:
        async def pay() -> int:
            paid.append(1)
            return 7

        asked.append(await ctx.effect("charge", pay))
        if len(asked) < 3:
            raise Problem("ledger_full", "The disk is full; nothing was written.")
        return {"paid": asked[-1]}

    async with host(nodes=types) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.writes")]))
        run = await finish(runs, run_id)
        assert (run.status, run.outputs) == ("completed", {"paid": 7})
        assert asked == [7, 7, 7] and paid == [1], "what is recorded is given back"
        assert (await kinds(runs, run_id)).count("node.started") == 1


async def test_a5_a_node_that_is_cancelled_while_it_waits_for_the_disk_says_no_more(host: Host) -> None:
    types, asked, again = standard_registry(custom=False), [], asyncio.Event()

    @types.node("test.writes")
    async def writes(ctx: Any) -> dict[str, Any]:
        asked.append(1)
        if len(asked) == 2:
            again.set()
        raise Problem("ledger_io", "The disk failed.")

    async with host(nodes=types) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.writes")]))
        await again.wait()
        await runs.cancel(run_id, "acme")
        assert (await finish(runs, run_id)).status == "cancelled"
        assert "node.failed" not in await kinds(runs, run_id)


async def test_g4_a_child_that_cannot_be_reached_does_not_hide_another_that_has_ended(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    kids = {"items": "[1, 2]", "concurrency": 2, "workflowId": "child"}
    child = workflow("child", [node("gate", "core.approvalGate")])
    async with host() as runs:
        await runs.put_workflow(child, tenant=None)
        run_id = await start(runs, workflow("w", [node("kids", "core.map", config=kids)]))
        first, second = await children(runs, run_id)
        for name in (first, second):
            await waiting(runs, name, "interrupt.requested")
        with monkeypatch.context() as crash:  # the process ends before the parent hears of its second child
            crash.setattr(Family, "part", unheard)
            await answer(runs, second)
            await finish(runs, second)

    refused = [first]
    relative = Engine.relative

    async def reached(engine: Engine, name: str) -> Any:
        if name in refused:
            refused.remove(name)
            raise Problem("unavailable", "The disk refused the run.")
        return await relative(engine, name)

    monkeypatch.setattr(Engine, "relative", reached)
    async with host() as runs:
        await answer(runs, first)
        run = await finish(runs, run_id)
        assert run.status == "completed" and refused == []


async def children(runs: Any, run_id: str) -> list[str]:
    found: list[str] = []
    async for event in runs.follow(run_id, "acme"):
        if event.type == "node.dispatched":
            found.append(event.payload["childRunId"])
        if len(found) == 2:
            break
    return found


async def answer(runs: Any, run_id: str) -> None:
    (asked,) = await runs.interrupts(run_id, "acme")
    await runs.resolve_by_token(asked.token, {"resumeValue": {"action": "accept"}})


async def unheard(family: Family, actor: Any) -> None:
    """Tell nobody."""

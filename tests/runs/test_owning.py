"""Who owns a run: restarts, other instances, draining, faults of our own (G1 to G5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeRegistry
from forestay.runs.types import CreateRun
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, kinds, node, start, waiting, workflow


def registry() -> NodeRegistry:
    return standard_registry(sample_seams=True, custom=False)


async def test_a_restart_goes_on_where_the_log_ends(host: Host) -> None:
    types, calls, dying = registry(), [], True

    @types.node("test.two")
    async def two(ctx: Any) -> dict[str, Any]:
        await ctx.effect("one", lambda: calls.append("one"))
        if dying:
            await asyncio.sleep(10_000)  # the process dies here
        await ctx.effect("two", lambda: calls.append("two"))
        return {"calls": len(calls)}

    document = workflow(
        "w", [node("a", "test.two"), node("b", "core.delay", config={"delayMs": 5000})], [edge("a", "b")]
    )
    async with host(nodes=types) as runs:
        run_id = await start(runs, document)
        await waiting(runs, run_id, "forestay.effect.recorded")
    dying = False
    async with host(nodes=types) as runs:
        await waiting(runs, run_id, "forestay.timer.set")
    async with host(nodes=types) as runs:
        run = await finish(runs, run_id)
        assert run.status == "completed"
        assert calls == ["one", "two"]
        assert "lease.acquired" in await kinds(runs, run_id)


async def test_g1_a_run_that_was_taken_over_is_let_go(host: Host) -> None:
    """Another owner appends: ours must fail on its next append and read the log again."""
    from forestay.kernel import Draft

    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("gate", "core.approvalGate"), node("b")], [edge("gate", "b")]))
        head = await runs._ledger.head(f"run/{run_id}")
        lease = {"leaseId": "other:1", "host": "cloud", "instanceId": "other"}
        await runs._ledger.append(f"run/{run_id}", [Draft("lease.acquired", lease)], head.seq)
        await runs.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "accept"}}, "alice")
        run = await finish(runs, run_id)
        assert run.status == "completed"
        assert (await kinds(runs, run_id)).count("interrupt.resolved") == 1


async def test_dedup_refuses_a_second_active_run_and_takes_one_after_the_first_ended(host: Host) -> None:
    async with host() as runs:
        await runs.put_workflow(workflow("w", [node("g", "core.approvalGate")]), tenant=None)
        request = CreateRun(workflow_id="w", scope_id="s")
        first = await runs.create_run(request, "acme", dedup=True)
        results = await asyncio.gather(
            *(runs.create_run(request, "acme", dedup=True) for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(r, Problem) and r.details["activeRunId"] == first.run_id for r in results)
        await runs.cancel(first.run_id, "acme")
        results = await asyncio.gather(
            *(runs.create_run(request, "acme", dedup=True) for _ in range(3)), return_exceptions=True
        )
        assert sum(not isinstance(r, BaseException) for r in results) == 1


async def test_draining_takes_no_new_run(host: Host) -> None:
    async with host() as runs:
        await start(runs, workflow("w", [node("a")]))
        await runs.drain(1)
        with pytest.raises(Problem) as refused:
            await runs.create_run(CreateRun(workflow_id="w"), "acme")
        assert refused.value.row.http == 503
        assert refused.value.retry_after_ms


async def test_a_fault_of_ours_is_told_and_leaves_the_other_runs_alone(host: Host, monkeypatch: Any) -> None:
    from forestay.runs import decider

    async with host() as runs:
        broken = await start(runs, workflow("w", [node("g", "core.approvalGate")]))
        real = decider.decide

        def decide(state: Any, *arguments: Any) -> Any:
            if state.run_id == broken and state.answers:
                raise ZeroDivisionError
            return real(state, *arguments)

        monkeypatch.setattr(decider, "decide", decide)
        with pytest.raises(Problem) as refused:
            await runs.resolve_by_node(broken, "g", "acme", {"resumeValue": {"action": "accept"}}, "ann")
        assert refused.value.key == "internal"
        assert (await runs.get_run(broken, "acme")).status == "waiting-approval", "nothing of it reached the log"
        assert (await finish(runs, await start(runs, workflow("v", [node("a")])))).status == "completed"

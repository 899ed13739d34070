"""Runs on a real ledger: retries, timeouts, cancel, pause, children, maps, effects, restarts."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from forestay.kernel import ManualClock, Problem
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeError, NodeRegistry
from forestay.runs.types import CreateRun, RunEvent, RunFilter
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, kinds, node, start, waiting, when, workflow


def registry() -> NodeRegistry:
    return standard_registry(sample_seams=True, custom=False)


async def test_a_noop_run_is_one_append_with_its_terminal_status(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a")]))
        assert await kinds(runs, run_id) == ["run.started", "node.started", "node.completed", "run.completed"]
        events = await runs.events(run_id, "acme")
        assert [event.sequence for event in events] == [0, 1, 2, 3]
        page = await runs.list_runs(RunFilter(), "acme")
        assert [(item.run_id, item.status) for item in page.runs] == [(run_id, "completed")]


async def test_branches_run_at_the_same_time(host: Host) -> None:
    types, inside, most = registry(), 0, 0

    @types.node("test.slow")
    async def slow(ctx: Any) -> dict[str, Any]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(1)
        inside -= 1
        return {"v": ctx.node_id}

    document = workflow(
        "w", [node("a"), *(node(n, "test.slow") for n in "bcd"), node("e")],
        [*(edge("a", n) for n in "bcd"), *(edge(n, "e", targetInput=n) for n in "bcd")],
    )  # fmt: skip
    async with host(nodes=types) as runs:
        run = await finish(runs, await start(runs, document))
        assert run.status == "completed"
        assert most == 3


async def test_retries_back_off_and_stop_at_a_code_that_cannot_be_retried(host: Host, clock: ManualClock) -> None:
    types, times = registry(), []

    @types.node("test.flaky")
    async def flaky(ctx: Any) -> dict[str, Any]:
        times.append(clock.now_ms())
        if len(times) < 4:
            raise NodeError("busy", "not yet")
        return {"attempt": ctx.attempt}

    retry = {"maxAttempts": 5, "initialDelayMs": 1000, "backoff": "exponential", "maxDelayMs": 60_000}
    async with host(nodes=types) as runs:
        document = workflow("w", [node("a", "test.flaky", settings={"retry": retry})])
        run = await finish(runs, await start(runs, document))
        assert run.outputs == {"attempt": 4}
        waits = [round((b - a) / 1000) for a, b in itertools.pairwise(times)]
        assert waits == [1, 2, 4]
        times.clear()
        other = workflow("v", [node("a", "test.flaky", settings={"retry": {**retry, "nonRetryable": ["busy"]}})])
        run = await finish(runs, await start(runs, other))
        assert run.status == "failed"
        assert run.error is not None and run.error.code == "busy"
        assert len(times) == 1


async def test_a_node_that_takes_too_long_is_stopped(host: Host) -> None:
    types = registry()
    stopped = False

    @types.node("test.stuck")
    async def stuck(ctx: Any) -> dict[str, Any]:
        nonlocal stopped
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopped = True
            raise
        return {}

    async with host(nodes=types) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.stuck", settings={"timeoutMs": 500})]))
        run = await finish(runs, run_id)
        assert run.error is not None and run.error.code == "node_timeout"
        await asyncio.sleep(0)
        assert stopped


async def test_a_run_that_takes_too_long_breaches_its_duration(host: Host) -> None:
    async with host() as runs:
        document = workflow("w", [node("a", "core.delay", config={"delayMs": 60_000})])
        run_id = await start(runs, document, configurable={"runTimeoutMs": 1000})
        run = await finish(runs, run_id)
        assert run.error is not None and run.error.code == "run_timeout"
        breach = next(event for event in await runs.events(run_id, "acme") if event.type == "cap.breached")
        assert breach.payload["kind"] == "run-duration"
        assert (await kinds(runs, run_id))[-3:] == ["cap.breached", "node.cancelled", "run.failed"]


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
        assert refused.value.row.http == 422
        assert (await runs.cancel(run_id, "acme")).status == "cancelled", "cancelling twice answers the status"


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
        with pytest.raises(Problem, match="when its node has ended"):
            await runs.pause(run_id, "acme")
        await waiting(runs, run_id, "run.paused")
        events = await runs.events(run_id, "acme")
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


async def test_w21_a_parent_with_work_of_its_own_is_running(host: Host) -> None:
    async with host() as runs:
        await runs.put_workflow(workflow("inner", [node("ask", "core.approvalGate")]), tenant=None)
        wait = node("b", "core.delay", config={"delayMs": 60_000})
        nodes = [node("a", "core.subWorkflow", config={"workflowId": "inner"}), wait]
        run_id = await start(runs, workflow("w", nodes))
        await asyncio.sleep(1)
        assert (await runs.get_run(run_id, "acme")).status == "running"
        await asyncio.sleep(60)
        assert (await runs.get_run(run_id, "acme")).status == "waiting-approval"


async def test_w11_a_loop_runs_as_often_as_its_document_says_or_is_refused(host: Host) -> None:
    def document(times: int) -> dict[str, Any]:
        count = node("n", "core.transform", config={"assign": {"x": "x + 1"}})
        again = edge("n", "n", id="back", label="loopback", condition=when("x < 2500"))
        numbers = [{"name": "x", "type": "number", "defaultValue": 0}]
        return workflow("w", [count], [again], variables=numbers, settings={"maxLoopbackIterations": times})

    async with host() as runs:
        assert (await finish(runs, await start(runs, document(2500)))).variables["x"] == 2500
        with pytest.raises(Problem, match="10,000 times, not 10,001") as refused:
            await start(runs, document(10_001))
        assert refused.value.details["at"] == "$.settings.maxLoopbackIterations"


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


async def test_f2_an_effect_on_record_is_not_performed_again(host: Host) -> None:
    types, calls = registry(), []

    @types.node("test.pay")
    async def pay(ctx: Any) -> dict[str, Any]:
        async def charge() -> str:
            calls.append(ctx.caller("charge", "bank").idempotency_key)
            return "receipt"

        receipt = await ctx.effect("charge", charge, provider="bank")
        if ctx.attempt < 3:
            raise NodeError("later", "after the payment")
        return {"receipt": receipt}

    async with host(nodes=types) as runs:
        settings = {"retry": {"maxAttempts": 3, "initialDelayMs": 10}}
        run_id = await start(runs, workflow("w", [node("a", "test.pay", settings=settings)]))
        run = await finish(runs, run_id)
        assert run.outputs == {"receipt": "receipt"}
        assert len(calls) == 1


async def test_f3_an_effect_that_was_not_recorded_keeps_its_identity(host: Host) -> None:
    types, keys = registry(), []

    @types.node("test.pay")
    async def pay(ctx: Any) -> dict[str, Any]:
        async def charge() -> str:
            keys.append(ctx.caller("charge", "bank").idempotency_key)
            if len(keys) < 2:
                raise NodeError("down", "the bank is down")
            return "receipt"

        return {"receipt": await ctx.effect("charge", charge, provider="bank")}

    async with host(nodes=types) as runs:
        settings = {"retry": {"maxAttempts": 3, "initialDelayMs": 10}}
        await finish(runs, await start(runs, workflow("w", [node("a", "test.pay", settings=settings)])))
        assert len(keys) == 2
        assert keys[0] == keys[1]


async def test_x4_what_is_for_later_is_on_disk_before_the_next_effect_begins(host: Host) -> None:
    types, seen = registry(), []

    @types.node("test.plan")
    async def plan(ctx: Any) -> dict[str, Any]:
        async def recorded() -> list[str]:
            records = await runs._ledger.read(f"run/{ctx.run_id}")
            return [item.payload["key"] for item in records if item.type == "forestay.effect.recorded"]

        first = await ctx.effect("first", lambda: 1, later=True)
        second = await ctx.effect("second", lambda: first + 1, later=True)
        assert await ctx.effect("second", lambda: 0, later=True) == second, "known before it is in the log"
        assert ctx.recorded("second") == second
        seen.append(await recorded())
        seen.append(await ctx.effect("third", recorded))
        return {"sum": first + second}

    async with host(nodes=types) as runs:
        commits: list[list[str]] = []
        commit = runs._ledger.commit

        async def counted(*appends: Any) -> Any:
            commits.append([draft.type for item in appends for draft in item.drafts])
            return await commit(*appends)

        await runs.put_workflow(workflow("w", [node("a", "test.plan")]), tenant="acme")
        runs._ledger.commit = counted  # type: ignore[method-assign]
        made = await runs.create_run(CreateRun(workflow_id="w"), "acme")
        assert (await runs.wait(made.run_id, "acme")).outputs == {"sum": 3}
        assert seen == [[], ["first", "second"]]
        assert commits == [
            ["run.started", "node.started"],
            ["forestay.effect.recorded", "forestay.effect.recorded"],
            ["forestay.effect.recorded"],
            ["node.completed", "run.completed"],
        ]


async def test_x4_what_is_for_later_goes_with_whatever_comes_next(host: Host) -> None:
    types, done = registry(), []

    @types.node("test.plan")
    async def plan(ctx: Any) -> dict[str, Any]:
        await ctx.effect("look", lambda: done.append("look"), later=True)
        if ctx.attempt < 2:
            raise NodeError("soon", "failed after it")
        await ctx.effect("think", lambda: done.append("think"), later=True)
        await ctx.sleep(1000)
        return {}

    async with host(nodes=types) as runs:
        settings = {"retry": {"maxAttempts": 3, "initialDelayMs": 10}}
        await finish(runs, await start(runs, workflow("w", [node("a", "test.plan", settings=settings)])))
        assert done == ["look", "think"], "a failure and a timer took them along"


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


async def test_signals_wake_a_waiting_node_and_are_kept_for_a_later_one(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [
                node("first", "core.waitForEvent", config={"event": "go"}),
                node("second", "core.waitForEvent", config={"event": "paid", "correlation": {"order": 7}}),
            ],
            [edge("first", "second")],
        )
        run_id = await start(runs, document)
        assert (await runs.get_run(run_id, "acme")).status == "waiting-external"
        await runs.signal(run_id, "acme", "paid", {"order": 6})
        await runs.signal(run_id, "acme", "paid", {"order": 7, "sum": 10})
        await runs.signal(run_id, "acme", "go", {"n": 1})
        run = await finish(runs, run_id)
        assert run.outputs == {"event": {"order": 7, "sum": 10}}
        with pytest.raises(Problem) as refused:
            await runs.signal(run_id, "acme", "go")
        assert refused.value.row.http == 409


async def test_queries_read_the_state_by_expression(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [
                node("t", "core.transform", config={"assign": {"total": "inputs.n + 1"}}),
                node("g", "core.approvalGate"),
            ],
            [edge("t", "g")],
        )
        run_id = await start(runs, document, {"n": 4})
        assert await runs.query(run_id, "acme", "variables.total * 2") == 10
        assert await runs.query(run_id, "acme", "status") == "waiting-approval"
        assert await runs.query(run_id, "acme", "nodes.t.status") == "completed"


async def test_sensitive_values_work_inside_and_are_masked_outside(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [node("t", "core.transform", config={"outputs": {"size": "size(variables.password)"}})],
            variables=[{"name": "password", "type": "string", "sensitive": True}],
        )
        run_id = await start(runs, document, {"password": "hunter22"})
        run = await runs.get_run(run_id, "acme")
        assert run.outputs == {"size": 8}
        assert run.variables["password"] == "[REDACTED]"
        for event in await runs.events(run_id, "acme"):
            assert "hunter22" not in str(event.payload)
        assert "hunter22" not in str(await runs.debug_bundle(run_id, "acme"))
        assert await runs.query(run_id, "acme", "variables.password") == "[REDACTED]"
        assert await runs.query(run_id, "acme", "password") == "[REDACTED]"


async def test_another_tenant_sees_nothing(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("g", "core.approvalGate")]))
        for call in (
            runs.get_run(run_id, "other"),
            runs.events(run_id, "other"),
            runs.cancel(run_id, "other"),
            runs.interrupts(run_id, "other"),
            runs.query(run_id, "other", "status"),
            runs.debug_bundle(run_id, "other"),
        ):
            with pytest.raises(Problem) as refused:
                await call
            assert refused.value.row.http == 404
        assert (await runs.list_runs(RunFilter(), "other")).runs == []


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


async def test_a_failure_that_is_taken_up_does_not_fail_the_run(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [node("bad", "core.fail"), node("ok"), node("rescue")],
            [edge("bad", "ok"), edge("bad", "rescue", triggerRule="any_failed")],
        )
        run_id = await start(runs, document)
        run = await runs.get_run(run_id, "acme")
        assert run.status == "completed"
        assert run.node_states["ok"]["status"] == "skipped"
        assert run.node_states["rescue"]["status"] == "completed"


async def test_a_loop_goes_round_until_its_condition_is_false(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [
                node("count", "core.transform", config={"assign": {"n": "variables.n + 1"}}),
                node("done", "core.transform", config={"outputs": {"n": "variables.n"}}),
            ],
            [
                edge("count", "done", condition=when("variables.n >= 4")),
                edge("count", "count2", id="x", label="loopback", condition=when("variables.n < 4")),
            ],
            variables=[{"name": "n", "type": "number", "defaultValue": 0}],
        )
        document["edges"][1]["targetNodeId"] = "count"
        run = await finish(runs, await start(runs, document))
        assert run.outputs == {"n": 4}


async def test_a_node_without_its_capability_is_not_executed(host: Host) -> None:
    async with host(sample_seams=False) as runs:
        run_id = await start(runs, workflow("w", [node("ai", "core.ai.callPrompt", config={"prompt": "hi"})]))
        run = await runs.get_run(run_id, "acme")
        assert run.error is not None and run.error.code == "capability_not_provided"
        assert "node.started" not in await kinds(runs, run_id)
        assert "core.ai.callPrompt" not in runs.node_types


async def test_artifacts_are_kept_with_the_event_that_says_so(host: Host) -> None:
    types = registry()

    @types.node("test.report")
    async def report(ctx: Any) -> dict[str, Any]:
        return {"id": ctx.artifact("report", {"pages": 3})}

    async with host(nodes=types) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.report")]))
        run = await finish(runs, run_id)
        assert run.outputs is not None
        artifact = await runs.artifact(run_id, run.outputs["id"], "acme")
        assert artifact.data == {"pages": 3}
        assert [item.artifact_id for item in await runs.artifacts(run_id, "acme")] == [artifact.artifact_id]
        with pytest.raises(Problem):
            await runs.artifact(run_id, "art_none", "acme")


async def test_draining_takes_no_new_run(host: Host) -> None:
    async with host() as runs:
        await start(runs, workflow("w", [node("a")]))
        await runs.drain(1)
        with pytest.raises(Problem) as refused:
            await runs.create_run(CreateRun(workflow_id="w"), "acme")
        assert refused.value.row.http == 503
        assert refused.value.retry_after_ms


async def test_poll_waits_for_the_next_event_and_says_when_it_is_over(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a", "core.delay", config={"delayMs": 5000})]))
        first = await runs.poll(run_id, "acme", -1, 1)
        assert first.events and not first.is_complete
        last = first.events[-1].sequence
        empty = await runs.poll(run_id, "acme", last, 1)
        assert empty.events == [] and not empty.is_complete
        rest = await runs.poll(run_id, "acme", last, 30)
        assert rest.is_complete
        assert rest.events[-1].type == "run.completed"
        assert (await runs.poll(run_id, "acme", rest.events[-1].sequence, 30)).is_complete


async def test_poll_loses_nothing_of_a_run_that_ends_while_it_reads(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a", "core.delay", config={"delayMs": 5000})]))
        last = (await runs.poll(run_id, "acme", -1, 1)).events[-1].sequence
        read = runs.events

        async def read_and_let_it_end(*asked: Any) -> list[RunEvent]:
            found = await read(*asked)
            monkeypatch.setattr(runs, "events", read)
            await runs.wait(run_id, "acme")
            return found

        monkeypatch.setattr(runs, "events", read_and_let_it_end)
        page = await runs.poll(run_id, "acme", last, 30)
        assert page.is_complete and page.events[-1].type == "run.completed"


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


async def test_a_question_of_an_attempt_that_timed_out_is_withdrawn(host: Host) -> None:
    async with host() as runs:
        settings = {"timeoutMs": 1000, "retry": {"maxAttempts": 2, "initialDelayMs": 10}}
        run_id = await start(runs, workflow("w", [node("g", "core.approvalGate", settings=settings)]))
        old = (await runs.interrupts(run_id, "acme"))[0]
        await waiting(runs, run_id, "node.retried")
        await asyncio.sleep(0.5)
        fresh = await runs.interrupts(run_id, "acme")
        assert [item.interrupt_id == old.interrupt_id for item in fresh] == [False]
        with pytest.raises(Problem) as refused:
            await runs.resolve_by_token(old.token, {"resumeValue": {"action": "accept"}})
        assert refused.value.row.http == 422
        await runs.resolve_by_token(fresh[0].token, {"resumeValue": {"action": "accept"}})
        assert (await finish(runs, run_id)).status == "completed"


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


async def test_s1_s2_s3_many_followers_and_a_slow_one_get_everything(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("x", "core.waitForEvent", config={"event": "end"})]))

        async def follow(pause: float) -> list[int]:
            seen = []
            async for event in runs.follow(run_id, "acme"):
                seen.append(event.sequence)
                if pause and event.sequence % 500 == 0:
                    await asyncio.sleep(pause)
            return seen

        followers = [asyncio.create_task(follow(5.0 if index == 0 else 0)) for index in range(20)]
        await asyncio.sleep(1)
        for _ in range(30):
            await asyncio.gather(*(runs.signal(run_id, "acme", "tick") for _ in range(100)))
        await runs.signal(run_id, "acme", "end")
        results = await asyncio.gather(*followers)
        count = len(await runs.events(run_id, "acme"))
        assert count > 3000
        assert all(seen == list(range(count)) for seen in results)
        assert runs._feeds._hubs == {}


async def test_a_follower_that_goes_away_leaves_nothing_behind(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("g", "core.approvalGate")]))
        stream = runs.follow(run_id, "acme", 99)
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(1)
        assert runs._feeds._hubs
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await stream.aclose()
        assert runs._feeds._hubs == {}


async def test_a_version_is_pinned_for_the_life_of_the_run(host: Host) -> None:
    types, latest, seen = registry(), [1], []

    @types.node("test.changed")
    async def changed(ctx: Any) -> dict[str, Any]:
        seen.append(ctx.version("new-tax", latest[0]))
        ctx.log("info", "once")
        await ctx.interrupt("custom", {"customKind": "x"})
        seen.append(ctx.version("new-tax", latest[0]))
        ctx.log("info", "after")
        return {}

    async with host(nodes=types) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.changed")]))
        await waiting(runs, run_id, "interrupt.requested")
        latest[0] = 2
        await runs.resolve_by_node(run_id, "a", "acme", {"resumeValue": 1})
        await finish(runs, run_id)
        assert set(seen) == {1}
        events = await runs.events(run_id, "acme")
        assert [e.payload["message"] for e in events if e.type == "log.appended"] == ["once", "after"]
        assert [e.type for e in events].count("version.pinned") == 1


async def test_clarifications_are_limited(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [node("ask", "core.clarificationGate", config={"questions": [{"id": "q", "question": "?"}]})],
            [edge("ask", "ask", label="loopback", condition=when("output.answers.q == 'again'"))],
            settings={"maxLoopbackIterations": 50},
        )
        run_id = await start(runs, document)
        for _ in range(runs.limits.clarification_rounds):
            await runs.resolve_by_node(run_id, "ask", "acme", {"resumeValue": {"answers": {"q": "again"}}})
        run = await finish(runs, run_id)
        assert run.error is not None and run.error.code == "clarification_limit_exceeded"
        breach = next(event for event in await runs.events(run_id, "acme") if event.type == "cap.breached")
        assert breach.payload["kind"] == "clarification"


async def test_sensitive_outputs_are_masked_outside_and_work_inside(host: Host) -> None:
    async with host() as runs:
        secret, shown = ({"type": "static", "value": text} for text in ("hunter22", "anybody"))
        document = workflow(
            "w",
            [
                node("a", "core.identity", inputs={"pin": secret, "open": shown}, outputSensitivity={"pin": True}),
                node("b", "core.transform", config={"outputs": {"size": "size(nodes.a.output.pin)"}}),
            ],
            [edge("a", "b"), edge("a", "last", sourceOutput="pin")],
        )
        document["nodes"].append(node("last", "core.identity", outputSensitivity={"input": True}))
        run_id = await start(runs, document)
        run = await finish(runs, run_id)
        assert run.outputs == {"b": {"size": 8}, "last": {"input": "[REDACTED]"}}
        assert await runs.query(run_id, "acme", "nodes.a.output") == {"pin": "[REDACTED]", "open": "anybody"}
        completed = [e.payload["outputs"] for e in await runs.events(run_id, "acme") if e.type == "node.completed"]
        assert completed[0]["pin"] == "[REDACTED]"


async def test_the_decorator_declares_a_type_for_later_registries(host: Host) -> None:
    from forestay.runs.nodes import node as declare
    from forestay.runs.nodes.registry import _declared

    @declare("acme.greet", summary="Greets.")
    async def greet(ctx: Any) -> dict[str, Any]:
        return {"text": f"hello {ctx.inputs['name']}"}

    try:
        async with host() as runs:
            inputs = {"name": {"type": "variable", "variableName": "name"}}
            variables = [{"name": "name", "type": "string", "required": True}]
            document = workflow("w", [node("g", "acme.greet", inputs=inputs)], variables=variables)
            run = await finish(runs, await start(runs, document, {"name": "Ann"}))
            assert run.outputs == {"text": "hello Ann"}
            assert "acme.greet" in runs.node_types
    finally:
        _declared.clear()


@pytest.mark.parametrize(("kind", "most"), [("core.noop", 1), ("test.step", 6), ("test.effect", 11)])
async def test_a_run_of_five_costs_no_more_commits_than_it_has_facts_to_wait_for(
    host: Host, kind: str, most: int
) -> None:
    """Instant nodes go in together; a step is one commit, in which the next begins; an effect is one more."""
    types = standard_registry(custom=False)

    @types.node("test.step")
    async def step(ctx: Any) -> dict[str, Any]:
        return {"v": 1}

    @types.node("test.effect")
    async def effect(ctx: Any) -> dict[str, Any]:
        return {"v": await ctx.effect("work", lambda: 1)}

    names = [f"s{number}" for number in range(5)]
    document = workflow("w", [node(name, kind) for name in names], [edge(a, b) for a, b in itertools.pairwise(names)])
    async with host(nodes=types) as runs:
        await runs.put_workflow(document, tenant="acme")
        commits: list[int] = []
        commit = runs._ledger.commit

        async def counted(*appends: Any) -> Any:
            commits.append(sum(len(item.drafts) for item in appends))
            return await commit(*appends)

        runs._ledger.commit = counted  # type: ignore[method-assign]
        made = await runs.create_run(CreateRun(workflow_id="w"), "acme")
        run = await runs.wait(made.run_id, "acme")
        assert run.status == "completed"
        assert len(commits) == most
        assert sum(commits) == len(await runs.events(made.run_id, "acme"))


async def test_waiting_for_a_run_ends_with_it_wherever_it_is(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("gate", "core.approvalGate")]))
        with pytest.raises(Problem, match="no such run"):
            await runs.wait(run_id, "somebody-else")
        waiting_for = asyncio.create_task(runs.wait(run_id, "acme"))
        await asyncio.sleep(0.1)
        assert not waiting_for.done()
        await runs.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "accept"}}, "ann")
        assert (await waiting_for).status == "completed"
        assert (await runs.wait(run_id, "acme")).status == "completed", "ended before it was asked for"


async def test_waiting_for_a_run_does_not_outlive_the_engine(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("gate", "core.approvalGate")]))
        waiting_for = asyncio.create_task(runs.wait(run_id, "acme"))
        await asyncio.sleep(0.1)
        await runs.drain(1.0)  # a run that rests holds nothing up, watched or not
        await runs.close()
        with pytest.raises(Problem, match="closing"):
            await waiting_for

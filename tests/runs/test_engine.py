"""How a run goes: branches, retries, timeouts, loops, signals, queries, artifacts."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from forestay.kernel import ManualClock, Problem
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeError, NodeRegistry
from forestay.runs.types import RunFilter
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, kinds, node, start, waiting, when, workflow
from tests.runs.events import check_events


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


async def test_who_asked_is_answered_though_the_run_was_let_go_meanwhile(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host(nodes=registry()) as runs:
        run_id = await start(runs, workflow("w", [node("gate", "core.approvalGate", config={"title": "?"})]))
        await waiting(runs, run_id, "approval.requested")
        actor, ledger = runs._engine.actor(run_id), runs._engine.ledger
        assert actor is not None
        commit = ledger.commit

        async def let_go(*appends: Any) -> Any:
            records = await commit(*appends)
            actor.close()
            return records

        with monkeypatch.context() as patch:
            patch.setattr(ledger, "commit", let_go)
            async with asyncio.timeout(60):
                await runs.signal(run_id, "acme", "go", {})
        assert "forestay.signal.received" in await kinds(runs, run_id)


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
        check_events(events)


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

"""Forks: replay reproduces, branch goes its own way (K1-K6)."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs.diff import essence
from forestay.runs.mock_models import Staged
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeError, NodeRegistry
from forestay.runs.service import Runs
from forestay.runs.types import ForkRequest, RunEvent, RunFilter
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, kinds, node, start, waiting, when, workflow
from tests.runs.events import check_events

MOCK = {"mockProvider": {"id": "stream-text", "config": {}}}


def registry(calls: list[str]) -> NodeRegistry:
    types = standard_registry(sample_seams=True, custom=False)

    @types.node("test.flaky")
    async def flaky(ctx: Any) -> dict[str, Any]:
        async def work() -> dict[str, Any]:
            calls.append(ctx.node_id)
            if ctx.attempt == 1:
                raise NodeError("busy", "not yet")
            return {"n": len(calls)}

        found = await ctx.effect("work", work)
        ctx.log("info", "worked", n=found["n"])
        return found

    @types.node("test.square")
    async def square(ctx: Any) -> dict[str, Any]:
        calls.append("square")
        return {"v": ctx.inputs["item"] ** 2}

    return types


def everything() -> dict[str, Any]:
    """Delay, approval, retry, sub-workflow, effect, map, loop, branch, channel, failure that is taken up."""
    retry = {"maxAttempts": 3, "initialDelayMs": 10, "jitter": 0.5}
    return workflow(
        "everything",
        [
            node("begin", "core.transform", config={"assign": {"n": "variables.n + 1"}}),
            node("wait", "core.delay", config={"delayMs": 500}),
            node("gate", "core.approvalGate"),
            node("flaky", "test.flaky", settings={"retry": retry}),
            node("sub", "core.subWorkflow", config={"workflowId": "child", "outputMapping": {"got": "made"}}),
            node("map", "core.map", config={"items": "[1, 2, 3]", "concurrency": 1, "node": {"typeId": "test.square"}}),
            node("write", "core.channelWrite", config={"channelName": "log", "expression": "variables.n"}),
            node("bad", "core.fail", config={"code": "meant"}),
            node("rescue", "core.noop"),
            node("never", "core.noop"),
        ],
        [
            edge("begin", "begin2", id="back", label="loopback", condition=when("variables.n < 3")),
            edge("begin", "wait"),
            edge("wait", "gate"),
            edge("gate", "flaky"),
            edge("gate", "never", condition=when("output.action == 'reject'")),
            edge("flaky", "sub"),
            edge("sub", "map"),
            edge("map", "write"),
            edge("write", "bad"),
            edge("bad", "rescue", triggerRule="all_complete"),
        ],
        variables=[{"name": "n", "type": "number", "defaultValue": 0}],
        channels={"log": {"reducer": "append"}},
    )


def child() -> dict[str, Any]:
    return workflow("child", [node("t", "core.transform", config={"assign": {"made": "42"}})])


async def make(runs: Runs) -> str:
    document = everything()
    document["edges"][0]["targetNodeId"] = "begin"
    await runs.put_workflow(child(), tenant=None)
    run_id = await start(runs, document)
    await waiting(runs, run_id, "approval.requested")
    await runs.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "accept"}})
    assert (await finish(runs, run_id)).status == "completed"
    return run_id


def same(a: list[RunEvent], b: list[RunEvent]) -> None:
    assert [essence(event) for event in a] == [essence(event) for event in b]


async def test_k3_a_replay_from_every_sequence_reproduces_the_rest(host: Host) -> None:
    calls: list[str] = []
    async with host(nodes=registry(calls)) as runs:
        run_id = await make(runs)
        events = await runs.events(run_id, "acme")
        done = list(calls)
        for seq in range(len(events)):
            forked = await runs.fork(run_id, "acme", ForkRequest(mode="replay", from_seq=seq))
            assert forked.status == "completed"
            again = await runs.events(forked.run_id, "acme")
            same(events, again)
            assert [e.event_id for e in again[:seq]] == [e.event_id for e in events[:seq]], "K1"
            assert [e.timestamp for e in again[:seq]] == [e.timestamp for e in events[:seq]], "K1"
            assert not {e.event_id for e in again[seq:]} & {e.event_id for e in events}
            assert {e.run_id for e in again} == {forked.run_id}
        assert calls == done, "K3: no effect was performed again"
        assert (await runs.diff(run_id, forked.run_id, "acme")).event_diffs == []


async def test_k2_a_branch_from_every_sequence_comes_to_an_end(host: Host) -> None:
    calls: list[str] = []
    async with host(nodes=registry(calls)) as runs:
        run_id = await make(runs)
        events = await runs.events(run_id, "acme")
        for seq in range(len(events)):
            forked = await runs.fork(run_id, "acme", ForkRequest(mode="branch", from_seq=seq))
            if await runs.interrupts(forked.run_id, "acme") or not any(
                e.type == "interrupt.resolved" for e in events[:seq]
            ):
                await waiting(runs, forked.run_id, "approval.requested", "interrupt.requested", "node.suspended")
                await runs.resolve_by_node(forked.run_id, "gate", "acme", {"resumeValue": {"action": "accept"}}, "bob")
            run = await finish(runs, forked.run_id)
            assert run.status == "completed", (seq, events[seq].type, run.error)
            assert run.variables["n"] == 3
            assert run.variables["got"] == 42
            taken = await runs.events(forked.run_id, "acme")
            same(events[:seq], taken[:seq])
            again = await runs.fork(forked.run_id, "acme", ForkRequest(mode="replay"))
            same(taken, await runs.events(again.run_id, "acme"))  # K3 holds for a run that is a branch itself


async def test_a_branch_with_an_overlay_goes_another_way(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [node("a"), node("big"), node("small")],
            [
                edge("a", "big", condition=when("variables.n > 10")),
                edge("a", "small", condition=when("variables.n <= 10")),
            ],
            variables=[{"name": "n", "type": "number", "defaultValue": 1}],
        )
        run_id = await start(runs, document)
        request = ForkRequest(mode="branch", from_seq=1, run_options_overlay={"variables": {"n": 11}})
        forked = await runs.fork(run_id, "acme", request)
        run = await finish(runs, forked.run_id)
        assert run.node_states["big"]["status"] == "completed"
        assert run.source_run_id == run_id
        difference = await runs.diff(run_id, forked.run_id, "acme")
        assert difference.diverged_at_seq is not None
        assert difference.state_diff["variables"] == {"a": {"n": 1}, "b": {"n": 11}}


async def test_k4_a_replay_reports_code_that_does_something_else_now(host: Host) -> None:
    types, answer = standard_registry(custom=False), {"v": 1}

    @types.node("test.drift")
    async def drift(ctx: Any) -> dict[str, Any]:
        return dict(answer)

    async with host(nodes=types) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.drift"), node("b")], [edge("a", "b")]))
        await finish(runs, run_id)
        answer["v"] = 2
        forked = await runs.fork(run_id, "acme", ForkRequest(mode="replay"))
        events = await runs.events(forked.run_id, "acme")
        check_events(events)
        told = [event.payload for event in events if event.type == "replay.diverged"]
        assert [(item["atSequence"], item["divergenceKind"]) for item in told] == [(2, "output")]
        assert forked.status == "completed", "informational: the run continues"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"mode": "branch"}, 400),
        ({"mode": "replay", "from_seq": -1}, 400),
        ({"mode": "replay", "from_seq": 99}, 422),
        ({"mode": "replay", "run_options_overlay": {"inputs": {}}}, 400),
        ({"mode": "branch", "from_seq": 0, "run_options_overlay": {"nodes": {}}}, 400),
        ({"mode": "branch", "from_seq": 0, "run_options_overlay": {"inputs": []}}, 400),
        ({"mode": "branch", "from_seq": 0, "run_options_overlay": {"inputs": {"n": "text"}}}, 400),
        ({"mode": "branch", "from_seq": 0, "run_options_overlay": {"variables": {"n": "text"}}}, 400),
        ({"mode": "branch", "from_seq": 0, "run_options_overlay": {"configurable": {"recursionLimit": "1"}}}, 400),
        ({"mode": "branch", "from_seq": 0, "run_options_overlay": {"configurable": {"model": 5}}}, 400),
        ({"mode": "branch", "from_seq": 0, "run_options_overlay": {"configurable": {"own": "x" * 99_999}}}, 413),
        ({"mode": "branch", "from_seq": 0, "run_options_overlay": {"configurable": {"strict": 1}}}, 400),
        ({"mode": "branch", "from_seq": 0, "run_options_overlay": {"configurable": MOCK}}, 403),
    ],
)
async def test_a_fork_that_makes_no_sense_is_refused(host: Host, body: dict[str, Any], status: int) -> None:
    async with host() as runs:
        document = workflow("w", [node("a")], variables=[{"name": "n", "type": "number"}])
        document["configurableSchema"] = {"type": "object", "properties": {"strict": {"type": "boolean"}}}
        run_id = await start(runs, document)
        with pytest.raises(Problem) as refused:
            await runs.fork(run_id, "acme", ForkRequest(**body))
        assert refused.value.row.http == status
        assert len((await runs.list_runs(RunFilter(), "acme")).runs) == 1


async def test_a_branch_runs_with_what_is_laid_over(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a"), node("b")], [edge("a", "b")]))
        overlay = {"configurable": {"recursionLimit": 1.0, **MOCK}}
        request = ForkRequest(mode="branch", from_seq=1, run_options_overlay=overlay)
        made = await runs.fork(run_id, "acme", request, trusted=True)
        ended = await finish(runs, made.run_id)
        assert ended.error is not None and ended.error.code == "recursion_limit_exceeded"


@pytest.mark.sweep
async def test_fifty_finished_runs_replay_from_every_sequence(host: Host) -> None:
    """Random graphs with failures, retries, loops, gates and children: a fork is its source but for ids and times."""
    import random

    calls: list[str] = []
    async with host(nodes=registry(calls)) as runs:
        await runs.put_workflow(child(), tenant=None)
        for seed in range(50):
            run_id = await start(runs, _random(random.Random(seed), seed))
            await _through(runs, run_id)
            events = await runs.events(run_id, "acme")
            done = list(calls)
            for seq in range(len(events)):
                forked = await runs.fork(run_id, "acme", ForkRequest(mode="replay", from_seq=seq))
                same(events, await runs.events(forked.run_id, "acme"))
            assert calls == done


KINDS: list[tuple[str, dict[str, Any]]] = [
    ("core.noop", {}),
    ("core.transform", {"assign": {"n": "variables.n + 1"}, "outputs": {"v": "variables.n"}}),
    ("core.delay", {"delayMs": 20}),
    ("core.approvalGate", {}),
    ("core.fail", {"code": "meant"}),
    ("core.subWorkflow", {"workflowId": "child"}),
    ("core.map", {"items": "[1, 2]", "node": {"typeId": "test.square"}}),
    ("core.channelWrite", {"channelName": "log", "value": 1, "reducer": "append"}),
    ("test.flaky", {}),
]


def _random(chance: Any, seed: int) -> dict[str, Any]:
    count = chance.randint(2, 7)
    nodes, links = [], []
    for index in range(count):
        kind, config = chance.choice(KINDS)
        settings = {"retry": {"maxAttempts": 2, "initialDelayMs": 5, "jitter": 0.3}}
        nodes.append(node(f"n{index}", kind, config=config, settings=settings))
        rule = chance.choice(["all_success", "any_success", "all_complete", "none_failed", "any_failed"])
        sources = [source for source in range(index) if chance.random() < 0.5]
        links.extend(edge(f"n{source}", f"n{index}", triggerRule=rule) for source in sources)
    if chance.random() < 0.5:
        links.append(edge("n0", "n0", id="back", label="loopback", condition=when("variables.n < 2 && output.v > 0")))
    return workflow(f"random-{seed}", nodes, links, variables=[{"name": "n", "type": "number", "defaultValue": 0}])


async def _through(runs: Runs, run_id: str) -> None:
    import asyncio

    while (await runs.get_run(run_id, "acme")).status not in ("completed", "failed", "cancelled"):
        for asked in await runs.interrupts(run_id, "acme"):
            await runs.resolve_by_token(asked.token, {"resumeValue": {"action": "accept"}})
        await asyncio.sleep(0.05)


async def test_a_fork_of_a_fork_has_the_artifacts_of_their_source(host: Host) -> None:
    """Their ids are those of the source: a replay that makes them again says the same."""
    keep = node("keep", "core.transform", config={"artifacts": {"note": "x"}})
    async with host() as runs:
        run_id = await start(runs, workflow("w", [keep]), {"x": [1]})
        made = (await finish(runs, run_id)).outputs
        for _ in range(3):
            run_id = (await runs.fork(run_id, "acme", ForkRequest(mode="replay"))).run_id
            assert "replay.diverged" not in await kinds(runs, run_id)
            (listed,) = await runs.artifacts(run_id, "acme")
            assert made == {"artifacts": {"note": listed.artifact_id}}
            assert (await runs.artifact(run_id, listed.artifact_id, "acme")).data == [1]


ANSWER, REFUSAL = Staged(content='{"ok": true}'), Staged(stop_reason="safety", refusal_text="No.")


def asks(*more: dict[str, Any]) -> dict[str, Any]:
    config = {"provider": "mock", "messages": [{"role": "user", "content": "Yes?"}]}
    return workflow(
        "w", [node("ask", "core.ai.structuredOutput", config=config), *more], [edge("ask", one["id"]) for one in more]
    )


@pytest.mark.parametrize(("before", "after"), [(ANSWER, REFUSAL), (REFUSAL, ANSWER)])
async def test_k6_a_replay_ends_where_the_model_refuses_otherwise_than_before(
    host: Host, before: Staged, after: Staged
) -> None:
    async with host(sample_seams=True, replays_ask=True) as runs:
        runs.mocks.stage("acme", "ask", [before, after])
        run_id = await start(runs, asks(node("b")))
        await runs.wait(run_id, "acme")
        with pytest.raises(Problem) as caught:
            await runs.fork(run_id, "acme", ForkRequest(mode="replay"))
        assert caught.value.key == "replay_diverged_at_refusal"
        made = str(caught.value.details["runId"])
        events = await runs.events(made, "acme")
        check_events(events)
        assert [event.type for event in events][-3:] == ["replay.divergedAtRefusal", "node.cancelled", "run.failed"]
        with pytest.raises(Problem) as again:
            await runs.fork(run_id, "acme", ForkRequest(mode="replay"), fork_id=made)
        assert again.value.details == caught.value.details, "the same request hears the same"


@pytest.mark.parametrize(("after", "replays_ask"), [(Staged(content='{"ok": false}'), True), (REFUSAL, False)])
async def test_k6_another_answer_changes_nothing_and_nobody_is_asked_unless_the_host_says_so(
    host: Host, after: Staged, replays_ask: bool
) -> None:
    async with host(sample_seams=True, replays_ask=replays_ask) as runs:
        runs.mocks.stage("acme", "ask", [ANSWER, after])
        run_id = await start(runs, asks())
        before = await finish(runs, run_id)
        forked = await runs.fork(run_id, "acme", ForkRequest(mode="replay"))
        assert (await finish(runs, forked.run_id)).outputs == before.outputs
        assert "replay.diverged" not in await kinds(runs, forked.run_id)

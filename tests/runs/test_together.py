"""Features that meet: loopback, retry, timeout, pause, map, child, channel and fork in one run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.models import DEFAULT_PARAMS, Delta, Deltas, Message, Params, ToolSpec, Usage
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeContext, NodeError
from forestay.runs.ports import Caller
from forestay.runs.types import ForkRequest, RunFilter
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, kinds, node, start, when, workflow

ECHO = workflow(
    "echo",
    [node("wait", "core.delay", config={"delayMs": 10_000}), node("say", "core.transform", config={"expression": "i"})],
    [edge("wait", "say")],
)


def racing(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    """A loop whose second round begins while the first round's child still runs."""
    nodes = [
        node("begin"),
        node("slow", kind, config=config),
        node("fast", "core.delay", config={"delayMs": 5_000}),
        node("join"),
        node("count", "core.transform", config={"assign": {"i": "i + 1"}}),
        node("end", "core.transform", config={"expression": "nodes.slow.output"}, outputRole="primary"),
    ]
    edges = [
        edge("begin", "slow"),
        edge("begin", "fast"),
        edge("slow", "join", triggerRule="any_success"),
        edge("fast", "join", triggerRule="any_success"),
        edge("join", "count"),
        edge("count", "begin", label="loopback", condition=when("i < 3")),
        edge("slow", "end"),
    ]
    return workflow("racing", nodes, edges)


@pytest.mark.parametrize(
    ("kind", "config", "made"),
    [
        ("core.subWorkflow", {"workflowId": "echo", "inputMapping": {"i": "i"}}, {"outputs": {"output": 2}}),
        (
            "core.map",
            {"items": [0], "workflowId": "echo", "inputs": {"i": "variables.i"}},
            {"results": [{"output": 2}], "count": 1},
        ),
    ],
)
async def test_a_child_of_an_earlier_round_is_cancelled_and_not_heard(
    host: Host, kind: str, config: dict[str, Any], made: dict[str, Any]
) -> None:
    async with host() as runs:
        await runs.put_workflow(ECHO, tenant=None)
        run_id = await start(runs, racing(kind, config), {"i": 1})
        run = await finish(runs, run_id)
        children = (await runs.list_runs(RunFilter(parent_run_id=run_id), "acme")).runs
        assert run.status == "completed"
        output = run.outputs["output"] if run.outputs else {}
        assert {key: output[key] for key in made} == made, "the second round's, not the first's"
        assert sorted(item.status for item in children) == ["cancelled", "completed"]


AGAIN = {"retry": {"maxAttempts": 2, "initialDelayMs": 1000}}


class Stumbling:
    """A tool, and a model, that fail the first time and in the middle."""

    def __init__(self) -> None:
        self.calls = 0

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise Problem("unavailable", "Not now.", retry_after_ms=1000)
        return {"said": tool}

    def names(self) -> list[str]:
        return ["echo"]

    name, context_window, max_output_tokens = "stumbling", 8_192, None

    def chosen(self, provider: str | None, name: str | None) -> Stumbling:
        return self

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        self.calls += 1
        for text in ("one ", "two ", "three") if self.calls == 1 else ("eins ", "zwei ", "drei"):
            if self.calls == 1 and text == "three":
                raise Problem("unavailable", "Not now.", retry_after_ms=1000)
            yield Delta(text)
        yield Delta(finish_reason="stop", usage=Usage(1, 3))


async def test_a_second_attempt_says_what_it_meets(host: Host) -> None:
    """What the first attempt said of its failure is no reason to keep silent about the second's success."""
    async with host(tools=Stumbling()) as runs:
        call = node("call", "core.tool", config={"tool": "echo"}, settings=AGAIN)
        run_id = await start(runs, workflow("w", [call]))
        assert (await finish(runs, run_id)).outputs == {"said": "echo"}
        events = await runs.events(run_id, "acme")
        assert [e.payload["status"] for e in events if e.type == "agent.toolReturned"] == ["error", "ok"]
        assert len([e for e in events if e.type == "agent.toolCalled"]) == 1, "one call, tried twice"


async def test_a_second_attempt_streams_its_own_text(host: Host) -> None:
    async with host(models=Stumbling()) as runs:
        run_id = await start(
            runs, workflow("w", [node("ask", "core.ai.callPrompt", config={"prompt": "?"}, settings=AGAIN)])
        )
        run = await finish(runs, run_id)
        assert run.outputs is not None and run.outputs["text"] == "eins zwei drei"
        chunks = [e.payload["chunk"] for e in await runs.events(run_id, "acme") if e.type == "output.chunk"]
        assert chunks == ["one ", "two ", "eins ", "zwei ", "drei"]


async def test_a_second_attempt_on_another_way_changes_what_it_changes(host: Host) -> None:
    registry = standard_registry()

    @registry.node("test.ways")
    async def ways(ctx: NodeContext) -> None:
        if ctx.attempt == 1:
            ctx.log("info", "the first way")
            raise NodeError("stumbled", "Once.")
        ctx.set_variable("x", 2)

    async with host(nodes=registry) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.ways", settings=AGAIN)]), {"x": 1})
        assert (await finish(runs, run_id)).variables == {"x": 2}


async def test_a_change_that_is_on_record_is_not_made_twice_by_a_second_attempt(host: Host) -> None:
    registry = standard_registry()

    @registry.node("test.adds")
    async def adds(ctx: NodeContext) -> None:
        ctx.set_variable("x", ctx.variables["x"] + 1)
        ctx.write_channel("c", ctx.attempt, reducer="append")
        await ctx.effect("seen", lambda: True)
        if ctx.attempt == 1:
            raise NodeError("stumbled", "Once.")

    async with host(nodes=registry) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.adds", settings=AGAIN)]), {"x": 1})
        run = await finish(runs, run_id)
        assert (run.variables, run.channels) == ({"x": 2}, {"c": [1]})


async def test_a_node_that_has_ended_starts_no_child(host: Host) -> None:
    registry = standard_registry()
    left: list[asyncio.Task[Any]] = []

    @registry.node("test.leaves")
    async def leaves(ctx: Any) -> None:
        left.append(asyncio.create_task(ctx.start_child("echo", {"i": 1}, key="late", cause="core.subWorkflow")))
        raise NodeError("gone", "Before the child was there.")

    async with host(nodes=registry) as runs:
        await runs.put_workflow(ECHO, tenant=None)
        rescue = node("rescue", "core.delay", config={"delayMs": 1000})
        document = workflow("w", [node("a", "test.leaves"), rescue], [edge("a", "rescue", triggerRule="any_failed")])
        run_id = await start(runs, document)
        assert (await finish(runs, run_id)).status == "completed"
        with pytest.raises(asyncio.CancelledError):
            await left[0]
        assert "node.dispatched" not in await kinds(runs, run_id)


async def test_a_node_that_waits_for_its_next_round_does_not_run_out_of_time(host: Host) -> None:
    nodes = [
        node("slow", "core.delay", config={"delayMs": 5_000}),
        node("quick", "core.transform", config={"assign": {"i": "i + 1"}}, settings={"timeoutMs": 1_000}),
    ]
    again = edge("quick", "slow", label="loopback", condition=when("i < 3"))
    async with host() as runs:
        run = await finish(runs, await start(runs, workflow("w", nodes, [edge("slow", "quick"), again]), {"i": 0}))
        assert (run.status, run.variables) == ("completed", {"i": 3})


async def test_a_join_behind_a_loop_counts_each_edge_once(host: Host) -> None:
    """Two rounds of the loop are not two of the edges that the join waits for."""
    nodes = [
        node("round", "core.transform", config={"assign": {"i": "i + 1"}}),
        node("back"),
        node("slow", "core.delay", config={"delayMs": 5_000}),
        node("join", "core.transform", config={"expression": "nodes.slow.status"}, outputRole="primary"),
    ]
    edges = [
        edge("round", "back"),
        edge("back", "round", label="loopback", condition=when("i < 3")),
        edge("round", "join"),
        edge("slow", "join"),
    ]
    async with host() as runs:
        run = await finish(runs, await start(runs, workflow("w", nodes, edges), {"i": 0}))
        assert run.outputs == {"output": "completed"}


async def test_a_loopback_is_not_taken_from_a_node_that_another_has_set_back(host: Host) -> None:
    """Both ends of two loops are reached at once, one loop around the other."""
    nodes = [
        node("round", "core.transform", config={"assign": {"i": "i + 1"}}),
        node("inner", "core.delay", config={"delayMs": 1_000}),
        node("end", "core.delay", config={"delayMs": 1_000}),
    ]
    back = when("i < 2")
    edges = [
        edge("round", "inner"),
        edge("round", "end", triggerRule="any_success"),
        edge("inner", "end", triggerRule="any_success"),
        edge("inner", "round", label="loopback", condition=back),
        edge("end", "round", label="loopback", condition=back),
    ]
    async with host() as runs:
        run_id = await start(runs, workflow("w", nodes, edges), {"i": 0})
        assert (await finish(runs, run_id)).status == "completed"
        assert (await kinds(runs, run_id)).count("forestay.loop.taken") == 1


async def test_a_replay_judges_the_age_of_entries_as_the_run_did(host: Host) -> None:
    """A loop that goes on because what it wrote has aged: in a replay no time passes."""
    nodes = [
        node("write", "core.channelWrite", config={"channelName": "c", "value": 1}),
        node("wait", "core.delay", config={"delayMs": 4_000}),
    ]
    again = edge("wait", "write", label="loopback", condition=when("size(channels.c) < 2"))
    channels = {"c": {"reducer": "append", "ttlMs": 3_000}}
    async with host() as runs:
        run_id = await start(runs, workflow("w", nodes, [edge("write", "wait"), again], channels=channels))
        before = await finish(runs, run_id)
        assert before.error is not None and before.error.code == "loop_limit_exceeded"
        fork = (await runs.fork(run_id, "acme", ForkRequest(mode="replay"))).run_id
        assert "replay.diverged" not in await kinds(runs, fork)
        assert (await runs.get_run(fork, "acme")).channels == before.channels


async def test_a_map_goes_on_with_the_items_that_it_began_with(host: Host) -> None:
    """Another node gives the variable a new value, and the engine is started anew, while the map runs."""
    nodes = [
        node(
            "map", "core.map", config={"items": "list", "workflowId": "echo", "inputs": {"i": "item"}, "concurrency": 1}
        ),
        node("wait", "core.delay", config={"delayMs": 5_000}),
        node("change", "core.transform", config={"assign": {"list": "[7]"}}),
    ]
    async with host() as runs:
        await runs.put_workflow(ECHO, tenant=None)
        run_id = await start(runs, workflow("w", nodes, [edge("wait", "change")]), {"list": [1, 2]})
        await asyncio.sleep(15)
    async with host() as runs:
        run = await finish(runs, run_id)
        assert run.outputs is not None
        assert run.outputs["map"]["results"] == [{"output": 1}, {"output": 2}]

"""What would make the engine stumble is refused with its place, or fails the node; a run always ends (D4, G5)."""

from __future__ import annotations

import asyncio
import difflib
from itertools import pairwise
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs import commands, workflows
from forestay.runs.check import check_workflow
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeContext
from forestay.runs.service import Runs
from forestay.runs.types import CreateRun, ForkRequest
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, kinds, node, start, waiting, when, workflow

BEYOND = "9" * 400
ASKED = {"questions": [{"id": "a", "question": "Which?"}]}

# A node's type, its configuration, and the place of what is wrong with it.
CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    ("core.approvalGate", {"timeoutMs": "soon"}, ".timeoutMs"),
    ("core.approvalGate", {"timeoutMs": -5}, ".timeoutMs"),
    ("core.approvalGate", {"approversList": "ann"}, ".approversList"),
    ("core.clarificationGate", {**ASKED, "timeoutMs": 10**40}, ".timeoutMs"),
    ("core.clarificationGate", {**ASKED, "defaultValue": "x"}, ".defaultValue"),
    ("core.conversationGate", {"timeoutMs": [1]}, ".timeoutMs"),
    ("core.interrupt", {"timeoutMs": 1.5}, ".timeoutMs"),
    ("core.interrupt", {"key": [1]}, ".key"),
    ("core.interrupt", {"kind": "clarification"}, ".data.questions"),
    ("core.interrupt", {"kind": "approval", "data": {"requiredApprovals": "x"}}, ".data.requiredApprovals"),
    ("core.interrupt", {"kind": "external-event", "data": {"eventType": "e", "correlation": "c"}}, ".data.correlation"),
    ("core.waitForEvent", {"event": "e", "correlation": ["id"]}, ".correlation"),
    ("core.waitForEvent", {"event": "e", "timeoutMs": {}}, ".timeoutMs"),
    ("core.channelWrite", {"channelName": "c", "reducer": "append", "ttlMs": "x"}, ".ttlMs"),
    ("core.channelWrite", {"channelName": "c", "reducer": ["append"]}, ".reducer"),
    ("core.channelWrite", {"channelName": "c", "schemaVersion": "x"}, ".schemaVersion"),
    ("core.delay", {"delayMs": 1e300}, ".delayMs"),
    ("core.fail", {"code": {"a": 1}}, ".code"),
    ("core.branch", {"cases": [{"name": "a", "when": "true"}], "default": {}}, ".default"),
    ("core.orchestrator.supervisor", {"plan": [3]}, ".plan[0]"),
    ("core.orchestrator.supervisor", {"plan": [{"kind": "next-worker"}]}, ".plan[0]"),
    ("core.orchestrator.supervisor", {"plan": [{"kind": "next-worker", "nextWorkerIds": []}]}, ".plan[0]"),
    ("core.orchestrator.supervisor", {"threshold": "x"}, ".threshold"),
    ("core.dispatch", {"iterationCap": "x"}, ".iterationCap"),
    ("core.http", {"url": "https://example.com", "headers": [1]}, ".headers"),
    ("core.http", {"url": "https://example.com", "timeoutMs": "x"}, ".timeoutMs"),
    ("core.tool", {"tool": "t", "arguments": [1]}, ".arguments"),
    ("core.ai.callPrompt", {"prompt": "p", "maxTokens": "many"}, ".maxTokens"),
    ("core.ai.structuredOutput", {"prompt": "p", "messages": "hello"}, ".messages"),
    ("core.map", {"items": [1], "node": {"typeId": "no.such"}}, ".node.typeId"),
    ("core.map", {"items": [1], "node": {"typeId": "core.channelWrite"}}, ".node.config.channelName"),
    ("core.map", {"items": [1], "node": {"typeId": "core.transform", "config": {"expression": "(("}}},
     ".node.config.expression"),
    ("core.map", {"items": [1], "node": {"typeId": "core.map", "config": {"node": {"typeId": "core.noop"}}}},
     ".node.typeId"),
]  # fmt: skip


@pytest.mark.parametrize(("type_id", "config", "at"), CONFIGS, ids=lambda item: str(item)[:60])
def test_a_configuration_that_no_run_could_use_is_refused(type_id: str, config: dict[str, Any], at: str) -> None:
    found = check_workflow(workflow("w", [node("a", type_id, config=config)]), standard_registry())[1]
    assert [item["at"] for item in found.errors] == [f"$.nodes[0].config{at}"]


@pytest.mark.parametrize(
    ("reducer", "default"), [("counter", "x"), ("counter", True), ("merge", []), ("append", {}), ("votes", 1)]
)
def test_a_channel_begins_with_what_its_reducer_can_fold(reducer: str, default: Any) -> None:
    document = workflow("w", [node("a")], channels={"c": {"reducer": reducer, "default": default}})
    assert [item["at"] for item in check_workflow(document, standard_registry())[1].errors] == ["$.channels.c.default"]


@pytest.mark.parametrize("expression", [f"{BEYOND} / 3", f"1.5 * {BEYOND}", "1e999"])
def test_a_number_that_cannot_be_computed_with_is_refused(expression: str) -> None:
    document = workflow("w", [node("a"), node("b")], [edge("a", "b", condition=when(expression))])
    assert [item["at"] for item in check_workflow(document, standard_registry())[1].errors] == ["$.edges[0].condition"]


def test_a_path_may_hold_a_digit_of_any_script() -> None:
    condition = {"type": "equals", "left": "area.m²", "right": 1}
    other = {"type": "equals", "left": "area.²", "right": 1}
    nodes = [node("a"), node("b"), node("c")]
    document = workflow("w", nodes, [edge("a", "b", condition=condition), edge("a", "c", condition=other)])
    assert check_workflow(document, standard_registry())[1].valid


async def ended(runs: Runs, *nodes: dict[str, Any], inputs: dict[str, Any] | None = None, **fields: Any) -> Any:
    """The end of a run of `nodes` in a row, with a wait before them: what comes after it is not the caller's doing."""
    row = [node("wait", "core.delay", config={"delayMs": 1}), *nodes]
    edges = [edge(a["id"], b["id"]) for a, b in pairwise(row)]
    return await finish(runs, await start(runs, workflow("w", row, edges, **fields), inputs))


@pytest.mark.parametrize("expression", ["n / 3", "n * 1.5", "n + 0.5", "-n", "n % 7"])
async def test_a_number_too_large_to_compute_with_is_no_end_of_the_engine(host: Host, expression: str) -> None:
    guarded = edge("a", "b", condition=when(f"({expression}) > 1"))
    document = workflow("w", [node("a", "core.delay", config={"delayMs": 1}), node("b")], [guarded])
    async with host() as runs:
        run = await finish(runs, await start(runs, document, {"n": int(BEYOND)}))
    assert (run.status, run.node_states["b"]["status"]) == ("completed", "skipped")


@pytest.mark.parametrize("value", [{"messageId": ["m"]}, {"messageId": 7}])
async def test_a_message_without_a_name_for_it_fails_its_node(host: Host, value: Any) -> None:
    write = {"channelName": "c", "reducer": "message", "value": value}
    async with host() as runs:
        run = await ended(runs, node("a", "core.channelWrite", config=write))
    assert run.error.code == "schema_mismatch"


async def test_a_counter_is_not_counted_beyond_what_a_number_can_hold(host: Host) -> None:
    write = {"channelName": "c", "reducer": "counter"}
    async with host() as runs:
        run = await ended(
            runs,
            node("a", "core.channelWrite", config={**write, "value": 2**53}),
            node("b", "core.channelWrite", config={**write, "value": 1}),
            node("c", "core.channelWrite", config={**write, "value": 10**400}),
        )
    assert (run.error.code, run.channels) == ("schema_mismatch", {"c": 2**53})


async def test_two_first_writes_of_one_channel_may_disagree_about_its_reducer(host: Host) -> None:
    """A write is checked when it is made and folded when its node ends: another may have opened the channel."""
    registry = standard_registry()

    @registry.node("test.writes")
    async def writes(ctx: NodeContext) -> None:
        ctx.write_channel("c", "a text", reducer="append")
        await asyncio.sleep(10)

    nodes = [
        node("a", "test.writes"),
        node("wait", "core.delay", config={"delayMs": 5000}),
        node("b", "core.channelWrite", config={"channelName": "c", "reducer": "counter", "value": 2}),
    ]
    async with host(nodes=registry) as runs:
        run = await finish(runs, await start(runs, workflow("w", nodes, [edge("wait", "b")])))
    assert (run.status, run.channels) == ("completed", {"c": 2})


async def test_a_text_that_cannot_be_written_fails_its_node(host: Host) -> None:
    async with host() as runs:
        run = await ended(runs, node("a", "core.transform", config={"assign": {"y": '"\\u0000"'}}))
    assert (run.status, run.error.code) == ("failed", "invalid_text")


async def test_an_expression_cannot_make_much_out_of_little(host: Host) -> None:
    """A thousand times a thousand times a text of a thousand characters."""
    many = "[" + ",".join(["x"] * 1000) + "]"
    grow = node("grow", "core.transform", config={"assign": {"x": many}})
    again = edge("grow", "grow", label="loopback", condition=when("true"))
    async with host() as runs:
        run = await finish(runs, await start(runs, workflow("w", [grow], [again]), {"x": "y" * 1000}))
    assert run.error is not None and (run.error.code, run.error.message) == (
        "expression_invalid",
        "The expression's result is too large.",
    )


async def test_an_expression_cannot_nest_without_end(host: Host) -> None:
    grow = node("grow", "core.transform", config={"assign": {"x": "[" * 30 + "x" + "]" * 30}})
    again = edge("grow", "grow", label="loopback", condition=when("true"))
    document = workflow("w", [grow], [again], settings={"maxLoopbackIterations": 100})
    async with host() as runs:
        run_id = await start(runs, document, {"x": 1})
        run = await finish(runs, run_id)
        assert run.error is not None and run.error.code == "expression_invalid"
        assert "replay.diverged" not in await kinds(
            runs, (await runs.fork(run_id, "acme", ForkRequest(mode="replay"))).run_id
        )


async def test_an_input_keeps_the_value_that_it_had(host: Host) -> None:
    """The variables as a port's expression gave them, and a merged channel, while both change behind it."""
    write = {"channelName": "m", "value": {"a": 1}}
    late = {"channelName": "m", "value": {"b": 2}}
    ports = {
        "v": {"type": "expression", "expression": "variables"},
        "m": {"type": "expression", "expression": "channels.m"},
    }
    nodes = [
        node("write", "core.channelWrite", config=write),
        node("see", "core.identity", inputs=ports),
        node("set", "core.transform", config={"assign": {"x": "2"}}),
        node("late", "core.channelWrite", config=late),
    ]
    edges = [edge(a["id"], b["id"]) for a, b in pairwise(nodes)]
    document = workflow("w", nodes, edges, channels={"m": {"reducer": "merge", "default": {"begun": True}}})
    async with host() as runs:
        for _ in range(2):  # the second run begins with the same default
            run_id = await start(runs, document, {"x": 1})
            run = await finish(runs, run_id)
            events = await runs.events(run_id, "acme")
            seen = next(e.payload["outputs"] for e in events if e.type == "node.completed" and e.node_id == "see")
            assert seen == {"v": {"x": 1}, "m": {"begun": True, "a": 1}, "input": {"channel": "m"}}
            assert run.channels == {"m": {"begun": True, "a": 1, "b": 2}}


async def test_what_a_channel_begins_with_is_as_old_as_its_run(host: Host) -> None:
    channels = {"c": {"reducer": "append", "default": ["first"], "ttlMs": 1000}}
    wait = node("wait", "core.delay", config={"delayMs": 2000})
    seen = [node(name, "core.transform", config={"expression": "channels.c"}) for name in ("young", "old")]
    document = workflow("w", [seen[0], wait, seen[1]], [edge("young", "wait"), edge("wait", "old")], channels=channels)
    async with host() as runs:
        run_id = await start(runs, document)
        await finish(runs, run_id)
        events = await runs.events(run_id, "acme")
    made = {e.node_id: e.payload["outputs"] for e in events if e.type == "node.completed"}
    assert [item["value"] for item in made["young"]["output"]] == ["first"]
    assert made["old"] == {"output": []}


async def test_a_child_is_held_to_its_variables(host: Host) -> None:
    child = workflow("child", [node("a")], variables=[{"name": "n", "type": "number", "required": True}])
    wanted = {"missing": {}, "text": {"n": "seven"}, "right": {"n": 7}}
    async with host() as runs:
        await runs.put_workflow(child, tenant=None)
        for name, inputs in wanted.items():
            ports = {"inputs": {"type": "static", "value": inputs}}
            call = node("call", "core.subWorkflow", config={"workflowId": "child"}, inputs=ports)
            run = await finish(runs, await start(runs, workflow(f"of-{name}", [call])))
            assert run.status == ("completed" if name == "right" else "failed"), name
            assert name == "right" or (run.error is not None and run.error.code == "schema_mismatch")


async def test_a_value_too_large_for_the_log_fails_its_node_and_is_not_made_again(host: Host) -> None:
    registry = standard_registry()
    made = 0

    @registry.node("test.large")
    async def large(ctx: NodeContext) -> Any:
        def make() -> str:
            nonlocal made
            made += 1
            return "x" * 17_000_000

        return await ctx.effect("make", make)

    async with host(nodes=registry) as runs:
        run = await finish(runs, await start(runs, workflow("w", [node("a", "test.large")])))
    assert run.error is not None and (run.error.code, made) == ("payload_too_large", 1)


async def test_g5_a_run_whose_end_cannot_be_written_fails_with_the_reason(host: Host) -> None:
    """Each output fits a record; all of them together do not."""
    registry = standard_registry()

    @registry.node("test.large")
    async def large(ctx: NodeContext) -> Any:
        return {"text": "x" * 6_000_000}

    async with host(nodes=registry) as runs:
        nodes = [node(name, "test.large") for name in "abc"]
        run = await finish(runs, await start(runs, workflow("w", nodes)))
    assert run.error is not None and run.error.code == "payload_too_large"


async def test_g5_a_command_that_cannot_be_carried_out_is_the_callers(host: Host) -> None:
    """Nobody ends a run by sending what cannot be written."""
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a", "core.waitForEvent", config={"event": "e"})]))
        await waiting(runs, run_id, "node.suspended")
        for _ in range(5):
            with pytest.raises(Problem) as caught:
                await runs.signal(run_id, "acme", "e", "\0")
            assert caught.value.key == "invalid_text"
        await runs.signal(run_id, "acme", "e", "fine")
        assert (await finish(runs, run_id)).outputs == {"event": "fine"}


async def test_a_threshold_is_a_number(host: Host) -> None:
    async with host() as runs:
        await runs.put_workflow(workflow("w", [node("a")]), tenant=None)
        with pytest.raises(Problem, match=r"0\.5x"):
            await runs.create_run(CreateRun(workflow_id="w", configurable={"escalationThreshold": "0.5x"}), "acme")


@pytest.mark.parametrize("shape", ["loopbacks", "dispatches"])
def test_a_graph_that_would_take_long_to_look_at_is_refused(shape: str) -> None:
    """Each loopback is followed through the whole graph: their number times its size is bounded."""
    if shape == "loopbacks":
        nodes = [node(f"n{index}") for index in range(1000)]
        edges = [edge(a["id"], b["id"]) for a, b in pairwise(nodes)]
        back = [edge("n999", "n0", id=f"b{index}", label="loopback", condition=when("false")) for index in range(1000)]
    else:
        nodes = [node(f"n{index}", "core.dispatch") for index in range(1000)]
        nodes.append(node("s", "core.orchestrator.supervisor"))
        edges = [edge("s", f"n{index}") for index in range(1000)]
        back = [edge(f"n{index}", "s", id=f"b{index}") for index in range(1000)]
    found = check_workflow(workflow("w", nodes, edges + back), standard_registry())[1]
    assert [item["at"] for item in found.errors] == ["$.edges"]
    assert check_workflow(workflow("w", nodes, edges + back[:100]), standard_registry())[1].valid


async def test_plans_are_kept_while_there_is_room(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "_MAX_HELD", 1000)
    async with host() as runs:
        for index in range(10):
            await runs.put_workflow(workflow(f"w{index}", [node("a")]), tenant=None)
        for index in range(10):
            request = CreateRun(workflow_id=f"w{index}")
            run_id = (await runs.create_run(request, "acme")).run_id
            assert (await finish(runs, run_id)).status == "completed"
        assert 0 < len(runs._workflows._plans) < 5
        assert runs._workflows._held == sum(item.size for item in runs._workflows._plans.values()) <= 1000


async def test_a_paused_run_is_not_looked_at_for_work(host: Host) -> None:
    """Its next node is ready when the one under way ends; until it is resumed there is nothing to do."""
    registry = standard_registry()

    @registry.node("test.slow")
    async def slow(ctx: NodeContext) -> None:
        await asyncio.sleep(10)

    async with host(nodes=registry) as runs:
        run_id = await start(runs, workflow("w", [node("a", "test.slow"), node("b")], [edge("a", "b")]))
        await runs.pause(run_id, "acme")
        await waiting(runs, run_id, "run.paused")
        assert await runs._ledger.query("SELECT status, busy FROM runs") == [("paused", 0)]
        await runs.resume(run_id, "acme")
        assert (await finish(runs, run_id)).status == "completed"


async def test_signals_that_nobody_takes_are_not_kept_without_end(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MAX_SIGNALS", 20)
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a", "core.waitForEvent", config={"event": "e"})]))
        for index in range(20):
            await runs.signal(run_id, "acme", f"other{index % 7}", index)
        with pytest.raises(Problem) as caught:
            await runs.signal(run_id, "acme", "other", 0)
        assert (caught.value.key, caught.value.details["limit"]) == ("state_conflict", 20)
        await runs.signal(run_id, "acme", "e", "awaited")
        assert (await finish(runs, run_id)).outputs == {"event": "awaited"}


@pytest.mark.parametrize(
    "reads",
    [
        {"type_id": "core.transform", "config": {"expression": "channels.c"}},
        {"type_id": "core.map", "config": {"items": "channels.c", "node": {"typeId": "core.noop"}}},
        {"type_id": "core.identity", "inputs": {"v": {"type": "expression", "expression": "[channels.c]"}}},
    ],
    ids=["expression", "map", "port"],
)
async def test_an_expression_reads_no_channel_that_its_node_may_not_read(host: Host, reads: dict[str, Any]) -> None:
    channels = {"c": {"reducer": "append", "default": [1], "access": {"readers": ["allowed"]}}}
    async with host() as runs:
        for name, status in (("allowed", "completed"), ("other", "failed")):
            run_id = await start(runs, workflow(name, [node(name, **reads)], channels=channels))
            run = await finish(runs, run_id)
            assert run.status == status
            assert status == "completed" or (run.error is not None and "may not read" in run.error.message)


def test_a_document_of_nothing_but_wrong_names_is_not_guessed_at_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guessing compares a wrong name with every right one: a thousand of each would be a million comparisons."""
    looks = 0
    close = difflib.get_close_matches

    def counted(name: str, names: list[str], most: int) -> list[str]:
        nonlocal looks
        looks += len(names)
        return close(name, names, most)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    edges = [edge(f"mode-{number}", f"nodde-{number}", id=f"e{number}") for number in range(1000)]
    document = workflow("w", [node(f"node-{number}") for number in range(1000)], edges)
    found = check_workflow(document, standard_registry())[1]
    assert len(found.errors) == 2000
    assert found.errors[0]["fix"].startswith("Did you mean")
    assert looks <= 5_000

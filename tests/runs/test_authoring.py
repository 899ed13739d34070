"""Workflows written in Python: the rules A1 to A4 of `forestay.runs.authoring`, and that a real host runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host
from forestay.kernel import Problem
from forestay.runs import Step, Workflow, workflow
from forestay.runs.nodes.registry import NodeContext, custom_types, declaring, node
from forestay.runs.types import CreateRun
from tests.forked import forestay


def edges(found: Workflow) -> list[tuple[str, str]]:
    return [(edge["sourceNodeId"], edge["targetNodeId"]) for edge in found.document["edges"]]


def noop(**options: Any) -> Step:
    return workflow.step("core.noop", **options)


def test_a1_parameters_are_variables_and_one_without_a_default_is_required() -> None:
    @workflow
    def order(pieces: int, each: float = 9.5, names: list[str] = [], sure: bool = True) -> Step:  # noqa: B006
        return workflow.step("core.identity", pieces=pieces)

    assert order.document["variables"] == [
        {"name": "pieces", "type": "number", "required": True},
        {"name": "each", "type": "number", "defaultValue": 9.5},
        {"name": "names", "type": "array", "defaultValue": []},
        {"name": "sure", "type": "boolean", "defaultValue": True},
    ]
    assert order.document["nodes"][0]["inputs"] == {"pieces": {"type": "variable", "variableName": "pieces"}}


def test_a1_a_parameter_that_is_no_json_is_a_mistake() -> None:
    with pytest.raises(Problem, match="The parameter when has no JSON type"):

        @workflow
        def order(when: Path) -> None:
            noop()


def test_a2_a_step_follows_what_it_uses_else_the_one_before_it() -> None:
    @workflow
    def order() -> Step:
        a = noop(id="a")
        b = workflow.step("core.identity", id="b", value=a.x)
        c = workflow.step("core.identity", id="c", value=[{"deep": a.x + 1}])
        noop(id="d")
        noop(id="e", after=[b])
        return noop(id="f", after=[b, c])

    assert edges(order) == [("a", "b"), ("a", "c"), ("c", "d"), ("b", "e"), ("b", "f"), ("c", "f")]


def test_a2_an_empty_after_starts_a_step_with_the_run() -> None:
    @workflow
    def order() -> None:
        noop(id="a")
        noop(id="b", after=[])

    assert edges(order) == []


def test_a3_what_is_returned_is_primary_else_the_last() -> None:
    @workflow
    def first() -> Step:
        found = noop(id="a")
        noop(id="b")
        return found

    @workflow
    def last() -> None:
        noop(id="a")
        noop(id="b")

    assert [item.get("outputRole") for item in first.document["nodes"]] == ["primary", None]
    assert [item.get("outputRole") for item in last.document["nodes"]] == [None, "primary"]


def test_a4_a_value_of_the_run_cannot_be_asked_while_the_workflow_is_declared() -> None:
    with pytest.raises(Problem, match="only a run has"):

        @workflow
        def order(pieces: int) -> None:
            if pieces > 3:
                noop()


def test_steps_of_one_type_have_names_of_their_own_and_places_that_do_not_overlap() -> None:
    @workflow
    def order() -> None:
        first = noop()
        noop(after=[first])
        noop(after=[first])

    assert [item["id"] for item in order.document["nodes"]] == ["noop", "noop-2", "noop-3"]
    places = [tuple(item["position"].values()) for item in order.document["nodes"]]
    assert len(set(places)) == 3


def test_a_first_step_with_a_condition_and_a_configuration_with_a_value_are_mistakes() -> None:
    with pytest.raises(Problem, match="cannot have a condition"):

        @workflow
        def first(pieces: int) -> None:
            noop(when=pieces > 3)  # type: ignore[arg-type]

    with pytest.raises(Problem, match="only a run has"):

        @workflow
        def second(pieces: int) -> None:
            workflow.step("core.delay", {"delayMs": pieces})


def test_a_workflow_without_a_step_and_a_step_without_a_workflow_are_mistakes() -> None:
    with pytest.raises(Problem, match="has no step"):

        @workflow
        def empty() -> None:
            pass

    with pytest.raises(Problem, match="outside a workflow"):
        noop()


def test_a_document_that_does_not_hold_is_refused_when_it_is_declared() -> None:
    with pytest.raises(Problem, match="unknown field `colour`"):

        @workflow(id="order", colour="red")
        def order() -> None:
            noop()


@pytest.mark.parametrize(("pieces", "asked", "total"), [(3, "skipped", 28.5), (200, "suspended", None)])
async def test_a_host_runs_it_with_a_node_of_ones_own(
    tmp_path: Path, pieces: int, asked: str, total: float | None
) -> None:
    with declaring() as found:

        @node("shop.price")
        async def price(ctx: NodeContext, pieces: float, each: float = 9.5) -> dict[str, float]:
            return {"total": pieces * each}

        @workflow(settings={"timeout": 60_000})
        def order(pieces: float) -> Step:
            cost = price(pieces=pieces)
            ask = workflow.step("core.approvalGate", {"title": "Large?"}, id="ask", when=cost.total >= 1000)
            return workflow.step("core.identity", total=cost.total, after=[ask], rule="none_failed")

        assert [item.type_id for item in custom_types()] == ["shop.price"]
        async with Host.open(data=tmp_path) as host:
            await host.runs.put_workflow(order.document, tenant="default")
            made = await host.runs.create_run(CreateRun(workflow_id="order", inputs={"pieces": pieces}), "default")
            async for _ in host.runs.follow(made.run_id, "default"):
                run = await host.runs.get_run(made.run_id, "default")
                if run.status in ("completed", "waiting-approval"):
                    break
    assert run.node_states["ask"]["status"] == asked
    assert (run.outputs or {}).get("total") == total
    assert [item.type_id for item in found] == ["shop.price"]


def test_the_command_stores_and_checks_what_a_module_declares(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from forestay.runs.authoring import workflow\n\n\n"
        "@workflow\ndef order(pieces: int):\n    return workflow.step('core.identity', pieces=pieces)\n"
    )

    def command(*words: str) -> Any:
        done = forestay(tmp_path, *words, "--json")
        return json.loads(done.stdout or done.stderr.splitlines()[-1])

    assert command("workflow", "check", "shop:order")["result"]["results"][0]["valid"]
    assert command("workflow", "put", "shop:order")["result"]["workflows"][0]["workflowId"] == "order"
    assert command("run", "start", "order", "--input", "pieces=3", "--wait")["result"]["outputs"] == {"pieces": 3}
    assert command("workflow", "put", "shop:none")["error"]["message"] == "shop:none is no workflow."
    assert command("workflow", "put", "nowhere:order")["error"]["message"] == "There is no module nowhere."

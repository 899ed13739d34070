"""One node of a run as a person looks at it, and a failed run that is taken up where it failed."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs.nodes import NodeContext, NodeError
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeType
from forestay.runs.types import RunFilter
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, node, start, workflow

RETRIES = {"retry": {"maxAttempts": 2, "backoff": "fixed", "initialDelayMs": 100}}


class Flaky:
    """A node that fails so many times, and counts how often each part was done."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.done: list[str] = []

    async def __call__(self, ctx: NodeContext) -> dict[str, Any]:
        self.done.append("flaky")
        if self.failures:
            self.failures -= 1
            raise NodeError("not_yet", "Come back later.")
        return {"answer": 42}

    async def before(self, ctx: NodeContext) -> dict[str, Any]:
        self.done.append("before")
        return {"word": "ready"}


def registry(flaky: Flaky) -> Any:
    found = standard_registry(sample_seams=True)
    found.add(NodeType(type_id="test.flaky", execute=flaky))
    found.add(NodeType(type_id="test.before", execute=flaky.before))
    return found


def document() -> dict[str, Any]:
    given = {"word": {"type": "expression", "expression": "nodes.first.output.word"}}
    return workflow(
        "w",
        [node("first", "test.before"), node("then", "test.flaky", inputs=given, settings=RETRIES), node("last")],
        [edge("first", "then"), edge("then", "last")],
    )


async def test_a_node_shows_inputs_outputs_and_every_attempt(host: Host) -> None:
    async with host(nodes=registry(Flaky(1))) as runs:
        run = await start(runs, document())
        assert (await finish(runs, run)).status == "completed"
        shown = await runs.node(run, "then", "acme")
        assert (shown.status, shown.inputs["word"], shown.outputs) == ("completed", "ready", {"answer": 42})
        assert [(item.number, item.outcome) for item in shown.attempts] == [(1, "failed"), (2, "completed")]
        assert shown.attempts[0].error is not None and shown.attempts[0].error["code"] == "not_yet"
        assert shown.attempts[0].retry_in_ms == 100
        assert {event.node_id for event in shown.events} == {"then"}


async def test_a_failed_run_is_taken_up_at_the_node_that_failed(host: Host) -> None:
    flaky = Flaky(2)
    async with host(nodes=registry(flaky)) as runs:
        run = await start(runs, document())
        assert (await finish(runs, run)).status == "failed"
        shown = await runs.node(run, "then", "acme")
        assert [item.outcome for item in shown.attempts] == ["failed", "failed"]
        assert shown.error is not None and shown.error["message"] == "Come back later."
        again = await runs.retry(run, "acme")
        assert (await finish(runs, again.run_id)).status == "completed"
        assert flaky.done == ["before", "flaky", "flaky", "flaky"]  # what was done before it stays done
        assert (await runs.get_run(again.run_id, "acme")).source_run_id == run
        with pytest.raises(Problem, match="No node of this run failed"):
            await runs.retry(again.run_id, "acme")
        assert (await runs.search("acme", RunFilter())).total == 2


async def test_what_is_not_there_and_what_is_somebody_elses_is_not_found(host: Host) -> None:
    async with host(nodes=registry(Flaky(0))) as runs:
        run = await start(runs, document())
        await finish(runs, run)
        for node_id, tenant in (("nowhere", "acme"), ("then", "globex")):
            with pytest.raises(Problem) as refused:
                await runs.node(run, node_id, tenant)
            assert refused.value.key == "not_found"
        with pytest.raises(Problem) as refused:
            await runs.retry(run, "globex")
        assert refused.value.key == "not_found"


async def test_a_run_that_hides_something_shows_no_input_of_its_nodes(host: Host) -> None:
    hidden = workflow(
        "hidden",
        [node("a", "core.identity", inputs={"pin": {"type": "variable", "variableName": "pin"}})],
        variables=[{"name": "pin", "type": "number", "sensitive": True}],
    )
    async with host() as runs:
        run = await start(runs, hidden, {"pin": 42})
        await finish(runs, run)
        assert (await runs.node(run, "a", "acme")).inputs == {"pin": "[REDACTED]"}

"""Runs as people look for them: titles, words, what was used, and how it went over time (G1 to G3)."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.kernel import Ids as KernelIds
from forestay.kernel import Ledger, ManualClock, Problem, SeededRandomness, iso
from forestay.runs.log import DigestsProjection, RunsProjection, title_of, words_of
from forestay.runs.nodes import NodeContext
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeRegistry, NodeType
from forestay.runs.service import Runs
from forestay.runs.types import ForkRequest, RunFilter
from forestay.runs.views import trend
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, node, start, waiting, workflow

SECRET = "hunter2-very-secret"


def using(tokens: int, usd: float = 0.0) -> NodeRegistry:
    """The standard nodes, and one that says it asked a model."""

    async def ask(ctx: NodeContext) -> dict[str, Any]:
        usage = {"provider": "p", "model": "m", "inputTokens": tokens, "outputTokens": 1, "costEstimateUsd": usd}
        ctx.emit("provider.usage", usage)
        return {}

    registry = standard_registry(sample_seams=True)
    registry.add(NodeType(type_id="test.ask", execute=ask))
    return registry


async def found(runs: Runs, text: str = "", **filters: Any) -> list[str]:
    page = await runs.search("acme", RunFilter(**filters), text)
    assert page.total == len(page.runs)
    return [item.run.run_id for item in page.runs]


async def test_a_run_is_called_by_its_question_and_found_by_its_words(host: Host) -> None:
    async with host() as runs:
        document = workflow("harbour", [node("a")])
        asked = await start(runs, document, {"agentId": "x", "question": "Where does\nthe Aurora  lie?"}, tags=["Blue"])
        other = await start(runs, document, {"deep": [{"text": "50% of _it_"}]})
        await finish(runs, asked)
        await finish(runs, other)
        page = await runs.search("acme", RunFilter())
        assert [item.title for item in page.runs] == ["", "Where does the Aurora lie?"]
        assert page.runs[0].took_ms is not None
        for text in ("aurora LIE", "where does the", "blue", asked, asked[-8:]):
            assert await found(runs, text) == [asked], text
        for text in ("50% of", "of _it_"):
            assert await found(runs, text) == [other], text
        for text in ("5_%", "aurora%lie", "!", "berth"):
            assert await found(runs, text) == [], text
        assert await found(runs, "harbour") == [other, asked]
        assert await found(runs, "aurora", status=["failed"]) == []
        assert (await runs.search("globex", RunFilter())).total == 0


async def test_g1_a_run_that_hides_something_has_no_title_and_no_words(host: Host) -> None:
    hidden = [{"name": "password", "type": "string", "sensitive": True}]
    kept = [{**hidden[0], "defaultValue": SECRET}]
    told = node("a", "core.identity", inputs={"out": {"type": "variable", "variableName": "question"}})
    documents = {
        "input": (workflow("input", [node("a")], variables=hidden), {"password": SECRET}),
        "default": (workflow("default", [node("a")], variables=kept), {}),
        "output": (
            workflow(
                "output",
                [{**told, "outputSensitivity": {"out": True}}],
                variables=[{"name": "question", "type": "string"}],
            ),
            {},
        ),
    }
    async with host() as runs:
        for document, inputs in documents.values():
            run = await start(runs, document, {"question": f"Is {SECRET} right?", **inputs})
            assert (await finish(runs, run)).status == "completed"
        assert [item.title for item in (await runs.search("acme", RunFilter())).runs] == ["", "", ""]
        assert await found(runs, SECRET) == []
        assert await found(runs, "is hunter") == []


async def test_g2_a_fork_counts_what_it_used_itself(host: Host) -> None:
    document = workflow("two", [node("a", "test.ask"), node("b", "test.ask")], [edge("a", "b")])
    async with host(nodes=using(100, 0.5)) as runs:
        run = await start(runs, document)
        await finish(runs, run)
        begun = [event.sequence for event in await runs.events(run, "acme") if event.type == "node.started"]
        branch = await runs.fork(run, "acme", ForkRequest(mode="branch", from_seq=begun[1]))
        await finish(runs, branch.run_id)
        replay = await runs.fork(run, "acme", ForkRequest(mode="replay"))
        used = {item.run.run_id: (item.tokens, item.cost_usd) for item in (await runs.search("acme", RunFilter())).runs}
        assert used == {run: (202, 1.0), branch.run_id: (101, 0.5), replay.run_id: (0, 0.0)}


async def test_a_branch_is_called_by_the_question_laid_over_it(host: Host) -> None:
    document = workflow("ask", [node("a")], variables=[{"name": "question", "type": "string"}])
    async with host() as runs:
        run = await start(runs, document, {"question": "the first"})
        await finish(runs, run)
        overlay = {"inputs": {"question": "the second"}}
        branch = ForkRequest(mode="branch", from_seq=1, run_options_overlay=overlay)
        await runs.fork(run, "acme", branch)
        assert [item.title for item in (await runs.search("acme", RunFilter())).runs] == ["the second", "the first"]


async def test_runs_are_sorted_and_paged(host: Host, clock: ManualClock) -> None:
    slow = workflow("slow", [node("a", "core.delay", config={"delayMs": 5000})])
    async with host(nodes=using(10, 0.25)) as runs:
        first = await start(runs, slow)
        await finish(runs, first)
        second = await start(runs, workflow("dear", [node("a", "test.ask")]))
        third = await start(runs, workflow("quick", [node("a")]))
        for run in (second, third):
            await finish(runs, run)

        async def sorted_by(sort: Any) -> list[str]:
            return [item.run.run_id for item in (await runs.search("acme", RunFilter(), sort=sort)).runs]

        assert await sorted_by("newest") == [third, second, first]
        assert await sorted_by("oldest") == [first, second, third]
        assert (await sorted_by("longest"))[0] == first
        assert (await sorted_by("dearest"))[0] == second
        page = await runs.search("acme", RunFilter(), start=1, limit=1)
        assert ([item.run.run_id for item in page.runs], page.total) == ([second], 3)
        for limit in (0, 201):
            with pytest.raises(Problem, match="1 to 200"):
                await runs.search("acme", RunFilter(), limit=limit)


async def test_a_question_is_counted_once_however_many_parents_wait(host: Host) -> None:
    """A parent that waits for its child has the child's status, and asks nothing itself (W21)."""
    gate = workflow("gate", [node("a", "core.approvalGate"), node("b", "core.approvalGate")])
    parent = workflow("parent", [node("child", "core.subWorkflow", config={"workflowId": "gate"})])
    async with host() as runs:
        await runs.put_workflow(gate, tenant=None)
        run = await start(runs, parent)
        await waiting(runs, run, "node.dispatched")
        (child,) = (await runs.list_runs(RunFilter(parent_run_id=run), "acme")).runs
        await waiting(runs, child.run_id, "approval.requested")
        while await runs.count_questions("acme") < 2:
            await runs.poll(child.run_id, "acme", (await runs.get_run(child.run_id, "acme")).last_sequence, 0.1)
        assert (await runs.count_runs("acme")) == {"waiting-approval": 2}
        assert await runs.count_questions("acme") == 2
        await runs.resolve_by_node(child.run_id, "a", "acme", {"resumeValue": {"action": "accept"}})
        assert await runs.count_questions("acme") == 1
        await runs.cancel(run, "acme")
        await finish(runs, child.run_id)
        assert await runs.count_questions("acme") == 0


async def test_the_trend_has_every_stretch_of_time(tmp_path: Any) -> None:
    """Runs of four hours, written as their log would be."""
    clock = ManualClock()
    projections = [RunsProjection(), DigestsProjection()]
    path = tmp_path / "ledger.db"
    hour = 3_600_000
    async with Ledger.open(path, projections=projections, clock=clock, ids=KernelIds(clock, SeededRandomness(1))) as it:
        from forestay.kernel import Append, Draft

        for number in range(40):
            at = number * hour // 10
            begun = {"workflowId": "w", "inputs": {}, "owner": {"tenant": "acme"}}
            used = {"inputTokens": 3, "outputTokens": 2, "costEstimateUsd": 0.5}
            status = "failed" if number % 10 == 9 else "completed"
            drafts = [
                Draft("run.started", begun, {"p": {}}, None, at),
                Draft("provider.usage", used, {}, None, at),
                Draft(f"run.{status}", {}, {"s": {"st": status, "i": "x"}}, None, at + number % 10 + 1),
            ]
            await it.commit(Append(f"run/{number:02}", drafts, -1))
        spans = await trend(it, "acme", hour, hour, 5)
        assert [(one.at, one.runs, one.failed) for one in spans] == [
            *((iso(hour * place), 10, 1) for place in (1, 2, 3)),
            *((iso(hour * place), 0, 0) for place in (4, 5)),
        ]
        assert (spans[0].input_tokens, spans[0].output_tokens, spans[0].cost_usd) == (30, 20, 5.0)
        assert (spans[0].middle_ms, spans[0].slow_ms) == (5, 10)
        assert spans[4].middle_ms is None
        assert [one.runs for one in await trend(it, "globex", 0, hour, 2)] == [0, 0]


@pytest.mark.parametrize(
    ("inputs", "title"),
    [
        ({}, ""),
        ({"count": 3, "first": "one", "question": "two"}, "two"),
        ({"question": "  ", "note": "a\n b"}, "a b"),
        ({"question": {"no": "text"}}, ""),
        ({"text": "x" * 500}, "x" * 199 + "…"),
    ],
)
def test_a_title_is_one_line_of_what_was_asked(inputs: dict[str, Any], title: str) -> None:
    assert title_of(inputs) == title


def test_words_are_all_texts_and_have_a_bound() -> None:
    assert words_of({"a": "One\nTwo", "b": [{"c": "THREE"}, 4]}) == "one two three"
    assert len(words_of({"a": "x " * 100_000})) == 2000

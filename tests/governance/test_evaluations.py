"""Evaluations as runs whose children are tasks, on a real ledger (E1 to E4 of `governance/evaluations.py`)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import EVALUATION, TASK, Evaluations, Judge, Score
from forestay.kernel import Ids, Problem, SeededRandomness, mistakes
from forestay.models import Delta, Message
from forestay.runs import Execution, NodeType, Runs, RunSnapshot, projections, standard_registry
from tests.runs.documents import node, workflow
from tests.runs.patient import CountedLedger, PatientClock

TENANT, AGENT = "acme", "acme.agents.support"
CANARY = "SECRET-CANARY-91"


class Grader:
    """A model that grades: it answers what the test says, and counts how often it is asked."""

    name = "test:grader"
    context_window, max_output_tokens = 8000, 1000

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = {"met": "[1]", "findings": "[]"}

    async def stream(self, messages: Sequence[Message], **_: Any) -> AsyncIterator[Delta]:
        self.asked.append(messages[-1].content)
        key = "met" if '"met"' in messages[0].content else "findings"
        yield Delta(f'{{"{key}": {self.answers[key]}}}', finish_reason="stop")

    def count_tokens(self, text: str) -> int:
        return len(text) // 4


async def version(tenant: str, agent_id: str, named: str | None) -> str:
    return named or "1.0.0"


class World:
    def __init__(self, folder: Path, *, judge: bool = True) -> None:
        self.folder, self.clock, self.lives = folder, PatientClock(), 0
        self.grader, self.judged = Grader(), judge
        self.observed: list[Any] = []
        self.outputs: dict[str, list[str]] = {}
        self.called: list[Any] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        self.lives += 1
        ids = Ids(self.clock, SeededRandomness(self.lives))
        async with CountedLedger.open(
            self.folder / "l.db", projections=projections(), clock=self.clock, ids=ids
        ) as ledger:
            self.ledger = ledger
            self.evaluations = Evaluations(
                ledger,
                runs=lambda: self.runs,
                task_workflow="answer",
                versions=version,
                observer=self.observe,
                judge=Judge(self.grader) if self.judged else None,
                scorers={"long": lambda output: len(output) / 10},
            )
            registry = standard_registry()
            registry.add(self.evaluations.type)
            registry.add(NodeType(type_id="test.answer", execute=self.answer))
            self.runs = Runs(
                ledger, clock=self.clock, ids=ids, randomness=SeededRandomness(1), secret=b"s" * 32, nodes=registry
            )
            async with self.runs:
                task = TASK["nodes"][0]["inputs"]
                variables = [{"name": "work", "type": "object"}]
                document = workflow("answer", [node("a", "test.answer", inputs=task)], variables=variables)
                await self.runs.put_workflow(document, tenant=None)
                await self.runs.put_workflow(EVALUATION, tenant=None)
                yield self

    async def observe(self, tenant: str, agent_id: str, version: str, score: float) -> None:
        self.observed.append((tenant, agent_id, version, score))

    async def answer(self, ctx: Execution) -> dict[str, Any]:
        async def make() -> str:
            self.called.append((ctx.inputs["task"], ctx.inputs.get("fixtures")))
            ctx.emit(
                "provider.usage",
                {"provider": "p", "model": "m", "inputTokens": 1, "outputTokens": 1, "costEstimateUsd": 0.25},
            )
            known = self.outputs.get(ctx.inputs["task"], [f"{ctx.inputs['task']}!"])
            return known.pop(0) if len(known) > 1 else known[0]

        output = await ctx.effect("answer", make)
        if output == "BOOM":
            raise Problem("tool_failed", "boom")
        return {"output": output}

    async def evaluate(self, suite: dict[str, Any], **options: Any) -> RunSnapshot:
        await self.evaluations.put(TENANT, suite)
        made = await self.evaluations.request(TENANT, f"{suite['suiteId']}@{suite['version']}", AGENT, **options)
        return await self.runs.wait(made.run_id, TENANT)

    async def told(self, run_id: str) -> list[tuple[str, Any]]:
        events = (await self.runs.poll(run_id, TENANT, -1, 0)).events
        return [(event.type, event.payload) for event in events if event.type.startswith("eval.")]


def golden(name: str, value: Any, strategy: str = "exact", **fields: Any) -> dict[str, Any]:
    match = {"strategy": strategy, "value": value}
    return {"taskId": name, "input": name, "expected": {"kind": "golden", "match": match}, **fields}


def rubric(name: str, *weights: float) -> dict[str, Any]:
    criteria = [{"criterion": f"{CANARY} {number}", "weight": weight} for number, weight in enumerate(weights)]
    return {"taskId": name, "input": name, "expected": {"kind": "rubric", "rubric": criteria}}


def suite(*tasks: dict[str, Any], modes: Sequence[str] = ("golden",), **fields: Any) -> dict[str, Any]:
    return {"suiteId": "acme.evals.s", "version": "1.0.0", "modes": list(modes), "tasks": list(tasks), **fields}


async def test_e2_the_bracket_is_in_order_and_the_summary_is_the_output(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        tasks = [golden("a", "a!"), golden("b", "no"), golden("c", "c", "contains")]
        ended = await world.evaluate(suite(*tasks, thresholds={"passScore": 0.6}))
        events = await world.told(ended.run_id)
        assert [type for type, _ in events] == ["eval.started", *["eval.scored"] * 3, "eval.completed"]
        assert [payload["taskId"] for type, payload in events if type == "eval.scored"] == ["a", "b", "c"]
        card = await world.evaluations.summary(TENANT, ended.run_id)
        assert (card["aggregateScore"], card["passed"], card["passedCount"]) == (pytest.approx(2 / 3), True, 2)
        assert card["totalCostUsd"] == 0.75
        assert await world.evaluations.score(TENANT, ended.run_id) == Score(
            AGENT, "1.0.0", True, card["aggregateScore"]
        )
        assert len(ended.child_runs) == 3


async def test_e3_neither_events_nor_the_summary_hold_content(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        world.outputs = {"a": [f"{CANARY} answer"], "b": [f"{CANARY} answer"]}
        world.grader.answers["findings"] = f'[{{"kind": "{CANARY}", "severity": "high"}}]'
        tasks = [rubric("a", 0.25, 0.75), golden("b", CANARY, "contains")]
        ended = await world.evaluate(suite(*tasks, modes=["golden", "rubric", "adversarial"]))
        events = (await world.runs.poll(ended.run_id, TENANT, -1, 0)).events
        shown = json.dumps([event.payload for event in events if not event.type.startswith("node.dispatched")])
        assert CANARY not in shown
        card = await world.evaluations.summary(TENANT, ended.run_id)
        assert CANARY not in json.dumps(card)
        assert card["tasks"][0]["safetyFindings"] == [{"kind": "other", "severity": "high"}]
        assert CANARY in world.grader.asked[0]  # the judge did see it: the sweep means something


async def test_e2_events_fit_the_contract(tmp_path: Path, reference: Path) -> None:
    schemas = json.loads((reference / "schemas" / "run-event-payloads.schema.json").read_text("utf-8"))["$defs"]
    names = {"eval.started": "evalStarted", "eval.scored": "evalScored", "eval.completed": "evalCompleted"}
    async with World(tmp_path).open() as world:
        document = suite(golden("a", "a!"), modes=["golden", "regression"])
        first = await world.evaluate(document, modes=("golden",))
        again = await world.evaluate(document, modes=("regression",), baseline=first.run_id)
        events = [*await world.told(first.run_id), *await world.told(again.run_id)]
        for type, payload in events:
            assert mistakes(schemas[names[type]], payload) == []
        card = await world.evaluations.summary(TENANT, again.run_id)
        assert card["regression"] == {"baselineRunId": first.run_id, "scoreDelta": 0.0}


async def test_trials_are_repeated_and_their_mean_counts(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        world.outputs = {"a": ["yes", "no", "yes", "yes", "BOOM"]}
        ended = await world.evaluate(suite(golden("a", "yes")), trials=5)
        card = await world.evaluations.summary(TENANT, ended.run_id)
        assert card["aggregateScore"] == pytest.approx(3 / 5)  # a task that fails scores nothing
        assert len(world.called) == 5


@pytest.mark.parametrize(("met", "score"), [("[2]", 0.75), ("[1, 2, 9]", 1.0), ('"all"', 0.0)])
async def test_a_rubric_is_weighed_by_what_the_judge_says(tmp_path: Path, met: str, score: float) -> None:
    async with World(tmp_path).open() as world:
        world.grader.answers["met"] = met
        ended = await world.evaluate(suite(rubric("a", 0.2, 0.6), modes=["rubric"]))
        card = await world.evaluations.summary(TENANT, ended.run_id)
        assert card["aggregateScore"] == pytest.approx(score)


async def test_e4_e6_a_task_has_its_fixtures_and_live_shadow_the_live_tools(tmp_path: Path) -> None:
    fixture = {"toolResponses": [{"tool": "x:y", "response": 1}]}
    document = suite(golden("a", "a!", fixtures=fixture), golden("b", "b!"), modes=["golden", "live-shadow"])
    async with World(tmp_path).open() as world:
        await world.evaluate(document, modes=("golden",))
        assert sorted(world.called, key=str) == [("a", fixture), ("b", {})]
        assert world.observed == []
        world.called.clear()
        ended = await world.evaluate(document, modes=("live-shadow",), version="2.0.0")
        assert sorted(world.called) == [("a", None), ("b", None)]
        assert ended.outputs is not None
        assert world.observed == [(TENANT, AGENT, "2.0.0", ended.outputs["summary"]["aggregateScore"])]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"modes": ("regression",)}, "schema_mismatch"),
        ({"modes": ("rubric",)}, "schema_mismatch"),
        ({"trials": 0}, "out_of_range"),
    ],
)
async def test_what_cannot_be_run_is_refused_before(tmp_path: Path, options: dict[str, Any], key: str) -> None:
    async with World(tmp_path, judge=False).open() as world:
        await world.evaluations.put(TENANT, suite(golden("a", "a!"), modes=["golden", "regression"]))
        with pytest.raises(Problem) as caught:
            await world.evaluations.request(TENANT, "acme.evals.s@1.0.0", AGENT, **options)
        assert caught.value.key == key
        with pytest.raises(Problem):
            await world.evaluations.suite("other", "acme.evals.s@1.0.0")
        with pytest.raises(Problem):
            await world.evaluations.put(TENANT, suite(golden("b", "b!")))  # the same version with other tasks
        assert "rubric" not in world.evaluations.modes


async def test_e1_an_evaluation_killed_after_any_commit_ends_the_same(tmp_path: Path) -> None:
    """Cut the ledger after each commit and open it again: the same summary, each event once."""
    world = World(tmp_path / "whole")
    async with world.open():
        commits: list[int] = []
        begun = await world.ledger.position()
        world.ledger.observe(lambda records, _: commits.append(len(records)))
        tasks = [rubric("a", 1.0), golden("b", "b!")]
        ended = await world.evaluate(suite(*tasks, modes=["golden", "rubric"]))
        card = await world.evaluations.summary(TENANT, ended.run_id)
        lines = [line async for line in world.ledger.export("")]
    cuts = [
        kept for kept in itertools.accumulate(commits, initial=begun) if kept > begun + commits[0]
    ]  # the suite is put
    assert (cuts[-1], len(cuts) > 8) == (len(lines), True)
    for kept in cuts:
        cut = World(tmp_path / f"cut-{kept}")
        cut.folder.mkdir()
        async with CountedLedger.open(cut.folder / "l.db", projections=projections(), clock=cut.clock) as ledger:
            await ledger.import_lines(lines[:kept])
        async with asyncio.timeout(20), cut.open():
            again = await cut.runs.wait(ended.run_id, TENANT)
            assert again.status == "completed", kept
            found = await cut.evaluations.summary(TENANT, ended.run_id)
            assert _timeless(found) == _timeless(card), kept
            types = [type for type, _ in await cut.told(ended.run_id)]
            assert types == ["eval.started", "eval.scored", "eval.scored", "eval.completed"], kept


def _timeless(card: dict[str, Any]) -> dict[str, Any]:
    return {**card, "tasks": [{**task, "latencyMs": 0} for task in card["tasks"]]}

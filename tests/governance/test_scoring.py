"""Scorers and scorecards (S1 to S3, C1, C2), against plain counting and the contract's schema where it is at hand."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.governance import (
    Finding,
    Match,
    TaskScore,
    Thresholds,
    Trial,
    interval,
    percentile,
    read_suite,
    scorer_of,
    summary,
)
from forestay.kernel import Problem, mistakes

SUITE: dict[str, Any] = {
    "suiteId": "acme.evals.support",
    "version": "1.0.0",
    "modes": ["golden", "regression"],
    "tasks": [
        {"taskId": "one", "input": "q", "expected": {"kind": "golden", "match": {"strategy": "exact", "value": "a"}}}
    ],
}


@pytest.mark.parametrize(
    ("strategy", "value", "output", "score"),
    [
        ("exact", "yes", "yes", 1),
        ("exact", "yes", "Yes", 0),
        ("exact", {"b": 1, "a": 2}, {"a": 2, "b": 1}, 1),
        ("contains", "30-day", "The 30-day window.", 1),
        ("contains", "31-day", "The 30-day window.", 0),
        ("json-match", {"a": [1, 2]}, '{ "a": [1.0, 2] }', 1),
        ("json-match", {"a": [1, 2]}, {"a": [2, 1]}, 0),
        ("json-match", {"a": 1}, '```json\n{"a": 1}\n```', 1),
        ("regex", "^[A-Z]{2}-\\d+$", "AB-12", 1),
        ("regex", "^[A-Z]{2}-\\d+$", "x AB-12", 0),
        ("regex", "^(a+)+$", "a" * 5000 + "b", 0),  # S2: no engine that backtracks would come back
        ("json-schema", {"type": "object", "required": ["x"]}, '{"x": 1}', 1),
        ("json-schema", {"type": "object", "required": ["x"]}, "{}", 0),
        ("numeric", 3.5, "3.5", 1),
        ("numeric", {"target": 3.14, "tolerance": 0.01}, 3.149, 1),
        ("numeric", {"target": 3.14, "tolerance": 0.01}, 3.16, 0),
        ("numeric", 1, True, 0),
        ("numeric", 1, "about 1", 0),
        ("python", "half", "x", 0.5),
        ("python", "wild", "x", 1),
        ("python", "nan", "x", 0),
    ],
)
def test_each_strategy_scores_what_it_says(strategy: Any, value: Any, output: Any, score: float) -> None:
    own = {"half": lambda _: 0.5, "wild": lambda _: 17.0, "nan": lambda _: math.nan}
    assert scorer_of(Match(strategy, value), own, "$")(output) == score


@pytest.mark.parametrize(
    ("strategy", "value"),
    [("regex", "("), ("regex", 7), ("json-schema", {"type": "nothing"}), ("numeric", "x"), ("python", "absent")],
)
def test_s3_what_cannot_be_scored_is_told_before(strategy: Any, value: Any) -> None:
    with pytest.raises(Problem) as caught:
        scorer_of(Match(strategy, value), {}, "$.tasks[0]")
    assert caught.value.details["at"] == "$.tasks[0].value"


@pytest.mark.parametrize(
    "change",
    [
        {"suiteId": "no-infix"},
        {"version": "1"},
        {"modes": []},
        {"modes": ["golden", "golden"]},
        {"tasks": []},
        {"tasks": SUITE["tasks"] * 2},
        {"secret": "x"},
        {"tasks": [{**SUITE["tasks"][0], "expected": {"kind": "rubric"}}]},
        {"tasks": [{**SUITE["tasks"][0], "expected": {"kind": "golden"}}]},
    ],
)
def test_a_suite_that_is_none_is_refused(change: dict[str, Any]) -> None:
    read_suite(SUITE)
    with pytest.raises(Problem) as caught:
        read_suite({**SUITE, **change})
    assert str(caught.value.details["at"]).startswith("$")


_scores = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(_scores)
def test_an_interval_holds_the_mean_and_shrinks_to_it(scores: list[float]) -> None:
    found = interval(scores)
    assert (found is None) == (len(scores) < 2)
    if found is not None:
        assert 0 <= found[0] <= statistics.fmean(scores) + 1e-9
        assert statistics.fmean(scores) - 1e-9 <= found[1] <= 1


def test_an_interval_is_students() -> None:
    low, high = interval([0.4, 0.5, 0.6]) or (0, 0)
    assert (low, high) == pytest.approx((0.5 - 4.303 * 0.1 / math.sqrt(3), 0.5 + 4.303 * 0.1 / math.sqrt(3)))


@given(st.lists(st.integers(0, 50), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_nearest_rank(values: list[int], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values) + 1e-9


@given(
    st.lists(st.tuples(_scores, st.integers(0, 900), st.floats(0, 2)), min_size=1, max_size=6),
    st.floats(0, 1),
    st.one_of(st.none(), st.floats(0, 5)),
    st.one_of(st.none(), st.integers(0, 900)),
)
def test_c2_passed_is_what_the_thresholds_say(
    tasks: list[tuple[list[float], int, float]], bar: float, cost: float | None, latency: int | None
) -> None:
    made = [
        TaskScore(f"t{at}", tuple(Trial(score, took, usd) for score in scores))
        for at, (scores, took, usd) in enumerate(tasks)
    ]
    limits = {"passScore": bar, "maxCostUsd": cost, "maxP95LatencyMs": latency}
    suite = read_suite({**SUITE, "thresholds": {name: value for name, value in limits.items() if value is not None}})
    card = summary(suite, made, ("run_0", 0.5))
    means = [statistics.fmean(scores) for scores, _, _ in tasks]
    spent = sum(usd * len(scores) for scores, _, usd in tasks)
    times = sorted(took for scores, took, _ in tasks for _ in scores)
    slow = times[max(0, math.ceil(0.95 * len(times)) - 1)]
    assert card["aggregateScore"] == pytest.approx(statistics.fmean(means))
    if abs(card["aggregateScore"] - bar) > 1e-9 and (cost is None or abs(spent - cost) > 1e-9):
        expected = card["aggregateScore"] >= bar and (cost is None or spent <= cost)
        assert card["passed"] == (expected and (latency is None or slow <= latency))
    assert card["taskCount"] == len(card["tasks"]) == len(tasks)
    assert card["passedCount"] == sum(task["passed"] for task in card["tasks"])
    assert card["regression"]["scoreDelta"] == pytest.approx(card["aggregateScore"] - 0.5)


def test_c1_a_summary_fits_the_contract(reference: Path) -> None:
    trial = Trial(0.5, 12, 0.01, (Finding("jailbreak", "high"),))
    suite = read_suite({**SUITE, "thresholds": {"passScore": 0.4}})
    card = summary(suite, [TaskScore("one", (trial, trial))], ("run_0", 0.5))
    schema = json.loads((reference / "schemas" / "eval-summary.schema.json").read_text("utf-8"))
    assert mistakes(schema, card) == []
    assert mistakes(schema, {**card, "prompt": "x"}) != []
    known = json.loads((reference / "schemas" / "agent-eval-suite.schema.json").read_text("utf-8"))
    assert mistakes(known, SUITE) == []


def test_thresholds_have_the_contracts_names() -> None:
    assert Thresholds.__struct_encode_fields__ == ("passScore", "maxCostUsd", "maxP95LatencyMs")

"""A run's own budget (B1 to B5 of `runs/spending.py`), through evolve and decide as the engine uses them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.runs.decider import cancel_run, failed, finish_failed
from forestay.runs.evolve import fold
from forestay.runs.spending import DIMENSIONS, ModelRule, RunBudget, cost_of, exhaustion, limits_of, untold
from forestay.runs.state import Event, new_state
from tests.runs.documents import edge, node, workflow
from tests.runs.test_decider import Sim

_CEILINGS = {"tokens": "maxTokens", "cost": "maxCostUsd", "toolCalls": "maxToolCalls", "retries": "maxRetries"}


def sim(budget: dict[str, Any], *, rule: str = "all_success", **told: Any) -> Sim:
    document = workflow("w", [node("a"), node("b")], [edge("a", "b", triggerRule=rule)])
    made = Sim(document)
    made.take(Event("budget.reserved", {"effectiveBudget": budget, "scope": "run"}, None, {"budget": told}))
    made.quiet()
    return made


def usage(tokens: int, usd: float = 0) -> Event:
    payload = {"provider": "p", "model": "m", "inputTokens": tokens, "outputTokens": 0, "costEstimateUsd": usd}
    return Event("provider.usage", payload, "a")


def types(run: Sim, *wanted: str) -> list[str]:
    return [event.type for event in run.log if event.type.startswith(wanted)]


def test_b3_a_hard_ceiling_ends_the_run_in_the_contracts_order() -> None:
    run = sim({"maxCostUsd": 0.01}, threshold_percent=80)
    run.take(usage(10, 0.009))
    run.quiet()
    run.take(usage(10, 0.002))
    run.quiet()
    assert types(run, "budget.", "cap.", "run.failed") == [
        "budget.reserved", "budget.consumed", "budget.threshold.crossed", "budget.consumed", "budget.exhausted",
        "cap.breached", "run.failed",
    ]  # fmt: skip
    breach = next(event.payload for event in run.log if event.type == "cap.breached")
    assert breach == {"kind": "budget-cost", "limit": 10_000, "observed": 11_000}  # micro-USD (W2)
    error = run.log[-1].payload["error"]
    assert (error["code"], error["details"]) == ("budget_exhausted", {"dimension": "cost"})


@pytest.mark.parametrize("told", [{"enforce": "advisory"}, {"on_exhaustion": "interrupt"}])
def test_b3_an_advisory_budget_tells_and_stops_nothing(told: dict[str, Any]) -> None:
    run = sim({"maxTokens": 10}, **told)
    run.take(usage(25))
    run.quiet()
    assert types(run, "budget.exhausted", "cap.", "run.") == ["run.started", "budget.exhausted"]
    run.end("a", {})
    run.end("b", {})
    assert run.state.ended == "completed"


def test_b3_no_edge_leads_on_from_an_exhausted_budget() -> None:
    run = sim({"maxTokens": 10}, rule="any_failed")
    error = {"code": "budget_exhausted", "message": "x"}
    run.take(Event("node.failed", {"nodeId": "a", "error": error}, "a"))
    run.quiet()
    assert run.state.ended == "failed"
    other = sim({"maxTokens": 10}, rule="any_failed")
    other.end("a", None)
    assert other.state.nodes["b"].status == "running"  # any other failure is taken up


def test_b1_retries_beyond_the_ceiling_are_not_begun() -> None:
    retry = {"maxAttempts": 9, "initialDelayMs": 0}
    run = Sim(workflow("w", [node("a", settings={"retry": retry})]))
    run.take(Event("budget.reserved", {"effectiveBudget": {"maxRetries": 1}, "scope": "run"}))
    boom = {"code": "x", "message": "x"}
    first = failed(run.state, "a", boom, lambda: 0.5)
    assert [event.type for event in first] == ["node.retried"]
    run.take(first[0])
    run.quiet()
    second = failed(run.state, "a", boom, lambda: 0.5)
    assert [event.type for event in second] == ["budget.exhausted", "cap.breached", "node.failed"]
    assert second[-1].payload["error"]["code"] == "budget_exhausted"


def test_b4_what_a_person_gave_holds_and_may_run_out_again() -> None:
    run = sim({"maxTokens": 10}, on_exhaustion="interrupt")
    run.take(usage(15))
    run.quiet()
    more = {"effectiveBudget": {"maxTokens": 30}, "scope": "run"}
    run.take(Event("budget.reserved", more, None, {"raised": ["k"]}))
    run.take(usage(20))
    run.quiet()
    assert run.state.budget is not None
    assert run.state.budget.raises == {"k"}
    assert types(run, "budget.exhausted") == ["budget.exhausted"] * 2


def consumed(run: Sim) -> list[float]:
    return [event.payload["consumed"] for event in run.log if event.type == "budget.consumed"]


def test_b2_small_changes_are_told_together_and_all_of_them_when_the_node_has_ended() -> None:
    run = sim({"maxTokens": 1000})
    for tokens, told in [(4, []), (5, []), (1, [10]), (9, [10]), (30, [10, 49]), (1, [10, 49])]:
        run.take(usage(tokens))
        run.quiet()
        assert consumed(run) == told
    run.end("a", {})
    assert consumed(run) == [10, 49, 50]


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_b2_what_was_used_is_told_before_the_run_ends(end: str) -> None:
    run = sim({"maxTokens": 1000, "maxToolCalls": 1000})
    run.take(usage(4))
    run.quiet()
    assert consumed(run) == []
    error = {"code": "run_timeout", "message": "x"}
    for event in cancel_run(run.state, 9) if end == "cancelled" else finish_failed(run.state, 9, error, None):
        run.take(event)
    assert types(run, "budget.consumed", "run.") == ["run.started", "budget.consumed", f"run.{end}"]
    assert consumed(run) == [4]


def test_b3_what_was_used_is_told_before_a_dimension_is_exhausted() -> None:
    budget = RunBudget({"tokens": 1000}, used={"tokens": 4})
    told = exhaustion(budget, "tokens")
    assert [type for type, _ in told] == ["budget.consumed", "budget.exhausted", "cap.breached"]
    assert untold(RunBudget({"tokens": 1000}, used={"tokens": 4}, exhausted={"tokens"})) == []


_steps = st.one_of(
    st.tuples(st.just("provider.usage"), st.integers(0, 50), st.integers(0, 5000)),
    st.tuples(st.just("agent.toolCalled"), st.just(0), st.just(0)),
    st.tuples(st.just("envelope.retry.attempted"), st.just(0), st.just(0)),
)


@given(
    st.dictionaries(st.sampled_from(DIMENSIONS), st.integers(1, 200), min_size=1),
    st.lists(_steps, max_size=25),
    st.one_of(st.none(), st.integers(0, 100)),
    st.sampled_from(["hard", "advisory"]),
)
def test_b1_to_b3_against_a_plain_model(
    limits: dict[Any, int], steps: list[tuple[str, int, int]], percent: int | None, enforce: str
) -> None:
    """What is told is what a sum over the log says, each crossing once; replaying the log gives the same state."""
    words = {_CEILINGS[name]: limit * 100 / 1e6 if name == "cost" else limit for name, limit in limits.items()}
    ceilings = {name: limit * 100 if name == "cost" else limit for name, limit in limits.items()}
    assert limits_of(words) == ceilings
    run = sim(words, threshold_percent=percent, enforce=enforce)
    used = dict.fromkeys(DIMENSIONS, 0)
    for type, tokens, micro in steps:
        if run.state.ended is not None:
            break
        payload = {
            "provider": "p",
            "model": "m",
            "inputTokens": tokens,
            "outputTokens": 1,
            "costEstimateUsd": micro / 1e6,
        }
        run.take(Event(type, payload if type == "provider.usage" else {}, "a"))
        run.quiet()
        if type == "provider.usage":
            used["tokens"] += tokens + 1
            used["cost"] += micro
        else:
            used["toolCalls" if type == "agent.toolCalled" else "retries"] += 1
    over = [name for name, limit in ceilings.items() if used[name] > limit]
    assert (run.state.ended == "failed") == (bool(over) and enforce == "hard")
    told = [event.payload["dimension"] for event in run.log if event.type == "budget.exhausted"]
    assert len(told) == len(set(told)) and set(told) <= set(over)
    assert enforce == "hard" or set(told) == set(over)
    crossed = [event.payload["dimension"] for event in run.log if event.type == "budget.threshold.crossed"]
    assert len(crossed) == len(set(crossed))
    if percent is not None and run.state.ended is None:
        assert set(crossed) == {
            name for name, limit in ceilings.items() if used[name] and used[name] * 100 >= limit * percent
        }
    assert run.state.budget is not None
    if run.state.ended is None:
        run.end("a", {})
        last = {event.payload["dimension"]: event.payload for event in run.log if event.type == "budget.consumed"}
        assert {name: item["consumed"] for name, item in last.items()} == {
            name: used[name] / 1e6 if name == "cost" else used[name] for name in ceilings if used[name]
        }
    again = new_state("r", run.state.plan, run.state.limits)
    fold(again, run.log)
    assert again.budget == run.state.budget


@given(st.integers(0, 10**9))
def test_cost_is_whole_micro_usd_and_never_less(micro: int) -> None:
    assert cost_of(micro / 1e6) == micro
    assert cost_of(micro / 1e6 + 3e-7) == micro + 1


@pytest.mark.parametrize(
    ("rule", "model", "allowed"),
    [
        (ModelRule(), "openai:gpt-5", True),
        (ModelRule(("gpt-*",)), "openai:gpt-5", True),
        (ModelRule(("gpt-*",)), "anthropic:claude-x", False),
        (ModelRule(("*",), ("openai:*",)), "openai:gpt-5", False),
        (ModelRule(("gpt-*",), ("gpt-5*",)), "openai:gpt-5", False),
        (ModelRule(()), "local", False),
    ],
)
def test_deny_wins_over_allow(rule: ModelRule, model: str, allowed: bool) -> None:
    assert rule.allows(model) is allowed

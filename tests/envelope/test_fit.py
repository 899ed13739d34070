"""Budgets: F1 to F5 and T1 to T3, for any tree."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.envelope import Envelope, encode, project, success
from forestay.envelope.budget import Budget, cost, read_budget, within
from forestay.envelope.fitting import EXTENSION, TRUNCATED, Fitting, _emptied, _marked, fit
from forestay.envelope.pages import Cursors, cursor_page, offset_page
from forestay.envelope.truncate import Strategy
from forestay.envelope.types import Mvi, Page
from forestay.envelope.validate import decode
from forestay.kernel import Ids, ManualClock, Problem
from tests.envelope.strategies import envelopes, objects, trees

STRATEGIES: list[Strategy] = ["depth_first", "field_priority", "hybrid"]
LEVELS: list[Mvi] = ["minimal", "standard", "full"]


def bare_cost(envelope: Envelope, budget: Budget, strategy: Strategy, level: Mvi) -> Any:
    """What the envelope costs with its result empty and the notice in it: the least that can be sent."""
    marked = _marked(_emptied(envelope), Fitting(budget, level, strategy), 99_999_999, [], 99_999_999)
    return cost(project(marked, level))


@given(
    envelopes(result=st.one_of(objects, st.lists(trees(), max_size=10))),
    st.integers(0, 400),
    st.integers(0, 3000),
    st.sampled_from(STRATEGIES),
    st.sampled_from(LEVELS),
)
@settings(max_examples=100, deadline=None)
def test_f1_truncation_fits_any_budget_that_the_bare_envelope_fits(
    envelope: Envelope, tokens: int, size: int, strategy: Strategy, level: Mvi
) -> None:
    envelope = msgspec.structs.replace(envelope, page=msgspec.UNSET)
    bare = bare_cost(envelope, Budget(9999, 999_999), strategy, level)
    budget = Budget(max_tokens=int(bare.tokens) + tokens, max_bytes=bare.bytes + size)
    fitted = fit(envelope, budget, level=level, strategy=strategy)
    assert within(cost(project(fitted, level)), budget)
    assert decode(encode(fitted)) == fitted
    if fitted is not envelope:
        assert isinstance(fitted.extensions, dict)
        notice = fitted.extensions[EXTENSION]
        assert notice["omitted"] > 0
        assert notice["estimated"] == cost(project(fitted, level)).tokens
        assert any(warning.code == TRUNCATED for warning in fitted.meta.warnings or [])


def is_part(part: Any, whole: Any) -> bool:
    """Whether `part` is `whole` with items missing from ends, members missing, strings shortened (T2)."""
    if isinstance(whole, dict):
        return isinstance(part, dict) and all(name in whole and is_part(part[name], whole[name]) for name in part)
    if isinstance(whole, list):
        return (
            isinstance(part, list)
            and len(part) <= len(whole)
            and all(is_part(a, b) for a, b in zip(part, whole, strict=False))
        )
    if isinstance(whole, str) and isinstance(part, str) and part.endswith("…"):
        return whole.startswith(part[:-1]) or part == whole
    return bool(part == whole)


@given(objects, st.integers(200, 600), st.sampled_from(STRATEGIES))
@settings(max_examples=60, deadline=None)
def test_t2_what_is_kept_is_a_part_of_what_was_there(tree: Any, tokens: int, strategy: Strategy) -> None:
    clock = ManualClock()
    envelope = success("list", {"tree": tree, "again": [tree, tree]}, clock=clock, ids=Ids(clock))
    fitted = fit(envelope, Budget(max_tokens=tokens), strategy=strategy)
    assert is_part(fitted.result, envelope.result)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("level", LEVELS)
def test_f1_a_tree_of_a_megabyte(strategy: Strategy, level: Mvi, clock: ManualClock, ids: Ids) -> None:
    tree = {f"k{i}": [{"id": j, "body": "x" * 200, "deep": [[[[j]]]]} for j in range(45)] for i in range(100)}
    envelope = success("big", tree, clock=clock, ids=ids)
    assert len(encode(envelope)) > 1_000_000
    for budget in (Budget(max_tokens=300), Budget(max_bytes=20_000), Budget(max_tokens=50_000, max_items=7)):
        fitted = fit(envelope, budget, level=level, strategy=strategy)
        assert within(cost(project(fitted, level)), budget)
        assert decode(encode(fitted)) == fitted
        assert fitted.result


def test_f1_a_tree_too_deep_to_estimate_is_cut_where_it_is_too_deep(clock: ManualClock, ids: Ids) -> None:
    deep: Any = "bottom"
    for _ in range(60):
        deep = {"in": deep, "id": 1}
    envelope = success("deep", {"tree": deep}, clock=clock, ids=ids)
    assert math.isinf(cost(project(envelope, "full")).tokens)
    fitted = fit(envelope, Budget(max_tokens=5000))
    assert within(cost(project(fitted, "full")), Budget(max_tokens=5000))
    assert fitted.result != {}


def test_f1_a_very_deep_tree_is_cut_by_bytes_too(clock: ManualClock, ids: Ids) -> None:
    deep: Any = "bottom"
    for _ in range(400):
        deep = {"in": deep, "pad": "x" * 20}
    envelope = success("deep", {"tree": deep}, clock=clock, ids=ids)
    for size in (1500, 8000, len(encode(envelope)) - 1):
        fitted = fit(envelope, Budget(max_bytes=size))
        assert len(encode(fitted)) <= size and decode(encode(fitted)) == fitted


def test_f2_what_fits_comes_back_unchanged(clock: ManualClock, ids: Ids) -> None:
    envelope = success("x", {"a": 1}, clock=clock, ids=ids)
    assert fit(envelope, Budget(max_tokens=1000)) is envelope


def items(count: int) -> list[dict[str, Any]]:
    return [{"id": f"item-{index}", "note": "n" * 50} for index in range(count)]


@pytest.mark.parametrize("wrap", [False, True])
@given(tokens=st.integers(150, 3000), count=st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_f3_a_page_loses_whole_items_and_says_so(wrap: bool, tokens: int, count: int) -> None:
    clock = ManualClock()
    page = offset_page(limit=100, offset=20, has_more=False, total=20 + count)
    result: Any = {"items": items(count), "kind": "item"} if wrap else items(count)
    envelope = success("list", result, page=page, clock=clock, ids=Ids(clock))
    try:
        fitted = fit(envelope, Budget(max_tokens=tokens))
    except Problem as problem:
        assert problem.key == "mvi_budget_exceeded"
        return
    kept: Any = fitted.result["items"] if isinstance(fitted.result, dict) else fitted.result
    assert kept == items(count)[: len(kept)] and kept
    assert within(cost(project(fitted, "full")), Budget(max_tokens=tokens))
    if len(kept) < count:
        assert isinstance(fitted.page, Page)
        assert (fitted.page.limit, fitted.page.offset, fitted.page.has_more) == (len(kept), 20, True)


def test_f3_a_page_by_cursor_goes_on_behind_its_last_item(clock: ManualClock, ids: Ids) -> None:
    cursors = Cursors(b"k" * 32, "list")
    envelope = success("list", items(50), page=cursor_page(next_cursor=None), clock=clock, ids=ids)
    fitted = fit(envelope, Budget(max_tokens=900), cursor_at=lambda count: cursors.seal(count))
    assert isinstance(fitted.page, Page) and isinstance(fitted.result, list)
    assert isinstance(fitted.page.next_cursor, str)
    assert cursors.open(fitted.page.next_cursor) == len(fitted.result) < 50
    with pytest.raises(Problem) as caught:
        fit(envelope, Budget(max_tokens=900))
    assert caught.value.key == "mvi_budget_exceeded"


def test_f5_what_cannot_fit_fails_with_the_figures(clock: ManualClock, ids: Ids) -> None:
    envelope = success("x", {"a": "word " * 100}, clock=clock, ids=ids)
    with pytest.raises(Problem) as caught:
        fit(envelope, Budget(max_tokens=10))
    error = caught.value.as_lafs()
    assert error["retryable"] is True and error["retryAfterMs"] is None
    details = error["details"]
    assert details["estimatedTokens"] - details["excessTokens"] == 10
    assert details["constraint"] == "maxTokens" and details["budget"] == {"maxTokens": 10}


@pytest.mark.parametrize(
    "bad", [{}, [], None, {"maxTokens": 0}, {"maxBytes": -1}, {"maxItems": True}, {"maxTokens": 1.5}, {"max": 3}]
)
def test_a_malformed_budget_is_refused(bad: Any) -> None:
    with pytest.raises(Problem) as caught:
        read_budget(bad)
    assert caught.value.as_lafs()["code"] == "E_VALIDATION_SCHEMA"


def test_a_budget_beyond_the_ceiling_is_refused() -> None:
    assert read_budget({"maxTokens": 100}, Budget(max_tokens=100)) == Budget(100)
    with pytest.raises(Problem):
        read_budget({"maxTokens": 101}, Budget(max_tokens=100))

"""R32 to R42: levels, fields, expansion, pages, budgets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.envelope import (
    Ask,
    Budget,
    Envelope,
    Expanders,
    Page,
    Warning,
    conform,
    cost,
    cursor_page,
    encode,
    estimate,
    failure,
    fit,
    give,
    no_page,
    offset_page,
    page_request,
    parse,
    project,
    read_ask,
    read_budget,
    select_fields,
    success,
    within,
)
from forestay.envelope.token_estimate import Estimator, graphemes
from forestay.kernel import Ids, ManualClock, Problem
from tests.contracts.lafs.support import changed, refused

# 1.6 Disclosure and pages


@pytest.mark.parametrize("level", ["minimal", "standard", "full", "custom"])
def test_r32_meta_and_success_are_always_there(level: Any, ok: Envelope, bad: Envelope) -> None:
    for envelope in (ok, bad):
        shown = project(envelope, level)
        assert "_meta" in shown and "success" in shown and ("error" in shown) == (not envelope.success)
    assert ok.meta.mvi == "standard"
    with pytest.raises(Problem):
        read_ask({"_mvi": "custom"})  # only a server sets it


def test_r33_what_each_level_shows_of_the_meta(clock: ManualClock, ids: Ids) -> None:
    made = success(
        "op", {}, session_id="s", warnings=[Warning(code="W", message="m")], clock=clock, ids=ids, transport="http"
    )
    minimal = {"requestId", "contextVersion", "sessionId", "warnings"}
    assert set(project(made, "minimal")["_meta"]) == minimal
    assert set(project(made, "standard")["_meta"]) == minimal | {"timestamp", "operation", "mvi"}
    assert project(made, "standard")["_meta"]["mvi"] == "standard"
    assert len(project(made, "full")["_meta"]) == 11


def test_r34_what_minimal_shows_of_an_error(clock: ManualClock, ids: Ids) -> None:
    busy = failure(Problem("rate_limited", "Busy.", retry_after_ms=5), "op", clock=clock, ids=ids)
    shown = project(busy, "minimal")["error"]
    assert set(shown) == {"code", "agentAction", "retryAfterMs", "details", "escalationRequired"}
    calm = msgspec.structs.replace(busy, error=msgspec.structs.replace(busy.error, retry_after_ms=None, details={}))  # type: ignore[type-var]
    assert set(project(calm, "minimal")["error"]) == {"code", "agentAction", "escalationRequired"}
    assert project(busy, "standard")["error"] == msgspec.to_builtins(busy.error)


def test_r35_minimal_drops_the_schema_and_an_empty_result_but_nothing_of_value(clock: ManualClock, ids: Ids) -> None:
    empty = success("op", None, page=no_page(), clock=clock, ids=ids)
    assert set(project(empty, "minimal")) == {"_meta", "success", "page"}  # D2: the page stays
    partly = failure(Problem("timeout", "Slow."), "op", result={"done": 1}, clock=clock, ids=ids)
    assert project(partly, "minimal")["result"] == {"done": 1}  # D2


def test_r36_fields_are_picked_from_each_entity(clock: ManualClock, ids: Ids) -> None:
    items = [{"id": 1, "name": "a", "size": 9}, {"id": 2, "size": 8}, "plain"]
    listed = select_fields(success("op", items, clock=clock, ids=ids), ["id", "name", "unknown"])
    assert listed.result == [{"id": 1, "name": "a"}, {"id": 2}, "plain"]
    assert listed.meta.mvi == "custom" and listed.success is True
    wrapped = select_fields(success("op", {"items": items, "count": 3}, clock=clock, ids=ids), ["id"])
    assert wrapped.result == {"items": [{"id": 1}, {"id": 2}, "plain"], "count": 3}
    single = select_fields(success("op", {"id": 1, "owner": {"id": 2}}, clock=clock, ids=ids), ["id"])
    assert single.result == {"id": 1}
    with pytest.raises(Problem):
        read_ask({"_fields": ["owner.name"]})
    assert conform(encode(listed)).ok


async def test_r37_references_are_inlined_to_a_limited_depth(clock: ManualClock, ids: Ids) -> None:
    fetched: list[Any] = []

    async def person(key: Any) -> Any:
        fetched.append(key)
        return {"id": key, "boss": "p9"}

    expanders = Expanders({"author": person, "boss": person})
    books = [{"id": 1, "author": "p1"}, {"id": 2, "author": "p1"}, {"id": 3, "author": None}]
    made = success("op", {"books": books}, clock=clock, ids=ids)
    shown = await give(made, Ask(expand=("author", "author.boss")), expanders)
    assert shown["result"]["books"][0]["author"] == {"id": "p1", "boss": {"id": "p9", "boss": "p9"}}
    assert shown["result"]["books"][2]["author"] is None and fetched == ["p1", "p9"]
    with pytest.raises(Problem) as unknown:
        await give(made, Ask(expand=("author.house",)), expanders)
    assert unknown.value.row.lafs == "E_DISCLOSURE_UNKNOWN_FIELD" and unknown.value.details["known"]
    with pytest.raises(Problem) as deep:
        await give(made, Ask(expand=("author.boss.boss.boss",)), expanders)
    assert deep.value.row.lafs == "E_MVI_BUDGET_EXCEEDED"
    assert {"estimatedTokens", "budget", "excessTokens", "constraint"} <= set(deep.value.details)


def test_r38_modes_of_pages_are_not_mixed(ok: Envelope, clock: ManualClock, ids: Ids) -> None:
    with pytest.raises(Problem):
        page_request(offset="1", cursor="x")
    for page in (
        Page(mode="cursor", next_cursor=None, has_more=False, offset=1),
        Page(mode="offset", limit=1, offset=0, has_more=False, next_cursor="x"),
        Page(mode="none", limit=1),
    ):
        mixed = encode(msgspec.structs.replace(ok, page=page))
        with pytest.raises(Problem) as caught:
            parse(mixed)
        assert caught.value.details["at"] == "$.page"
        assert [check.name for check in conform(mixed).failed] == ["pagination_mode_consistent"]
    for page in (cursor_page(next_cursor="x", limit=5), offset_page(limit=1, offset=0, has_more=True), no_page()):
        assert conform(encode(msgspec.structs.replace(ok, page=page))).ok
    for broken in ({"mode": "cursor", "hasMore": True}, {"mode": "offset", "limit": 1, "hasMore": True}, {}):
        assert refused(changed(ok, page=broken)).row.lafs == "E_VALIDATION_SCHEMA"
    items = [{"id": n, "text": "t" * 40} for n in range(50)]
    listed = success("op", items, page=offset_page(limit=50, offset=0, has_more=False), clock=clock, ids=ids)
    fitted = fit(listed, Budget(max_tokens=500), level="minimal")
    assert isinstance(fitted.page, Page) and isinstance(fitted.result, list)
    assert fitted.page.limit == len(fitted.result) < 50 and fitted.result == items[: len(fitted.result)]
    with pytest.raises(Problem) as caught:
        fit(listed, Budget(max_tokens=60), level="minimal")
    assert caught.value.row.lafs == "E_MVI_BUDGET_EXCEEDED"


# 1.7 Budgets


def test_r39_any_limit_that_is_passed_is_a_violation(ok: Envelope, clock: ManualClock, ids: Ids) -> None:
    assert read_budget({"maxTokens": 5, "maxBytes": 6, "maxItems": 7}) == Budget(5, 6, 7)
    for wrong in ({}, {"maxTokens": 0}, {"maxTokens": "5"}, {"maxTokens": True}, {"other": 1}, []):
        with pytest.raises(Problem) as caught:
            read_budget(wrong)
        assert caught.value.row.lafs == "E_VALIDATION_SCHEMA"
    listed = success("op", [{"id": n} for n in range(200)], clock=clock, ids=ids)
    whole = cost(project(listed, "full"))
    for budget in (Budget(max_tokens=600), Budget(max_bytes=1500), Budget(max_items=4), Budget(10**6, 10**6, 4)):
        assert not within(whole, budget)
        assert within(cost(msgspec.to_builtins(fit(listed, budget))), budget)
    assert fit(listed, Budget(10**6, 10**6, 200)) is listed
    kept = fit(listed, Budget(max_items=4)).result
    assert kept == [{"id": n} for n in range(4)]


@pytest.mark.parametrize("strategy", ["depth_first", "field_priority", "hybrid"])
def test_r40_truncation_keeps_what_matters_and_says_what_it_cut(strategy: Any, clock: ManualClock, ids: Ids) -> None:
    thing = {
        "story": "long " * 400,
        "deep": {"er": {"still": ["x" * 60] * 30}},
        "id": "t1",
        "name": "Thing",
        "code": 7,
    }
    made = success("op", thing, clock=clock, ids=ids)
    fitted = fit(made, Budget(max_tokens=330), strategy=strategy)
    assert isinstance(fitted.result, dict) and isinstance(fitted.extensions, dict)
    assert {"id", "name", "code"} <= set(fitted.result) and fitted.result != thing
    notice = fitted.extensions["x-forestay-budget"]  # D3
    assert notice["method"] == strategy and notice["budget"] == {"maxTokens": 330}
    assert notice["estimated"] == cost(msgspec.to_builtins(fitted)).tokens <= 330
    assert notice["paths"] and all(path.startswith("$.result") for path in notice["paths"])
    assert [warning.code for warning in fitted.meta.warnings or []] == ["E_MVI_BUDGET_TRUNCATED"]
    assert conform(encode(fitted)).ok
    if strategy == "depth_first":
        assert fitted.result.get("deep") != thing["deep"]
    if strategy == "hybrid":
        assert fitted.result["story"].endswith("…")


def test_r41_an_exceeded_budget_is_retryable_and_has_the_figures(clock: ManualClock, ids: Ids) -> None:
    made = success("op", {"a": "b" * 4000}, clock=clock, ids=ids)
    for budget, constraint in ((Budget(max_tokens=20), "maxTokens"), (Budget(max_bytes=20), "maxBytes")):
        with pytest.raises(Problem) as caught:
            fit(made, budget)
        error = caught.value.as_lafs()
        assert (error["code"], error["retryable"], error["retryAfterMs"]) == ("E_MVI_BUDGET_EXCEEDED", True, None)
        details = error["details"]
        assert details["constraint"] == constraint and details["budget"] == budget.as_json()
        assert details["estimatedTokens"] > 1000 and details["excessTokens"] >= 0


def plain_estimate(value: Any, ratio: float, depth: int = 0) -> float:
    """The rule, word by word."""
    import math

    import regex

    if depth > 20:
        return math.inf
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, int | float):
        return max(1, math.ceil(len(repr(value)) / ratio))
    if isinstance(value, str):
        return max(1, math.ceil(len(regex.findall(r"\X", value)) / ratio))
    if isinstance(value, list):
        return 2 + sum(plain_estimate(item, ratio, depth + 1) for item in value) + max(0, len(value) - 1)
    return 2 + sum(
        plain_estimate(key, ratio, 0) + 2 + plain_estimate(item, ratio, depth + 1) for key, item in value.items()
    )


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_r42_the_estimate_is_the_rules_sum(data: st.DataObject) -> None:
    from tests.envelope.strategies import trees

    tree = data.draw(trees(60))
    for family, ratio in (("default", 4.0), ("gpt", 4.0), ("claude", 3.5), ("llama", 3.8)):
        assert estimate(tree, family) == plain_estimate(tree, ratio)  # type: ignore[arg-type]


def test_r42_depth_cycles_graphemes_and_shared_parts() -> None:
    family, flags = "👩\u200d👩\u200d👧", "🇩🇪🇫🇷"
    assert (graphemes(family), graphemes(flags), graphemes("e\u0301"), graphemes("\r\n"), graphemes("")) == (
        1,
        2,
        1,
        1,
        0,
    )
    nested: Any = 1
    for _ in range(20):
        nested = [nested]
    assert estimate(nested) == 41 and estimate([nested]) == float("inf")
    around: list[Any] = [1]
    around.append(around)
    assert estimate(around) == 2 + 1 + 1 + 1
    shared: Any = ["x"]
    for _ in range(18):
        shared = [shared, shared]
    assert estimate(shared) == plain_estimate_of_doubling(18)
    assert estimate(10**5000) == -(-5001 // 4)
    assert Estimator().tokens("") == 1


def plain_estimate_of_doubling(times: int) -> int:
    cost = 3
    for _ in range(times):
        cost = 2 * cost + 3
    return cost

"""B1 to B4: what is built is valid, plain and nobody else's."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from forestay.envelope import decode, encode, failure, success
from forestay.kernel import Ids, ManualClock, Problem


class Book(msgspec.Struct):
    id: str
    tags: set[str]
    when: datetime.datetime


def test_b3_a_result_is_plain_json_and_a_copy(clock: ManualClock, ids: Ids) -> None:
    when = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    held: dict[Any, Any] = {"books": [Book("b1", {"a"}, when)], 3: (1, 2), "nan": float("nan"), "raw": b"xy"}
    made = success("op", held, clock=clock, ids=ids)
    held["books"].append("later")
    plain = {"id": "b1", "tags": ["a"], "when": "2026-01-01T00:00:00Z"}
    assert made.result == {"books": [plain], "3": [1, 2], "nan": None, "raw": "eHk="}
    assert decode(encode(made)) == made


@pytest.mark.parametrize("result", ["text", 3, 2.5, True, object(), {"a": object()}, {"a": "\ud800"}])
def test_a_result_that_no_envelope_can_carry_is_refused(result: Any, clock: ManualClock, ids: Ids) -> None:
    with pytest.raises(Problem) as caught:
        success("op", result, clock=clock, ids=ids)
    assert caught.value.details["at"] == "$.result" and caught.value.details["fix"]


def test_a_result_that_contains_itself_is_refused(clock: ManualClock, ids: Ids) -> None:
    around: dict[str, Any] = {}
    around["me"] = around
    with pytest.raises(Problem) as caught:
        success("op", around, clock=clock, ids=ids)
    assert "cycle" in caught.value.details["reason"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": ""},
        {"operation": "x" * 129},
        {"request_id": "ab"},
        {"request_id": "x" * 129},
        {"session_id": ""},
        {"session_id": "x" * 257},
        {"context_version": -1},
    ],
)
def test_meta_outside_its_bounds_is_refused(wrong: dict[str, Any], clock: ManualClock, ids: Ids) -> None:
    options = {"operation": "op", **wrong}
    with pytest.raises(Problem) as caught:
        success(options.pop("operation"), None, clock=clock, ids=ids, **options)
    assert caught.value.details["at"].startswith("$._meta.")


def test_b4_a_negative_wait_is_no_wait(clock: ManualClock, ids: Ids) -> None:
    made = failure(Problem("rate_limited", "Busy.", retry_after_ms=-5), "op", clock=clock, ids=ids)
    assert decode(encode(made)).error.retry_after_ms == 0  # type: ignore[union-attr]

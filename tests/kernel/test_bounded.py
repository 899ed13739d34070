"""A cut is marked with what there was and what was kept (B1 to B3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel.problems import Problem
from forestay.kernel.text_bound import Bounds, bounded, cut
from tests.kernel.test_canonical import values

SMALL = Bounds(text=10, total=60, items=3, depth=3)


@given(values)
def test_b1_what_fits_is_the_same_object(value: Any) -> None:
    assert bounded(value, Bounds(text=10**6, total=10**7, items=10**5, depth=500)) is value


def test_b2_a_cut_tells_what_there_was() -> None:
    assert cut("x" * 50, 10) == "xxxxxxxxxx… [cut: the first 10 of 50 characters]"
    assert bounded({"a": list(range(9))}, SMALL) == {"a": [0, 1, 2, "[cut: 3 of 9 elements]"]}
    assert bounded(dict.fromkeys("abcdef", 1), SMALL) == {"a": 1, "b": 1, "c": 1, "…": "[cut: 3 of 6 members]"}
    assert bounded([[[["deep"]]]], SMALL) == [[["[cut: nested deeper than 3]"]]]


def test_b3_a_cut_ends_between_two_words() -> None:
    assert cut("say sk-live-0123456789abcdef", 20) == "say … [cut: the first 4 of 28 characters]"


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_whatever_comes_is_small_afterwards(value: Any) -> None:
    assert len(str(bounded(value, SMALL))) < 3_000


@pytest.mark.parametrize("key", ["message", "details"])
def test_a_problem_cuts_its_texts_before_it_looks_for_secrets(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr("forestay.kernel.redaction.redact_text", lambda text: read.append(len(text)) or text)
    monkeypatch.setattr("forestay.kernel.problems.redact_text", lambda text: read.append(len(text)) or text)
    huge = "E" * 5_000_000
    problem = Problem("internal", huge if key == "message" else "x", **({} if key == "message" else {"what": huge}))
    problem.as_lafs()
    assert sum(read) < 400_000

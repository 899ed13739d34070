"""Cursors survive nothing but themselves (G2), and pages say what they are (G1)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.envelope.pages import MAX_CURSOR, Cursors, cursor_page, page_request, slice_by_offset
from forestay.kernel import Problem
from tests.envelope.strategies import trees

KEY = b"a key of thirty-two bytes, indeed"
CURSORS = Cursors(KEY, "books?author=1")


@given(trees(8))
@settings(deadline=None)
def test_g2_a_cursor_opens_to_what_was_sealed(position: Any) -> None:
    try:
        cursor = CURSORS.seal(position)
    except Problem as problem:
        assert problem.key == "out_of_range"
        return
    assert CURSORS.open(cursor) == position and len(cursor) <= MAX_CURSOR


@given(st.integers(), st.data())
@settings(deadline=None, max_examples=150)
def test_g2_any_change_to_a_cursor_is_refused(position: int, data: st.DataObject) -> None:
    cursor = CURSORS.seal({"after": position})
    place = data.draw(st.integers(0, len(cursor)))
    alphabet = st.sampled_from("ABCxyz019-_=. é\n")
    kind = data.draw(st.sampled_from(["replace", "insert", "drop", "cut"]))
    if kind == "insert":
        other = cursor[:place] + data.draw(alphabet) + cursor[place:]
    elif kind == "drop":
        other = cursor[:place] + cursor[place + 1 :]
    elif kind == "cut":
        other = cursor[:place]
    else:
        other = cursor[:place] + data.draw(alphabet) + cursor[place + 1 :]
    if other == cursor:
        return
    with pytest.raises(Problem) as caught:
        CURSORS.open(other)
    assert caught.value.details["at"] == "$.cursor"


@pytest.mark.parametrize("other", [Cursors(KEY, "books?author=2"), Cursors(KEY + b"!", "books?author=1")])
def test_g2_a_cursor_of_another_list_or_another_key_is_refused(other: Cursors) -> None:
    with pytest.raises(Problem):
        other.open(CURSORS.seal(1))


def test_g2_the_last_characters_unused_bits_cannot_be_changed() -> None:
    for position in range(40):
        cursor = CURSORS.seal({"n": "x" * position})
        for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
            if last != cursor[-1]:
                with pytest.raises(Problem):
                    CURSORS.open(cursor[:-1] + last)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(Problem):
        Cursors(b"short", "x")


@given(st.integers(0, 50), st.integers(1, 20))
def test_g1_pages_by_offset_cover_a_list_once(count: int, limit: int) -> None:
    items, seen, offset = list(range(count)), [], 0
    while True:
        part, page = slice_by_offset(items, page_request(limit, offset))
        seen += part
        assert page.total == count and page.offset == offset
        if not page.has_more:
            break
        offset += len(part)
    assert seen == items


def test_g1_a_page_by_cursor_has_more_when_there_is_a_next() -> None:
    assert cursor_page(next_cursor=None).has_more is False and cursor_page(next_cursor="x").has_more is True


@pytest.mark.parametrize("value", ["", "x", "1.5", "-1", "0", "1001", "9" * 30, "٣", None.__class__, True, 1.0, [1]])
def test_a_limit_that_is_none_is_refused_with_the_range(value: Any) -> None:
    with pytest.raises(Problem) as caught:
        page_request(limit=value)
    assert (caught.value.details["least"], caught.value.details["most"]) == (1, 1000)

"""The words near each other in meaning: each line is found by halving, and says what the script wrote."""

from __future__ import annotations

import pytest

from forestay.models import STOP, related, stem
from forestay.models.related_words import TABLE

LINES = TABLE.read_text("utf-8").splitlines()[1:]


def test_every_line_is_found_and_says_how_near_its_words_are() -> None:
    assert len(LINES) > 9000
    for line in LINES:
        name, *others = line.split()
        found = related(name)
        assert [f"{other}{round(9 * near)}" for other, near in found] == others
        assert name not in STOP and name not in dict(found) and len(dict(found)) == len(found) > 0
        assert all(0 < near <= 1 for _, near in found)
        assert [near for _, near in found] == sorted((near for _, near in found), reverse=True)


def test_the_lines_are_in_order() -> None:
    names = [line.partition(" ")[0].encode() for line in LINES]
    assert names == sorted(set(names))


@pytest.mark.parametrize(
    "word", ["", "a", "#", "zzzz", "aaaa", "quay7", "größe", "船", "buys and sells", LINES[0][:2] + "~"]
)
def test_a_word_that_is_not_in_it_is_near_to_nothing(word: str) -> None:
    assert related(word) == ()


@pytest.mark.parametrize(("one", "other"), [("dog", "puppy"), ("rent", "landlord"), ("password", "login")])
def test_words_that_go_together_are_near(one: str, other: str) -> None:
    assert stem(other) in dict(related(stem(one)))

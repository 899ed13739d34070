"""The families of words: each finds the others, examples find their kind, and nothing in them is idle."""

from __future__ import annotations

import pytest

from forestay.models import STOP, alike, answering, further, stem
from forestay.models.vocabulary import _FAMILIES, _table

LINES = _FAMILIES.read_text("utf-8").splitlines()


def test_the_families_stand_in_order_and_none_is_idle() -> None:
    assert sorted(set(LINES)) == LINES
    for line in LINES:
        named = line.replace(" > ", " ").split()
        assert len(set(named)) == len(named) > 1, line
        assert all(word.isalpha() and word.islower() for word in named), line


def test_who_finds_is_found() -> None:
    for word, others in _table().items():
        assert word not in others
        assert word not in STOP and STOP.isdisjoint(others)
        assert all(word in alike(other) for other in others), word


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("purchase", "bought"),
        ("choice", "selected"),
        ("transport", "tram"),
        ("tram", "transport"),
        ("picking", "chosen"),
    ],
)
def test_another_word_for_it(asked: str, said: str) -> None:
    assert stem(said) in alike(stem(asked))


def test_a_synonym_of_a_synonym_is_neither_the_word_nor_its_synonym() -> None:
    found = 0
    for word, others in _table().items():
        beyond = further(word)
        assert word not in beyond and set(others).isdisjoint(beyond) and len(beyond) <= 25
        assert all(any(one in alike(other) for other in others) for one in beyond)
        found += bool(beyond)
    assert found > 1000


def test_an_example_is_not_another_one() -> None:
    assert stem("bus") not in alike(stem("tram"))
    assert alike("harrow") == ()


def test_a_way_of_asking_says_what_answers_hold() -> None:
    assert any(stem("weeks") in family for family in answering("For how long was she away?"))
    assert answering("Who was away?") == []

"""The gist of a question: what plain arithmetic on its words' vectors says, computed for all words at once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.models import STOP, gist, stem, words
from forestay.models.word_vectors import DIMENSIONS, MIDDLE, TABLE

_HEAD, _, _DATA = TABLE.read_bytes().partition(b"\n")
STEMS = _HEAD.decode().split()


def _vector(word: str) -> list[int]:
    place = STEMS.index(word)
    return [_DATA[column * len(STEMS) + place] - MIDDLE for column in range(DIMENSIONS)]


def test_the_table_has_a_vector_for_each_stem() -> None:
    assert len(STEMS) == len(set(STEMS)) > 9000 and sorted(STEMS) == STEMS
    assert len(_DATA) == DIMENSIONS * len(STEMS) and max(_DATA) <= 2 * MIDDLE
    assert STOP.isdisjoint(STEMS)


@given(st.lists(st.sampled_from(STEMS[::97]), min_size=1, max_size=6), st.sampled_from(STEMS[::53]))
def test_the_likeness_of_a_word_is_the_product_of_two_vectors(asked: list[str], word: str) -> None:
    vector = [sum(column) for column in zip(*map(_vector, asked), strict=True)]
    found = gist(asked)
    if found is None:
        assert math.hypot(*vector) / math.sqrt(len(asked)) <= 40
        return
    longest = max(map(abs, vector))
    rounded = [round(3 * value / longest) for value in vector]
    wanted = sum(map(int.__mul__, rounded, _vector(word)))
    assert found.likeness([word]) == wanted
    assert found.likeness([word, word]) == pytest.approx(2 * wanted / math.sqrt(2))
    assert 0 < found.clear <= 1


def test_what_means_alike_is_more_alike_than_what_does_not() -> None:
    asked = gist(words("Who looks after my dog when I travel?"))
    assert asked is not None
    kennel = asked.likeness(words("The kennel takes pets during your holiday."))
    assert kennel > 0 and kennel > asked.likeness(words("The server writes its log to a disk."))
    assert asked.likeness(["zzzz"]) == asked.likeness([]) == 0.0


@pytest.mark.parametrize("question", ["", "zzzz 42", "What is it?", "What else is there to know?"])
def test_a_question_about_nothing_has_at_most_a_faint_gist(question: str) -> None:
    found = gist(words(question))
    assert found is None or found.clear < 0.25


def test_a_stem_is_found_under_its_own_name() -> None:
    assert stem("puppies") in STEMS and stem("landlord") in STEMS

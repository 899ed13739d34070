"""How far an embedder is believed: by the words of a language that it knows, not by its own likenesses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forestay.models import believed, embed
from forestay.models.belief import PAIRS, found_first


class Knowing:
    """An embedder that knows some of the pairs: both words of a pair are one direction."""

    def __init__(self, name: str, known: Sequence[Sequence[str]]) -> None:
        self.name = name
        self.places = {word: place for place, pair in enumerate(known) for word in pair}
        self.dimension = len(known) + 1

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [
            [float(self.places.get(text, len(self.places)) == at) for at in range(self.dimension)] for text in texts
        ]


@pytest.mark.parametrize("language", list(PAIRS))
def test_no_pair_can_be_found_by_spelling(language: str) -> None:
    size = 2 if language in ("zh", "ja") else 3

    def runs(word: str) -> set[str]:
        return {word.lower()[at : at + size] for at in range(len(word) - size + 1)}

    for one, other in PAIRS[language]:
        assert not runs(one) & runs(other), (one, other)
    words = [word for pair in PAIRS[language] for word in pair]
    assert len(set(words)) == len(words)


def test_spelling_is_hardly_believed() -> None:
    assert believed(embed.open("hashed")) < 0.01


@pytest.mark.parametrize("language", list(PAIRS))
def test_an_embedder_that_knows_one_language_is_believed(language: str) -> None:
    assert believed(Knowing(f"knows {language}", PAIRS[language])) == 1.0


def test_an_embedder_is_believed_as_far_as_it_knows() -> None:
    half = PAIRS["en"][: len(PAIRS["en"]) * 2 // 5]
    some = Knowing("knows some", half)
    assert found_first(some, PAIRS["en"]) == pytest.approx(0.4, abs=0.03)
    assert 0.3 < believed(some) < 0.6

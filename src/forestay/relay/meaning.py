"""Likeness in meaning beside likeness in words: what an embedder adds to the ranking.

Invariants:

- M1  What words find stays found: where a fact says the question in its words, likeness in meaning counts half of that,
      and hardly anything for the fact itself. Where no fact does, it counts more.
- M2  An embedder counts as far as it is believed (`models/belief.py`): one that compares spellings comes behind
      all that words find.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from forestay.models import believed, words
from forestay.relay.ranking import SPEAKER, is_named, leans, lends
from forestay.relay.vectors import Vectors
from forestay.relay.warm import Warm

_LOOKED_AT = 200  # facts
_MOST = 0.5  # what the likest fact gains, where the best by words has 1 and says all of the question
_BESIDE_WORDS = 0.85  # the part of it that counts only as far as words are missing
_SHARP = 5
_STANDS_IN = 0.01  # an embedder that is believed less comes behind all that words find
_BEHIND = 0.1  # of the least that words found: novelty and recency do not make that up


class Near(msgspec.Struct, frozen=True):
    """The facts that are like a text in meaning, the most alike first, and how far the embedder is believed."""

    likeness: Mapping[int, float] = {}
    belief: float = 1.0

    @property
    def stands_in(self) -> bool:
        """Whether the embedder is not believed: what it finds comes behind the rest, and lends nothing (M2)."""
        return self.belief < _STANDS_IN

    def add_to(
        self, warm: Warm, text: str, relevance: dict[int, float], questions: int, cold: bool, *, missing: float
    ) -> None:
        """Adds likeness in meaning to `text` to `relevance`, which is likeness in words (M1, M2).

        It counts the more, the more of the text is `missing` in the best fact by words. The vector of a text of several
        `questions` means none of them, so it counts the less the more there are.
        """
        most = self.belief * (_MOST + missing) / max(1, questions) ** 2
        if self.stands_in and relevance:
            behind = _BEHIND * min(relevance.values())
            for number, likeness in self.likeness.items():
                if number not in relevance and (cold or number in warm.index):
                    relevance[number] = min(most, behind) * likeness
            return
        for number, likeness in _scaled(warm, self.likeness, words(text)).items():
            if cold or number in warm.index:
                held = relevance.get(number, 0.0)
                relevance[number] = held + most * likeness * (1 - _BESIDE_WORDS * min(1.0, held))


NOWHERE = Near()


def near_to(vectors: Vectors | None, text: str, without: AbstractSet[int] = frozenset()) -> Near:
    """The facts that are like `text` in meaning, without those in `without`. Call it in a thread."""
    found = {} if vectors is None else vectors.near(text, _LOOKED_AT, without)
    return NOWHERE if vectors is None or not found else Near(found, believed(vectors.embedder))


def _scaled(warm: Warm, likeness: Mapping[int, float], asked: Collection[str]) -> dict[int, float]:
    """From 0 for the least to 1 for the best; in talk a line leans on those around it, and counts by who says it.

    That holds for a line that is itself like nothing asked for: many an answer says little without its question.
    """
    shared, facts = dict(likeness), warm.facts
    lowest = min(likeness.values())
    for number, own in likeness.items():
        fact = facts[number]
        for step, weight in lends(fact) if fact.talk else ():
            place = number + step
            if 0 <= place < len(facts) and place in warm.index and leans(facts[place], fact):
                shared[place] = shared.get(place, lowest) + weight * own
    for number in shared if warm.speakers else ():
        if is_named(warm.facts[number], asked):
            shared[number] *= SPEAKER
    best, least = max(shared.values()), min(shared.values())
    span = best - least
    return {number: ((own - least) / span if span else 1.0) ** _SHARP for number, own in shared.items()}

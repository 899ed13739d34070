"""The meaning of a whole question, as the sum of its words' vectors: single words can mislead.

`word_vectors.bin` has a vector of 96 numbers from 0 to 62 for each of 9,600 stems, learned from a sentence model
(`scripts/word_vectors.py`). Its first line lists the stems. Then each dimension follows, with one byte per stem.

The similarity of a question to every word is computed at once, in plain Python: a dimension is one large integer with
16 bits per word, so that adding two of them adds all words. A question is rounded to whole numbers from -3 to 3, so no
sum exceeds its 16 bits.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("word_vectors.bin")
DIMENSIONS = 96
MIDDLE = 31  # stands for 0
_MOST = 3
_FAINT, _CLEAR = 40, 60  # the lengths of a vector without a clear topic, and of one with a clear topic


class _Vectors(NamedTuple):
    places: dict[str, int]
    columns: list[bytes]
    lanes: list[int]  # the columns with 16 bits per word
    ones: int


class Gist:
    """A question's similarity to each word; `clear`, 0 to 1, says how clear its topic is (`know` alone has none)."""

    def __init__(self, places: dict[str, int], sums: array[int], zero: int, clear: float) -> None:
        self._places, self._sums, self._zero = places, sums, zero
        self.clear = clear

    def likeness(self, words: Iterable[str]) -> float:
        """Return the similarity of a text of these stems to the question; above 0 for a similar topic."""
        get, sums = self._places.get, self._sums
        found = [sums[place] for word in words if (place := get(word)) is not None]
        return (sum(found) - self._zero * len(found)) / math.sqrt(len(found)) if found else 0.0


@cache
def _vectors() -> _Vectors:
    head, _, data = TABLE.read_bytes().partition(b"\n")
    stems = head.decode().split()
    count = len(stems)
    columns = [data[at : at + count] for at in range(0, count * DIMENSIONS, count)]
    places = {stem: place for place, stem in enumerate(stems)}
    return _Vectors(places, columns, [_lanes(column) for column in columns], _lanes(b"\x01" * count))


def _lanes(column: bytes) -> int:
    wide = bytearray(2 * len(column))
    wide[::2] = column
    return int.from_bytes(wide, "little")


def gist(words: Iterable[str]) -> Gist | None:
    """Return the topic of a question of these stems; None when its words have no clear topic."""
    known = _vectors()
    asked = [place for word in words if (place := known.places.get(word)) is not None]
    if not asked:
        return None
    vector = [sum([column[place] for place in asked]) - MIDDLE * len(asked) for column in known.columns]
    length = math.hypot(*vector) / math.sqrt(len(asked))
    if length <= _FAINT:
        return None
    longest = max(map(abs, vector))
    steps = [round(_MOST * value / longest) for value in vector]
    sums = [0] * (2 * _MOST + 1)
    for step, lane in zip(steps, known.lanes, strict=True):
        if step:
            sums[step] += lane  # a negative step counts from the end
    total = sum(step * sums[step] for step in range(1, _MOST + 1))
    # 62 - x represents -x, so that no intermediate result falls below 0.
    below = sum(step * sums[-step] for step in range(1, _MOST + 1))
    total += 2 * MIDDLE * -sum(step for step in steps if step < 0) * known.ones - below
    made = array("H")
    made.frombytes(total.to_bytes(2 * len(known.places), "little"))
    if sys.byteorder == "big":
        made.byteswap()
    return Gist(known.places, made, MIDDLE * sum(map(abs, steps)), min(1.0, (length - _FAINT) / (_CLEAR - _FAINT)))

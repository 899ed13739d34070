"""Finds the rows that are most similar to a vector: compares all rows, or when they are many, their signs first.

Invariants:

- Q1  Up to 50,000 rows the answer is exact.
- Q2  Beyond that, each row is reduced to its signs, one bit per number. The 4,000 rows whose signs agree most with the
      question's are compared number by number; only they are read.
- Q3  The best row comes first; of equal rows, the earlier one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

EXACT = 50_000
_COMPARED = 4000
_BLOCK = 16_384  # rows at a time, so that they stay in the processor's cache
_WORD = 8  # bytes of signs compared at once


def nearest(rows: Sequence[Any], asked: Sequence[float], limit: int, without: AbstractSet[int]) -> dict[int, float]:
    """Return the numbers of the best rows with their similarity, in plain Python."""
    scores = ((sum(map(float.__mul__, row, asked)), -place) for place, row in enumerate(rows) if place not in without)
    return {-place: score for score, place in heapq.nlargest(limit, (item for item in scores if item[0] > 0.0))}


class Nearest:
    """Finds the best rows with numpy, and keeps the rows' signs between questions."""

    def __init__(self, numpy: Any) -> None:
        self._np = numpy
        self._signs: list[Any] = []  # in blocks
        self._signed = 0

    def find(self, rows: Any, asked: Any, limit: int, without: AbstractSet[int]) -> dict[int, float]:
        np = self._np
        if len(rows) <= EXACT:
            return self._ordered(np.arange(len(rows)), rows @ asked, limit, without)
        apart = self._apart(rows, asked)
        if without:
            apart[np.fromiter((number for number in without if number < len(rows)), dtype=np.int64)] = np.iinfo(
                apart.dtype
            ).max
        looked = np.sort(np.argpartition(apart, _COMPARED)[:_COMPARED])
        return self._ordered(looked, rows[looked] @ asked, limit, without)

    def forget(self, count: int = 0) -> None:
        """Drop the signs of the rows from `count` on, because those rows change."""
        del self._signs[count // _BLOCK :]
        self._signed = min(self._signed, count // _BLOCK * _BLOCK)

    def sign(self, rows: Any) -> None:
        """Compute the signs of new rows."""
        np = self._np
        if len(rows) <= EXACT or self._signed == len(rows):
            return
        self.forget(self._signed)  # the last block may have been incomplete
        for begin in range(self._signed, len(rows), _BLOCK):
            bits = np.packbits(rows[begin : begin + _BLOCK] > 0, axis=1)
            wide = np.zeros((len(bits), -(-bits.shape[1] // _WORD) * _WORD), dtype=np.uint8)
            wide[:, : bits.shape[1]] = bits
            self._signs.append(np.ascontiguousarray(wide.view(np.uint64).T))
        self._signed = len(rows)

    def _apart(self, rows: Any, asked: Any) -> Any:
        """Return for each row how many of its signs differ from the question's."""
        np = self._np
        self.sign(rows)
        bits = np.packbits(asked > 0)
        wide = np.zeros(-(-len(bits) // _WORD) * _WORD, dtype=np.uint8)
        wide[: len(bits)] = bits
        words = wide.view(np.uint64)
        apart = np.zeros(len(rows), dtype=np.uint16)
        for place, block in enumerate(self._signs):
            part = apart[place * _BLOCK : (place + 1) * _BLOCK]
            for column, word in zip(block, words, strict=True):
                part += np.bitwise_count(column ^ word)
        return apart

    def _ordered(self, numbers: Any, scores: Any, limit: int, without: AbstractSet[int]) -> dict[int, float]:
        np = self._np
        wanted = min(len(scores), limit + len(without))
        if wanted < len(scores):
            least = np.partition(scores, len(scores) - wanted)[len(scores) - wanted] if wanted else np.inf
            kept = np.flatnonzero(scores >= least)
            numbers, scores = numbers[kept], scores[kept]
        order = np.argsort(-scores, kind="stable")
        best = zip(numbers[order].tolist(), scores[order].tolist(), strict=True)
        found = ((number, score) for number, score in best if score > 0.0 and number not in without)
        return dict(item for item, _ in zip(found, range(limit), strict=False))

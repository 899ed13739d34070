"""The rows that are most like a vector: all of them compared, or where they are many, their signs first.

Invariants:

- Q1  Up to 50,000 rows the answer is exact.
- Q2  Beyond that a row is its signs, a bit for each number: the 4,000 rows whose signs agree most with those of the
      question are compared number by number. Only they are read; the signs take an eighth of a byte for each number.
- Q3  The order is that of likeness, the earlier row first among equals.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

EXACT = 50_000
_COMPARED = 4000
_BLOCK = 16_384  # rows at a time: what is worked on stays near the processor
_WORD = 8  # bytes of signs that are compared at once


def nearest(rows: Sequence[Any], asked: Sequence[float], limit: int, without: AbstractSet[int]) -> dict[int, float]:
    """In plain Python: the number of each of the best rows, and its likeness."""
    scores = ((sum(map(float.__mul__, row, asked)), -place) for place, row in enumerate(rows) if place not in without)
    return {-place: score for score, place in heapq.nlargest(limit, (item for item in scores if item[0] > 0.0))}


class Nearest:
    """The same with numpy; `signs` are kept from one question to the next."""

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
        """The signs of rows from `count` on are no longer true."""
        del self._signs[count // _BLOCK :]
        self._signed = min(self._signed, count // _BLOCK * _BLOCK)

    def sign(self, rows: Any) -> None:
        """Takes down the signs of rows that came since."""
        np = self._np
        if len(rows) <= EXACT or self._signed == len(rows):
            return
        self.forget(self._signed)  # the last block may have been a part
        for begin in range(self._signed, len(rows), _BLOCK):
            bits = np.packbits(rows[begin : begin + _BLOCK] > 0, axis=1)
            wide = np.zeros((len(bits), -(-bits.shape[1] // _WORD) * _WORD), dtype=np.uint8)
            wide[:, : bits.shape[1]] = bits
            self._signs.append(np.ascontiguousarray(wide.view(np.uint64).T))
        self._signed = len(rows)

    def _apart(self, rows: Any, asked: Any) -> Any:
        """For each row, in how many numbers its sign is another one."""
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

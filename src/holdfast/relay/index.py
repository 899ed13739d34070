"""The inverted index over a session's facts: built as facts come, kept in memory, rebuilt from the ledger.

Chosen by measurement over SQLite FTS5, tantivy and bm25s (`docs/explanation/relay.md`): those are faster at one of
building and asking, but pay for each small addition with a commit, and each window of a dispatch adds a few facts.

Invariants:

- N1  `search` returns what scoring every fact with BM25 would return, best first, earlier fact first on a tie; only a
      word that stands in more than a sixteenth of many facts adds to what rarer words found and finds nothing itself.
- N2  A fact can be found by any word of its own text as soon as `add` returns.
- N3  `move` takes facts out of one index and puts them into another: what is left scores as if they had never been
      there, and they are found in the other one by the same words.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

K1 = 1.2
B = 0.75
_TF_BITS = 6
_TF_MAX = (1 << _TF_BITS) - 1
_CONTEXT_WEIGHT = 2  # a word of the heading counts half a word of the fact (weights are in quarters)
_LENGTH_MAX = 255
_COMMON = 512  # postings longer than this are worth avoiding


class Index:
    """BM25 over facts numbered 0, 1, 2, …: the words of a fact, and at half weight those of its heading."""

    def __init__(self) -> None:
        self._terms: dict[str, array[int]] = {}
        self._lengths: array[int] = array("B")
        self._total = 0
        self._moved: set[int] = set()  # numbers below len(_lengths) that are not, or no longer, here

    def __len__(self) -> int:
        """How many facts are in it."""
        return len(self._lengths) - len(self._moved)

    @property
    def vocabulary(self) -> int:
        return len(self._terms)

    def frequency(self, term: str) -> int:
        """How many facts hold `term`."""
        return len(self._terms.get(term, ()))

    def add(self, words: Sequence[str], context: Iterable[str] = ()) -> int:
        """Index the next fact; its number is returned."""
        number = len(self._lengths)
        counts = dict.fromkeys(words, 4)
        if len(counts) < len(words):
            counts = dict.fromkeys(words, 0)
            for word in words:
                counts[word] += 4
        for word in context:
            counts[word] = counts.get(word, 0) + _CONTEXT_WEIGHT
        packed = number << _TF_BITS
        terms = self._terms
        for word, count in counts.items():
            posting = terms.get(word)
            if posting is None:
                posting = terms[word] = array("I")
            posting.append(packed | (count if count < _TF_MAX else _TF_MAX))
        length = min(len(words), _LENGTH_MAX)
        self._lengths.append(length)
        self._total += length
        return number

    def move(self, numbers: Iterable[int], to: Index) -> None:
        """N3. A number that is not here is left alone."""
        moving = {number for number in numbers if number < len(self._lengths) and number not in self._moved}
        if not moving:
            return
        for term, posting in list(self._terms.items()):
            leaving = [packed for packed in posting if packed >> _TF_BITS in moving]
            if not leaving:
                continue
            to._terms[term] = array("I", sorted([*to._terms.get(term, ()), *leaving]))
            if len(leaving) == len(posting):
                del self._terms[term]
            else:
                self._terms[term] = array("I", [packed for packed in posting if packed >> _TF_BITS not in moving])
        missing = max(moving) + 1 - len(to._lengths)
        if missing > 0:
            to._moved.update(range(len(to._lengths), len(to._lengths) + missing))
            to._lengths.extend([0] * missing)
        for number in moving:
            length = self._lengths[number]
            to._lengths[number] = length
            to._total += length
            self._total -= length
        to._moved -= moving
        self._moved |= moving

    def __contains__(self, number: int) -> bool:
        return number < len(self._lengths) and number not in self._moved

    def holders(self, term: str, numbers: Sequence[int]) -> list[int]:
        """Which of `numbers` (ascending) hold `term` in their own text."""
        posting = self._terms.get(term)
        if not posting:
            return []
        found: list[int] = []
        at, end = 0, len(posting)
        for number in numbers:
            at = bisect_left(posting, number << _TF_BITS, at)
            if at == end:
                break
            if posting[at] >> _TF_BITS == number and posting[at] & _TF_MAX >= 4:
                found.append(number)
        return found

    def idf(self, term: str) -> float:
        found = self.frequency(term)
        return math.log(1 + (len(self) - found + 0.5) / (found + 0.5)) if found else 0.0

    def search(self, query: Mapping[str, float], limit: int) -> list[tuple[int, float]]:
        """The `limit` best facts for the weighted terms of `query` (N1)."""
        terms = [
            (self.idf(term) * weight, posting)
            for term, weight in query.items()
            if weight > 0 and (posting := self._terms.get(term))
        ]
        if not terms or limit <= 0:
            return []
        # Rare terms first: they decide which facts can still win, so that common ones are only looked up (MaxScore).
        terms.sort(key=lambda item: len(item[1]))
        rest = sum(value for value, _ in terms) * (K1 + 1)
        common = max(_COMMON, len(self) >> 4)
        norms = self._norms()
        scores: dict[int, float] = {}
        for done, (value, posting) in enumerate(terms):
            if done and len(posting) > _COMMON:
                floor = heapq.nlargest(limit, scores.values())[-1] if len(scores) >= limit else 0.0
                if floor > rest or len(posting) > common:
                    self._look_up(terms[done:], scores, floor - rest, norms)
                    break
            self._scan(value, posting, scores, norms)
            rest -= value * (K1 + 1)
        best = heapq.nsmallest(limit, [(-score, number) for number, score in scores.items()])
        return [(number, -score) for score, number in best]

    def _norms(self) -> list[float]:
        average = self._total / len(self) or 1.0
        return [4 * K1 * (1 - B + B * length / average) for length in range(_LENGTH_MAX + 1)]

    def _scan(self, value: float, posting: array[int], scores: dict[int, float], norms: list[float]) -> None:
        lengths, get, gain = self._lengths, scores.get, value * (K1 + 1)
        for packed in posting:
            number = packed >> _TF_BITS
            count = packed & _TF_MAX
            scores[number] = get(number, 0.0) + gain * count / (count + norms[lengths[number]])

    def _look_up(
        self, terms: Sequence[tuple[float, array[int]]], scores: dict[int, float], least: float, norms: list[float]
    ) -> None:
        """Add the common terms to the facts whose score can still win, and forget the others."""
        lengths = self._lengths
        alive = sorted(number for number, score in scores.items() if score >= least)
        kept = {number: scores[number] for number in alive}
        for value, posting in terms:
            at, end, gain = 0, len(posting), value * (K1 + 1)
            for number in alive:
                at = bisect_left(posting, number << _TF_BITS, at)
                if at == end:
                    break
                if posting[at] >> _TF_BITS == number:
                    count = posting[at] & _TF_MAX
                    kept[number] += gain * count / (count + norms[lengths[number]])
        scores.clear()
        scores.update(kept)

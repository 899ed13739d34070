"""The inverted index over a session's facts: built as facts come, kept in memory, rebuilt from the ledger.

Chosen by measurement over SQLite FTS5, tantivy and bm25s (`docs/explanation/relay.md`): those are faster at one of
building and asking, but pay for each small addition with a commit, and each window of a dispatch adds a few facts.

Invariants:

- N1  `search` returns what scoring every fact with BM25 would return, best first, earlier fact first on a tie; only a
      word that stands in more than a sixteenth of many facts adds to what rarer words found and finds nothing itself.
- N2  A fact can be found by any word of its own text as soon as `add` returns.
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

    def __len__(self) -> int:
        return len(self._lengths)

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
        return math.log(1 + (len(self._lengths) - found + 0.5) / (found + 0.5)) if found else 0.0

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
        common = max(_COMMON, len(self._lengths) >> 4)
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
        average = self._total / len(self._lengths) or 1.0
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

"""The inverted index over a session's facts: built as facts come, kept in memory, rebuilt from the ledger.

Chosen by measurement over SQLite FTS5, tantivy and bm25s (`docs/explanation/relay.md`): those are faster at one of
building and asking, but pay for each small addition with a commit, and each window of a dispatch adds a few facts.

Invariants:

- N1  `search` returns what scoring every fact with BM25 would return, best first, earlier fact first on a tie; only a
      word that stands in more than a sixteenth of many facts finds nothing itself: it adds to the best 2,000 facts
      that rarer words found.
- N2  A fact can be found by any word of its own text as soon as `add` returns.
- N3  `move` takes facts out of one index and puts them into another: what is left scores as if they had never been
      there, and they are found in the other one by the same words.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

K1 = 0.9
B = 0.4
_TF_BITS = 6
_TF_MAX = (1 << _TF_BITS) - 1
_ONCE = 4  # what a word of the fact counts (in quarters)
_CONTEXT_WEIGHT = 2  # a word of the heading counts half of it
_LENGTH_MAX = 255
_COMMON = 512  # postings longer than this are worth avoiding
_LOOKED = 2000  # so many of the facts that rarer words found are looked up for common ones
_STRIDE = 8  # to look one fact up costs as much as to walk over so many postings


class _Term(NamedTuple):
    """A word of a query: its weight, the most that a fact can gain by it, and who holds it."""

    gain: float
    most: float
    posting: array[int]
    word: str


class Index:
    """BM25 over facts numbered 0, 1, 2, …: the words of a fact, and at half weight those of its heading."""

    def __init__(self) -> None:
        self._terms: dict[str, array[int]] = {}
        self._lengths: array[int] = array("B")
        self._total = 0
        self._tops: dict[str, int] = {}  # the highest count of a word in a fact, where it is more than once
        self._moved: set[int] = set()  # numbers below len(_lengths) that are not, or no longer, here
        # What the postings of the commonest words say, by the fact's number; at most a byte for a fact and word, made
        # when such a word is first asked for: a fact has few words, so that few words can stand in every 16th of them.
        self._tables: dict[str, tuple[bytearray, int]] = {}

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
        counts = dict.fromkeys(words, _ONCE)
        if len(counts) < len(words):
            counts = dict.fromkeys(words, 0)
            for word in words:
                counts[word] += _ONCE
        for word in context:
            counts[word] = counts.get(word, 0) + _CONTEXT_WEIGHT
        packed = number << _TF_BITS
        terms = self._terms
        for word, count in counts.items():
            posting = terms.get(word)
            if posting is None:
                posting = terms[word] = array("I")
            posting.append(packed | (count if count < _TF_MAX else _TF_MAX))
            if count > _ONCE and count > self._tops.get(word, _ONCE):
                self._tops[word] = count
        length = min(len(words), _LENGTH_MAX)
        self._lengths.append(length)
        self._total += length
        return number

    def move(self, numbers: Iterable[int], to: Index) -> None:
        """N3. A number that is not here is left alone."""
        moving = {number for number in numbers if number < len(self._lengths) and number not in self._moved}
        if not moving:
            return
        self._tables.clear()
        to._tables.clear()
        for term, posting in list(self._terms.items()):
            leaving = [packed for packed in posting if packed >> _TF_BITS in moving]
            if not leaving:
                continue
            if (top := self._tops.get(term, _ONCE)) > to._tops.get(term, _ONCE):
                to._tops[term] = top
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
            if posting[at] >> _TF_BITS == number and posting[at] & _TF_MAX >= _ONCE:
                found.append(number)
        return found

    def idf(self, term: str) -> float:
        found = self.frequency(term)
        return math.log(1 + (len(self) - found + 0.5) / (found + 0.5)) if found else 0.0

    def search(self, query: Mapping[str, float], limit: int, *, every: bool = False) -> list[tuple[int, float]]:
        """The `limit` best facts for the weighted terms of `query` (N1); with `every`, common words find facts too."""
        if not len(self) or limit <= 0:
            return []
        norms = self._norms()
        terms = self._asked(query, norms)
        # Rare terms first: they decide which facts can still win, so that common ones are only looked up (MaxScore).
        common = len(self._lengths) if every else self._common()
        finding = max(1, bisect_right(terms, common, key=lambda term: len(term.posting)))
        scores = self._find(terms[:finding], sum(term.most for term in terms), limit, norms)
        if terms[finding:]:
            least = _least(scores, max(limit, _LOOKED))
            scores = {number: score for number, score in scores.items() if score >= least}
            scores = self._look_up(terms[finding:], 0.0, scores, limit, norms)
        least = _least(scores, limit)
        best = sorted([(-score, number) for number, score in scores.items() if score >= least])[:limit]
        return [(number, -score) for score, number in best]

    def _asked(self, query: Mapping[str, float], norms: Sequence[float]) -> list[_Term]:
        """The words of `query` that are known, the rarest first."""
        terms: list[_Term] = []
        for word, weight in query.items():
            if weight > 0 and (posting := self._terms.get(word)):
                gain, top = self.idf(word) * weight * (K1 + 1), self._tops.get(word, _ONCE)
                terms.append(_Term(gain, gain * top / (top + norms[0]), posting, word))
        return sorted(terms, key=lambda term: len(term.posting))

    def gains(self, query: Mapping[str, float], numbers: Sequence[int]) -> dict[str, dict[int, float]]:
        """By term of `query`: what those of `numbers` (ascending) that hold it gain by it."""
        norms, lengths, wanted = self._norms(), self._lengths, dict.fromkeys(numbers, 0.0)
        return {
            term.word: {
                number: term.gain * count / (count + norms[lengths[number]])
                for number, count in self._held(term, wanted)
            }
            for term in self._asked(query, norms)
        }

    def _common(self) -> int:
        """A word that more facts hold than this finds nothing by itself (N1)."""
        return max(_COMMON, len(self) >> 4)

    def _norms(self) -> list[float]:
        average = self._total / len(self) or 1.0
        return [4 * K1 * (1 - B + B * length / average) for length in range(_LENGTH_MAX + 1)]

    def _find(self, terms: Sequence[_Term], rest: float, limit: int, norms: Sequence[float]) -> dict[int, float]:
        """Who holds one of `terms`; `rest` is the most that these and the commoner terms can add to a fact."""
        scores: dict[int, float] = {}
        for done, term in enumerate(terms):
            if done and len(term.posting) > _COMMON and _least(scores, limit) > rest:
                later = rest - sum(term.most for term in terms[done:])
                return self._look_up(terms[done:], later, scores, limit, norms)
            self._scan(term, scores, norms)
            rest -= term.most
        return scores

    def _scan(self, term: _Term, scores: dict[int, float], norms: Sequence[float]) -> None:
        lengths, get, gain = self._lengths, scores.get, term.gain
        for packed in term.posting:
            number = packed >> _TF_BITS
            count = packed & _TF_MAX
            scores[number] = get(number, 0.0) + gain * count / (count + norms[lengths[number]])

    def _look_up(
        self, terms: Sequence[_Term], later: float, scores: dict[int, float], limit: int, norms: Sequence[float]
    ) -> dict[int, float]:
        """The facts that can still win, with what `terms` add; after each term fewer can. `later` is still to come."""
        lengths = self._lengths
        rest = later + sum(term.most for term in terms)
        for term in terms:
            if (least := _least(scores, limit)) > rest:
                scores = {number: score for number, score in scores.items() if score >= least - rest}
            gain = term.gain
            for number, count in self._held(term, scores):
                scores[number] += gain * count / (count + norms[lengths[number]])
            rest -= term.most
        return scores

    def _table(self, term: str, posting: array[int]) -> bytearray:
        """The posting by number, brought up to date."""
        counts, seen = self._tables.get(term) or (bytearray(), 0)
        counts.extend(bytes(len(self._lengths) - len(counts)))
        for packed in posting[seen:]:
            counts[packed >> _TF_BITS] = packed & _TF_MAX
        self._tables[term] = counts, len(posting)
        return counts

    def _held(self, term: _Term, wanted: Mapping[int, float]) -> list[tuple[int, int]]:
        """Which of `wanted` a posting holds, and how often."""
        posting = term.posting
        if len(posting) > self._common():
            counts = self._table(term.word, posting)
            return [(number, count) for number in wanted if (count := counts[number])]
        if len(wanted) * _STRIDE > len(posting):
            return [(number, packed & _TF_MAX) for packed in posting if (number := packed >> _TF_BITS) in wanted]
        return list(_found(posting, wanted))


def _found(posting: array[int], wanted: Iterable[int]) -> Iterator[tuple[int, int]]:
    at, end = 0, len(posting)
    for number in sorted(wanted):
        at = bisect_left(posting, number << _TF_BITS, at)
        if at == end:
            return
        if posting[at] >> _TF_BITS == number:
            yield number, posting[at] & _TF_MAX


def _least(scores: Mapping[int, float], limit: int) -> float:
    """The least of the `limit` best scores; 0 where there are fewer."""
    if len(scores) < limit:
        return 0.0
    every = scores.values()
    return (nlargest(limit, every) if len(every) > 8 * limit else sorted(every, reverse=True))[limit - 1]

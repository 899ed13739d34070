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

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

K1 = 0.9
B = 0.4
_TF_BITS = 6
_TF_MAX = (1 << _TF_BITS) - 1
_CONTEXT_WEIGHT = 2  # a word of the heading counts half a word of the fact (weights are in quarters)
_LENGTH_MAX = 255
_COMMON = 512  # postings longer than this are worth avoiding
_STRIDE = 8  # to look one fact up costs as much as to walk over so many postings

_Term = tuple[float, "array[int]", str]  # the most that a fact can gain by it, who holds it, the word


class Index:
    """BM25 over facts numbered 0, 1, 2, …: the words of a fact, and at half weight those of its heading."""

    def __init__(self) -> None:
        self._terms: dict[str, array[int]] = {}
        self._lengths: array[int] = array("B")
        self._total = 0
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
        self._tables.clear()
        to._tables.clear()
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

    def search(self, query: Mapping[str, float], limit: int, *, every: bool = False) -> list[tuple[int, float]]:
        """The `limit` best facts for the weighted terms of `query` (N1); with `every`, common words find facts too."""
        terms: list[_Term] = [
            (self.idf(term) * weight * (K1 + 1), posting, term)
            for term, weight in query.items()
            if weight > 0 and (posting := self._terms.get(term))
        ]
        if not terms or limit <= 0:
            return []
        # Rare terms first: they decide which facts can still win, so that common ones are only looked up (MaxScore).
        terms.sort(key=lambda item: len(item[1]))
        rest = sum(gain for gain, _, _ in terms)
        common = len(self._lengths) if every else self._common()
        norms = self._norms()
        scores: dict[int, float] = {}
        floor = 0.0
        for done, (gain, posting, _) in enumerate(terms):
            if done and len(posting) > _COMMON:
                floor = _floor(scores, limit, floor)
                if floor > rest or len(posting) > common:
                    scores = self._look_up(terms[done:], scores, limit, floor, norms)
                    break
            self._scan(gain, posting, scores, norms)
            rest -= gain
        floor = _floor(scores, limit, floor)
        best = sorted([(-score, number) for number, score in scores.items() if score >= floor])[:limit]
        return [(number, -score) for score, number in best]

    def gains(self, query: Mapping[str, float], numbers: Sequence[int]) -> dict[str, dict[int, float]]:
        """By term of `query`: what those of `numbers` (ascending) that hold it gain by it."""
        norms, lengths, wanted = self._norms(), self._lengths, dict.fromkeys(numbers, 0.0)
        found: dict[str, dict[int, float]] = {}
        for term, weight in query.items():
            if weight > 0 and (posting := self._terms.get(term)):
                gain = self.idf(term) * weight * (K1 + 1)
                held = self._held(posting, wanted)
                found[term] = {number: gain * count / (count + norms[lengths[number]]) for number, count in held}
        return found

    def _common(self) -> int:
        """A word that more facts hold than this finds nothing by itself (N1)."""
        return max(_COMMON, len(self) >> 4)

    def _norms(self) -> list[float]:
        average = self._total / len(self) or 1.0
        return [4 * K1 * (1 - B + B * length / average) for length in range(_LENGTH_MAX + 1)]

    def _scan(self, gain: float, posting: array[int], scores: dict[int, float], norms: list[float]) -> None:
        lengths, get = self._lengths, scores.get
        for packed in posting:
            number = packed >> _TF_BITS
            count = packed & _TF_MAX
            scores[number] = get(number, 0.0) + gain * count / (count + norms[lengths[number]])

    def _look_up(
        self, terms: Sequence[_Term], scores: dict[int, float], limit: int, floor: float, norms: list[float]
    ) -> dict[int, float]:
        """The facts that can still win, with what the common terms add; after each term fewer of them can."""
        lengths, common = self._lengths, self._common()
        rest = sum(gain for gain, _, _ in terms)
        for gain, posting, term in terms:
            if floor > rest:
                scores = {number: score for number, score in scores.items() if score >= floor - rest}
            if len(posting) > common:
                counts = self._table(term, posting)
                for number in scores:
                    if count := counts[number]:
                        scores[number] += gain * count / (count + norms[lengths[number]])
            else:
                for number, count in self._held(posting, scores):
                    scores[number] += gain * count / (count + norms[lengths[number]])
            rest -= gain
            floor = _floor(scores, limit, floor)
        return scores

    def _table(self, term: str, posting: array[int]) -> bytearray:
        """The posting by number, brought up to date."""
        counts, seen = self._tables.get(term) or (bytearray(), 0)
        counts.extend(bytes(len(self._lengths) - len(counts)))
        for packed in posting[seen:]:
            counts[packed >> _TF_BITS] = packed & _TF_MAX
        self._tables[term] = counts, len(posting)
        return counts

    def _held(self, posting: array[int], wanted: Mapping[int, float]) -> Iterator[tuple[int, int]]:
        """Which of `wanted` a posting holds, and how often."""
        if len(wanted) * _STRIDE > len(posting):
            for packed in posting:
                if packed >> _TF_BITS in wanted:
                    yield packed >> _TF_BITS, packed & _TF_MAX
            return
        at, end = 0, len(posting)
        for number in sorted(wanted):
            at = bisect_left(posting, number << _TF_BITS, at)
            if at == end:
                return
            if posting[at] >> _TF_BITS == number:
                yield number, posting[at] & _TF_MAX


def _floor(scores: Mapping[int, float], limit: int, before: float) -> float:
    """What the last of the `limit` best has; `before` is what it had when no score was higher than it is now."""
    if len(scores) < limit:
        return before
    return sorted([score for score in scores.values() if score >= before], reverse=True)[limit - 1]

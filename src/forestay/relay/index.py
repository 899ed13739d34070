"""The inverted index over a session's facts: built as facts come, kept in memory and in snapshots of the session.

Chosen by measurement over SQLite FTS5, tantivy and bm25s (`docs/explanation/relay.md`): those are faster at one of
building and asking, but pay for each small addition with a commit, and each window of a dispatch adds a few facts.
A word of a snapshot stays in the snapshot's file until a question asks for it.

Invariants:

- N1  `search` returns what scoring every fact with BM25 would return, best first, earlier fact first on a tie. Two
      bounds keep the cost of a question from growing with the facts: a word that stands in more than a sixteenth of
      many facts, and each word once 16,384 facts hold it or rarer ones, finds nothing itself, but adds to the best
      2,000 facts that rarer words found; the rarest word finds the 16,384 newest of those that hold it.
- N2  A fact can be found by any word of its own text as soon as `add` returns.
- N3  `move` takes facts out of one index and puts them into another: what is left scores as if they had never been
      there, and they are found in the other one by the same words.
- N4  A fact that `search` is told to pass over takes no other fact's place.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

Parts = Mapping[str, memoryview]


class KeptPostings:
    """The postings of a snapshot: words in the order of their bytes, each with its place among all postings."""

    def __init__(self, parts: Parts) -> None:
        self._words, self._tops = parts["words"], parts["tops"]
        self._ends, self._stops = parts["ends"].cast("Q"), parts["stops"].cast("Q")
        self._postings = parts["postings"].cast("I")

    def __len__(self) -> int:
        return len(self._tops)

    def word(self, place: int) -> bytes:
        return bytes(self._words[self._ends[place - 1] if place else 0 : self._ends[place]])

    def place(self, word: str) -> int:
        """Where `word` stands; -1 when the snapshot does not have it."""
        wanted = word.encode()
        place = bisect_left(range(len(self)), wanted, key=self.word)
        return place if place < len(self) and self.word(place) == wanted else -1

    def posting(self, place: int) -> memoryview:
        return self._postings[self._stops[place - 1] if place else 0 : self._stops[place]]

    def top(self, place: int) -> int:
        return self._tops[place]


class Postings(dict[str, "array[int]"]):
    """By word its posting, which stays in memory once it was read; `tops` has the highest count of a word in a fact."""

    def __init__(self, kept: KeptPostings | None = None) -> None:
        super().__init__()
        self.tops: dict[str, int] = {}
        self._kept = kept

    def __missing__(self, word: str) -> array[int]:
        posting, place = array("I"), self._place(word)
        if self._kept is not None and place >= 0:
            posting.frombytes(self._kept.posting(place).cast("B"))
            self.tops[word] = max(self._kept.top(place), self.tops.get(word, 0))
        self[word] = posting
        return posting

    def _place(self, word: str) -> int:
        return self._kept.place(word) if self._kept is not None else -1

    def find(self, word: str) -> array[int] | None:
        """The posting of `word`; None where no fact holds it."""
        if (posting := self.get(word)) is None and self._place(word) >= 0:
            return self[word]
        return posting

    def frequency(self, word: str) -> int:
        """How many facts hold `word`."""
        if (posting := self.get(word)) is not None:
            return len(posting)
        place = self._place(word)
        return len(self._kept.posting(place)) if self._kept is not None and place >= 0 else 0

    def load(self) -> None:
        """Reads what is only in the snapshot."""
        if self._kept is not None:
            for place in range(len(self._kept)):
                self[self._kept.word(place).decode()]
            self._kept = None

    def written(self, once: int) -> dict[str, bytes]:
        """What `KeptPostings` reads; a word without a top stands at most `once` in a fact."""
        unread = self._kept
        places = {unread.word(place): place for place in range(len(unread))} if unread is not None else {}
        ends, stops, tops = array("Q"), array("Q"), bytearray()
        words, postings = bytearray(), bytearray()
        for word in sorted({*places, *(word.encode() for word, posting in list(self.items()) if posting)}):
            text = word.decode()
            posting = self.get(text)
            if posting is None and unread is not None:
                postings += unread.posting(places[word]).cast("B")
                tops.append(unread.top(places[word]))
            elif posting is not None:
                postings += posting.tobytes()
                tops.append(min(self.tops.get(text, once), 255))
            words += word
            ends.append(len(words))
            stops.append(len(postings) // 4)
        parts = {"words": words, "tops": tops, "ends": ends, "stops": stops, "postings": postings}
        return {name: bytes(part) for name, part in parts.items()}


K1 = 0.9
B = 0.4
_TF_BITS = 6
_TF_MAX = (1 << _TF_BITS) - 1
_ONCE = 4  # what a word of the fact counts (in quarters)
_CONTEXT_WEIGHT = 2  # a word of the heading counts half of it
_LENGTH_MAX = 255
_COMMON = 512  # postings longer than this are worth avoiding
_LOOKED = 2000  # so many of the facts that rarer words found are looked up for common ones
_WALKED = 16_384  # so many postings are walked over for a question
_FILLED = 4096  # so many postings are added to a table for a question
_STRIDE = 8  # to look one fact up costs as much as to walk over so many postings


class _Term(NamedTuple):
    """A word of a query: its weight, the most that a fact can gain by it, and the facts that hold it."""

    gain: float
    most: float
    posting: array[int]
    word: str


class Index:
    """BM25 over facts numbered 0, 1, 2, …: the words of a fact, and at half weight those of its heading."""

    def __init__(self, kept: KeptPostings | None = None) -> None:
        self._terms = Postings(kept)
        self._lengths: array[int] = array("B")
        self._total = 0
        self._moved: set[int] = set()  # numbers below len(_lengths) that are not, or no longer, here
        # What the postings of the commonest words say, by the fact's number; at most a byte for a fact and word, made
        # when such a word is first asked for: a fact has few words, so that few words can stand in every 16th of them.
        self._tables: dict[str, tuple[bytearray, int]] = {}

    @classmethod
    def kept(cls, parts: Parts) -> Index:
        """The index that `written` wrote; a word's posting is read when the word is first asked for."""
        index = cls(KeptPostings(parts))
        index._lengths.frombytes(parts["lengths"])
        index._moved.update(parts["moved"].cast("Q"))
        index._total = int.from_bytes(parts["total"], "big")
        return index

    def written(self) -> dict[str, bytes]:
        moved = array("Q", sorted(self._moved))
        rest = {"lengths": self._lengths, "moved": moved, "total": self._total.to_bytes(8, "big")}
        return {**self._terms.written(_ONCE), **{name: bytes(part) for name, part in rest.items()}}

    def __len__(self) -> int:
        """How many facts are in it."""
        return len(self._lengths) - len(self._moved)

    def frequency(self, term: str) -> int:
        """How many facts hold `term`."""
        return self._terms.frequency(term)

    def add(self, words: Sequence[str], context: Iterable[str] = ()) -> int:
        """Index the next fact; its number is returned."""
        number = len(self._lengths)
        self.add_run([words], list(context))
        return number

    def add_run(self, run: Sequence[Sequence[str]], context: Sequence[str]) -> None:
        """Index the next facts, each by its words, all of them under the heading with the words `context`."""
        first, terms, lengths = len(self._lengths), self._terms, self._lengths
        # A word of the heading that is in none of the facts gets all of its postings at once.
        said = set(context).intersection(*run) if len(run) == 1 else set(context) & set().union(*run)
        apart = [word for word in dict.fromkeys(context) if word not in said]
        inside = [word for word in context if word in said]
        for number, words in enumerate(run, first):
            packed = number << _TF_BITS
            if not inside and len(set(words)) == len(words):
                packed |= _ONCE
                for word in words:
                    terms[word].append(packed)
            else:
                for word, count in self._counted(words, inside).items():
                    terms[word].append(packed | count)
            lengths.append(length := min(len(words), _LENGTH_MAX))
            self._total += length
        for word in apart:
            weight = min(_CONTEXT_WEIGHT * context.count(word), _TF_MAX)
            if weight > _ONCE:
                self._terms.tops[word] = max(weight, self._terms.tops.get(word, _ONCE))
            terms[word].extend(range(first << _TF_BITS | weight, len(lengths) << _TF_BITS, 1 << _TF_BITS))

    def _counted(self, words: Sequence[str], inside: Iterable[str]) -> dict[str, int]:
        """What each word counts, and notes the most that one has; none counts more than a posting can hold."""
        counts = dict.fromkeys(words, 0)
        for word in words:
            counts[word] += _ONCE
        for word in inside:
            counts[word] = counts.get(word, 0) + _CONTEXT_WEIGHT
        tops = self._terms.tops
        for word, count in counts.items():
            if count > _ONCE:
                if count > tops.get(word, _ONCE):
                    tops[word] = count
                if count > _TF_MAX:
                    counts[word] = _TF_MAX
        return counts

    def move(self, numbers: Iterable[int], to: Index) -> None:
        """N3. A number that is not here is left alone."""
        moving = {number for number in numbers if number < len(self._lengths) and number not in self._moved}
        if not moving:
            return
        self._tables.clear()
        to._tables.clear()
        self._terms.load()
        to._terms.load()
        for term, posting in list(self._terms.items()):
            leaving = [packed for packed in posting if packed >> _TF_BITS in moving]
            if not leaving:
                continue
            if (top := self._terms.tops.get(term, _ONCE)) > to._terms.tops.get(term, _ONCE):
                to._terms.tops[term] = top
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
        posting = self._terms.find(term)
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

    def idf(self, *terms: str) -> float:
        """How much it says that a fact holds one of `terms`, as if they were one word."""
        found = min(len(self), sum(map(self.frequency, terms)))
        return self.idf_of(found) if found else 0.0

    def idf_of(self, found: int) -> float:
        """How much it says that a fact holds a word that so many hold."""
        return math.log(1 + (len(self) - found + 0.5) / (found + 0.5))

    def search(
        self, query: Mapping[str, float], limit: int, *, every: bool = False, without: AbstractSet[int] = frozenset()
    ) -> list[tuple[int, float]]:
        """The `limit` best facts for the weighted terms of `query` (N1), and none of those in `without` (N4).

        With `every`, common words find facts too.
        """
        if not len(self) or limit <= 0:
            return []
        norms = self._norms()
        terms = self._asked(query, norms)
        # Rare terms first: they decide which facts can still win, so that common ones are only looked up (MaxScore).
        finding = len(terms) if every else self._finding(terms)
        rest = sum(term.most for term in terms)
        scores = self._find(terms[:finding], rest, limit, norms, without, every=every)
        if terms[finding:]:
            least = _least(scores, max(limit, _LOOKED))
            scores = {number: score for number, score in scores.items() if score >= least}
            scores = self._look_up(terms[finding:], 0.0, scores, limit, norms)
        least = _least(scores, limit)
        best = sorted([(-score, number) for number, score in scores.items() if score >= least])[:limit]
        return [(number, -score) for score, number in best]

    def scores(self, query: Mapping[str, float]) -> dict[int, float]:
        """Every fact that holds a term of `query`, with its score, in no order."""
        found: dict[int, float] = {}
        norms = self._norms(max(self._lengths)) if len(self) else []
        for term in self._asked(query, norms):
            self._scan(term, term.posting, found, norms)
        return found

    def _asked(self, query: Mapping[str, float], norms: Sequence[float]) -> list[_Term]:
        """The words of `query` that are known, the rarest first."""
        terms: list[_Term] = []
        for word, weight in query.items():
            if weight > 0 and (posting := self._terms.find(word)):
                gain, top = self.idf(word) * weight * (K1 + 1), self._terms.tops.get(word, _ONCE)
                terms.append(_Term(gain, gain * top / (top + norms[0]), posting, word))
        return sorted(terms, key=lambda term: len(term.posting))

    def gains(self, query: Mapping[str, float], wanted: Mapping[int, object]) -> dict[str, dict[int, float]]:
        """By term of `query`: what those of `wanted` that hold it gain by it."""
        norms, lengths = self._norms(), self._lengths
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

    def _finding(self, terms: Sequence[_Term]) -> int:
        """How many of the rarest terms find facts by themselves (N1)."""
        common, walked = self._common(), 0
        for place, term in enumerate(terms):
            walked += len(term.posting)
            if place and (len(term.posting) > common or walked > _WALKED):
                return place
        return len(terms)

    def _norms(self, longest: int = _LENGTH_MAX) -> list[float]:
        average = self._total / len(self) or 1.0
        return [4 * K1 * (1 - B + B * length / average) for length in range(longest + 1)]

    def _find(
        self,
        terms: Sequence[_Term],
        rest: float,
        limit: int,
        norms: Sequence[float],
        without: AbstractSet[int],
        *,
        every: bool,
    ) -> dict[int, float]:
        """Facts that hold one of `terms`; `rest` is the most that these and the commoner terms can add to a fact."""
        scores: dict[int, float] = {}
        for done, term in enumerate(terms):
            if done and _STRIDE * len(term.posting) > len(scores) and _least(scores, limit) > rest:
                later = rest - sum(term.most for term in terms[done:])
                return self._look_up(terms[done:], later, scores, limit, norms)
            self._scan(term, term.posting if every else term.posting[-_WALKED:], scores, norms)
            for number in scores.keys() & without:
                del scores[number]
            rest -= term.most
        return scores

    def _scan(self, term: _Term, posting: Sequence[int], scores: dict[int, float], norms: Sequence[float]) -> None:
        lengths, get, gain = self._lengths, scores.get, term.gain
        for packed in posting:
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

    def _table(self, term: _Term) -> tuple[bytearray, int]:
        """The posting by number, as far as it has been brought; the next question brings it further."""
        posting = term.posting
        counts, seen = self._tables.get(term.word) or (bytearray(), 0)
        counts.extend(bytes(len(self._lengths) - len(counts)))
        for packed in posting[seen : seen + _FILLED]:
            counts[packed >> _TF_BITS] = packed & _TF_MAX
        seen = min(seen + _FILLED, len(posting))
        self._tables[term.word] = counts, seen
        return counts, posting[seen] >> _TF_BITS if seen < len(posting) else len(counts)

    def _held(self, term: _Term, wanted: Mapping[int, object]) -> list[tuple[int, int]]:
        """Which of `wanted` a posting holds, and how often."""
        posting = term.posting
        if len(posting) > self._common():
            counts, end = self._table(term)
            held = [(number, count) for number in wanted if (count := counts[number])]
            return held if end == len(counts) else held + _found(posting, [n for n in wanted if n >= end])
        if len(wanted) * _STRIDE > len(posting):
            return [(number, packed & _TF_MAX) for packed in posting if (number := packed >> _TF_BITS) in wanted]
        return _found(posting, wanted)


def _found(posting: array[int], wanted: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at, end = 0, len(posting)
    for number in sorted(wanted):
        at = bisect_left(posting, number << _TF_BITS, at)
        if at == end:
            break
        if (packed := posting[at]) >> _TF_BITS == number:
            found.append((number, packed & _TF_MAX))
    return found


def _least(scores: Mapping[int, float], limit: int) -> float:
    """The least of the `limit` best scores; 0 where there are fewer."""
    if len(scores) < limit:
        return 0.0
    every = list(scores.values())
    if len(every) > _STRIDE * limit:
        # A sample tells what is surely too low: the rest is sorted.
        sample = sorted(every[::_STRIDE], reverse=True)
        low = sample[min(len(sample) - 1, 2 * limit // _STRIDE + _STRIDE)]
        best = [score for score in every if score >= low]
        every = best if len(best) >= limit else every
    every.sort(reverse=True)
    return every[limit - 1]

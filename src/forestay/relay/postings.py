"""Who holds a word: in memory, and for the words of a snapshot in its file until they are first asked for."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping

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

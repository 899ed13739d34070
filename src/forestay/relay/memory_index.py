"""The entries of one tenant in memory, opened, and found by their words and, with an embedder, by their meaning."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from forestay.models import STOP, Embedder, words
from forestay.relay.index import Index
from forestay.relay.memory_entry import MemoryEntry
from forestay.relay.vectors import Vectors

_SHARP = 5  # the power of likeness in meaning: what is only a little alike is not found by it
_LEAST = 0.2


class FoundEntry(msgspec.Struct, frozen=True):
    """An entry that answers a question, and how well: the best one has the highest score."""

    entry: MemoryEntry
    score: float


class _Passage(msgspec.Struct, frozen=True):
    """An entry as `Vectors` reads it."""

    text: str
    hash: bytes
    context: str = ""


class MemoryIndex:
    """Holds the entries of a tenant; `is_whole` once it had all that there were. Nothing of a forgotten one is left."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self.turn = asyncio.Lock()
        self.is_whole = False
        self._begin()

    def _begin(self) -> None:
        self._entries: list[MemoryEntry] = []
        self.known: dict[str, MemoryEntry] = {}
        self._index = Index()
        self._vectors = Vectors(self._embedder) if self._embedder is not None else None

    def missing(self, ids: Collection[str]) -> list[str]:
        """Which of the tenant's entries, all of whose `ids` these are, have to be opened. Others than these go."""
        if not self.known.keys() <= set(ids):
            self._begin()
        return [name for name in ids if name not in self.known]

    def add(self, entries: Iterable[MemoryEntry]) -> None:
        for entry in entries:
            if entry.id not in self.known:
                self._index.add(words(entry.content))
                self._entries.append(entry)
                self.known[entry.id] = entry

    def listed(self, memory_ref: str | None, tag: str | None, now: int) -> list[MemoryEntry]:
        """Those that have not expired, the newest first."""
        found = [entry for entry in self._entries if _fits(entry, memory_ref, tag, now)]
        return sorted(found, key=lambda entry: (entry.created_ms, entry.id), reverse=True)

    async def search(
        self, query: str, memory_ref: str | None, tag: str | None, limit: int, now: int
    ) -> list[FoundEntry]:
        """Of those that have not expired, the best first; of equals, the later one."""
        scores = self._by_words(query)
        near = await self._by_meaning(query)
        if near:
            scores = _scaled(scores)
            for number, likeness in near.items():
                scores[number] = scores.get(number, 0.0) + likeness
        best = 1.0 if near else max(scores.values(), default=0.0)
        found: list[FoundEntry] = []
        if best <= 0:
            return found
        for score, number in _ordered(scores, limit):
            entry = self._entries[number]
            if _fits(entry, memory_ref, tag, now):
                found.append(FoundEntry(entry, round(score / best, 6)))
                if len(found) == limit:
                    break
        return found

    def _by_words(self, query: str) -> dict[int, float]:
        wanted = dict.fromkeys((word for word in words(query) if word not in STOP), 1.0)
        return self._index.scores(wanted)

    async def _by_meaning(self, query: str) -> dict[int, float]:
        if self._vectors is None or not self._entries:
            return {}
        passages = [_Passage(entry.content, hashlib.sha256(entry.id.encode()).digest()) for entry in self._entries]
        await self._vectors.catch_up(passages)
        near = await asyncio.to_thread(self._vectors.near, query, len(passages))
        alike = {number: likeness**_SHARP for number, likeness in _scaled(near).items()}
        return {number: likeness for number, likeness in alike.items() if likeness >= _LEAST}


def _ordered(scores: Mapping[int, float], few: int) -> Iterator[tuple[float, int]]:
    """The best first, of equals the later one. A few of many are wanted: the others are brought into order when those
    few did not do."""
    pairs = [(score, number) for number, score in scores.items()]
    pairs.reverse()  # the later ones first: of equals none is put in place of another
    first = heapq.nlargest(few, pairs)
    yield from first
    if len(first) < len(pairs):
        yield from sorted(pairs, reverse=True)[few:]


def _fits(entry: MemoryEntry, memory_ref: str | None, tag: str | None, now: int) -> bool:
    if entry.expires_ms is not None and entry.expires_ms <= now:
        return False
    return (memory_ref is None or entry.memory_ref == memory_ref) and (tag is None or tag in entry.tags)


def _scaled(scores: Mapping[int, float]) -> dict[int, float]:
    """With the best at 1."""
    best = max(scores.values(), default=0.0)
    return {number: score / best for number, score in scores.items()} if best > 0 else {}

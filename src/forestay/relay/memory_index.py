"""One tenant's memory entries, decrypted in the process; found by words and, with an embedder, by meaning."""

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

_SHARP = 5  # similarities are raised to this power, so that weak ones fall below _LEAST
_LEAST = 0.2


class FoundEntry(msgspec.Struct, frozen=True):
    """An entry that answers a question, with its score; a higher score is better."""

    entry: MemoryEntry
    score: float


class _Passage(msgspec.Struct, frozen=True):
    """An entry as `Vectors` reads it."""

    text: str
    hash: bytes
    context: str = ""


class MemoryIndex:
    """Holds the entries of a tenant; `is_whole` once it has had all of them. It keeps nothing of a forgotten entry."""

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
        """Return the entries that have to be opened, from `ids`, the tenant's complete list. Start anew when the index
        has an entry that is not in the list."""
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
        """Return the entries that have not expired, the newest first."""
        found = [entry for entry in self._entries if _fits(entry, memory_ref, tag, now)]
        return sorted(found, key=lambda entry: (entry.created_ms, entry.id), reverse=True)

    async def search(
        self, query: str, memory_ref: str | None, tag: str | None, limit: int, now: int
    ) -> list[FoundEntry]:
        """Return the best entries that have not expired, best first; of equals, the later one first."""
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
    """Yield scores, best first; of equals, the later one first. Usually a few are enough, so the rest is sorted only
    when the caller goes on."""
    pairs = [(score, number) for number, score in scores.items()]
    pairs.reverse()  # the later ones first, which `nlargest` keeps among equals
    first = heapq.nlargest(few, pairs)
    yield from first
    if len(first) < len(pairs):
        yield from sorted(pairs, reverse=True)[few:]


def _fits(entry: MemoryEntry, memory_ref: str | None, tag: str | None, now: int) -> bool:
    if entry.expires_ms is not None and entry.expires_ms <= now:
        return False
    return (memory_ref is None or entry.memory_ref == memory_ref) and (tag is None or tag in entry.tags)


def _scaled(scores: Mapping[int, float]) -> dict[int, float]:
    """Scale scores so that the best is 1."""
    best = max(scores.values(), default=0.0)
    return {number: score / best for number, score in scores.items()} if best > 0 else {}

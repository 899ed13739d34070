"""The vectors of a session's facts: made as facts come, kept in a file beside the ledger, rebuilt when it is lost.

Invariants:

- V1  Row n belongs to fact n: it begins with the first bytes of that fact's hash. A row with another hash is discarded
      with all rows after it.
- V2  The file holds nothing that cannot be rebuilt; a torn last row is cut off. It is never exported (CRP §1.2).
- V3  Rows of another embedder, or of passages that were built in another way, are never used.
- V4  The file is mapped into memory and never becomes shorter under a mapping: dropping rows writes a new file.
"""

from __future__ import annotations

import asyncio
import importlib
import mmap
import os
from array import array
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Protocol

import msgspec

from forestay.models import Embedder
from forestay.relay.facts import Fact, said
from forestay.relay.nearest import Nearest, nearest
from forestay.relay.ranking import in_one_text

_MARK = 8
_AT_ONCE = 64
_LONGEST_QUESTION = 4000  # characters; an embedder reads no more than these
_PASSAGES = 2  # the version of what `passage` builds


class Passage(Protocol):
    """Something that gets a row, such as a fact: a text, its heading, and a unique hash."""

    @property
    def text(self) -> str: ...

    @property
    def context(self) -> str: ...

    @property
    def hash(self) -> bytes: ...


class Vectors:
    """One row for each fact, after the first bytes of its hash: in memory, or in the file `path` if it is given."""

    def __init__(self, embedder: Embedder, path: Path | None = None) -> None:
        self.embedder = embedder
        self._path = path
        self._data: bytearray | mmap.mmap = bytearray()
        self._begin = 0  # of the first row
        self._count = 0
        self._nearest: Nearest | None = None
        self._loaded = path is None
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        return self._count

    async def catch_up(self, facts: Sequence[Passage]) -> int:
        """Make the missing rows; return their number. The embedder runs in a thread."""
        async with self._lock:
            if not self._loaded:
                await asyncio.to_thread(self._load)
                self._loaded = True
            self._drop_strangers(facts)
            made = 0
            while self._count < len(facts):
                group = facts[self._count : self._count + _AT_ONCE]
                texts = [passage(facts, self._count + place) for place in range(len(group))]
                rows = await asyncio.to_thread(self._embed, texts)
                await asyncio.to_thread(self._append, [fact.hash[:_MARK] for fact in group], rows)
                made += len(group)
            return made

    def near(self, text: str, limit: int, without: AbstractSet[int] = frozenset()) -> dict[int, float]:
        """Return the facts that are similar to `text` in meaning with their similarity, best first, except `without`.

        Call it in a thread.
        """
        if not self._count:
            return {}
        (vector,) = self.embedder.embed([text[-_LONGEST_QUESTION:]])
        asked = array("f", vector)
        data, count, size = self._mapped(), self._count, self._size
        try:
            numpy = importlib.import_module("numpy")  # present when an embedder depends on it
        except ImportError:
            view = memoryview(data)[self._begin :]
            rows = [view[at + _MARK : at + size].cast("f") for at in range(0, count * size, size)]
            return nearest(rows, asked, limit, without)
        if self._nearest is None:
            self._nearest = Nearest(numpy)
        shape, strides = (count, self.embedder.dimension), (size, 4)
        matrix = numpy.ndarray(shape, numpy.float32, data, self._begin + _MARK, strides)
        return self._nearest.find(matrix, numpy.frombuffer(asked, dtype=numpy.float32), limit, without)

    def forget(self) -> None:
        """Delete the vectors: the session is over."""
        self._data, self._count, self._nearest = bytearray(), 0, None
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    @property
    def _size(self) -> int:
        return _MARK + 4 * self.embedder.dimension

    # In a thread

    def _embed(self, texts: list[str]) -> array[float]:
        rows: array[float] = array("f")
        for row in self.embedder.embed(texts):
            rows.extend(row)
        return rows

    def _append(self, marks: list[bytes], rows: array[float]) -> None:
        size, data = 4 * self.embedder.dimension, rows.tobytes()
        made = b"".join(mark + data[at * size : (at + 1) * size] for at, mark in enumerate(marks))
        if isinstance(self._data, bytearray) and self._path is None:
            self._data += made
        elif self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "ab") as out:
                if out.tell() == 0:
                    out.write(self._header())
                self._begin = len(self._header())
                out.write(made)
        self._count += len(marks)

    # The file

    def _header(self) -> bytes:
        """Return the file's header; its length is a multiple of _MARK, so that the numbers are aligned."""
        named = {"embedder": self.embedder.name, "dimension": self.embedder.dimension, "passages": _PASSAGES}
        told = msgspec.json.encode(named)
        return told + b" " * (-(len(told) + 1) % _MARK) + b"\n"

    def _load(self) -> None:
        """Open the file: delete one of another embedder, cut off a torn row (V2, V3)."""
        assert self._path is not None
        header = self._header()
        try:
            with self._path.open("rb") as file:
                known = file.read(len(header)) == header
                size = file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            return
        if not known:
            self._path.unlink()
            return
        self._begin, self._count = len(header), (size - len(header)) // self._size
        os.truncate(self._path, self._begin + self._count * self._size)

    def _mapped(self) -> bytearray | mmap.mmap:
        """Return the data with all counted rows, mapped anew when the file has grown."""
        if self._path is not None and len(self._data) < self._begin + self._count * self._size:
            with self._path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._data

    def _drop_strangers(self, facts: Sequence[Passage]) -> None:
        """Drop the first row that does not belong to its fact, and all rows after it (V1, V4)."""
        known, size = min(self._count, len(facts)), self._size
        data, begin = (self._mapped() if self._count else self._data), self._begin
        places = range(begin, begin + known * size, size)
        right = next((n for n, at in enumerate(places) if data[at : at + _MARK] != facts[n].hash[:_MARK]), known)
        if right == self._count:
            return
        kept, self._count = data[: begin + right * size], right
        if self._nearest is not None:
            self._nearest.forget(right)
        if self._path is None:
            self._data = bytearray(kept)
            return
        beside = self._path.with_name(self._path.name + ".new")
        with os.fdopen(os.open(beside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as out:
            out.write(kept)
        beside.replace(self._path)
        self._data = bytearray()


def passage(facts: Sequence[Passage], number: int) -> str:
    """Return the text to embed for a fact: its heading and its text, because many facts say nothing without a heading.

    For a line of talk it is the line before and the line itself, without speaker and date: an answer means little
    without its question, and `it` means nothing. The words find speaker and date, which would only make all lines of
    one person similar.
    """
    fact = facts[number]
    if not isinstance(fact, Fact) or not fact.talk:
        return f"{fact.context}: {fact.text}" if fact.context else fact.text
    before = facts[number - 1] if number else None
    if isinstance(before, Fact) and before.talk and before.stands and in_one_text(before, fact):
        return f"{said(before.text)} {said(fact.text)}"
    return said(fact.text)

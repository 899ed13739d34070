"""The vectors of a session's facts: made as facts come, kept in a file beside the ledger, made again when it is lost.

Invariants:

- V1  Row n belongs to fact n: it carries the beginning of that fact's hash, and a row that carries another one is
      thrown away with all behind it.
- V2  The file holds nothing that cannot be made again; a torn last row is cut off. It is never exported (CRP §1.2).
- V3  Rows of another embedder are never used.
"""

from __future__ import annotations

import asyncio
import heapq
import importlib
import os
from array import array
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Protocol

import msgspec

from forestay.models import Embedder

_MARK = 8
_AT_ONCE = 64
_LONGEST_QUESTION = 4000  # characters; an embedder reads no more of it


class Passage(Protocol):
    """What gets a row: a text under its heading, and a hash that no other one has. A fact is one."""

    @property
    def text(self) -> str: ...

    @property
    def context(self) -> str: ...

    @property
    def hash(self) -> bytes: ...


class Vectors:
    """One row for each fact, in memory, and in `path` when there is one."""

    def __init__(self, embedder: Embedder, path: Path | None = None) -> None:
        self.embedder = embedder
        self._path = path
        self._rows: array[float] = array("f")
        self._marks: list[bytes] = []
        self._loaded = path is None
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._marks)

    async def catch_up(self, facts: Sequence[Passage]) -> int:
        """Give the facts that have no row one; how many that were. The embedder runs in a thread."""
        async with self._lock:
            if not self._loaded:
                await asyncio.to_thread(self._load)
                self._loaded = True
            self._drop_strangers(facts)
            made = 0
            while len(self._marks) < len(facts):
                group = facts[len(self._marks) : len(self._marks) + _AT_ONCE]
                rows = await asyncio.to_thread(self._embed, [passage(fact) for fact in group])
                marks = [fact.hash[:_MARK] for fact in group]
                await asyncio.to_thread(self._append, marks, rows)
                self._rows.extend(rows)
                self._marks += marks
                made += len(group)
            return made

    def near(self, text: str, limit: int, without: AbstractSet[int] = frozenset()) -> dict[int, float]:
        """The facts that are like `text` in meaning and how much, the most alike first, but for those in `without`.

        Call it in a thread.
        """
        if not self._marks:
            return {}
        (asked,) = self.embedder.embed([text[-_LONGEST_QUESTION:]])
        scores = _products(self._rows, self.embedder.dimension, array("f", asked), len(self._marks))
        best = heapq.nlargest(
            limit, ((score, -number) for number, score in enumerate(scores) if score > 0.0 and number not in without)
        )
        return {-number: score for score, number in best}

    def forget(self) -> None:
        """The session is over: its vectors go."""
        self._rows, self._marks = array("f"), []
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    # In a thread

    def _embed(self, texts: list[str]) -> array[float]:
        rows: array[float] = array("f")
        for row in self.embedder.embed(texts):
            rows.extend(row)
        return rows

    # The file

    def _header(self) -> bytes:
        return msgspec.json.encode({"embedder": self.embedder.name, "dimension": self.embedder.dimension}) + b"\n"

    def _load(self) -> None:
        """V2, V3."""
        assert self._path is not None
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        header, size = self._header(), _MARK + 4 * self.embedder.dimension
        if not data.startswith(header):
            self._path.unlink()
            return
        whole = (len(data) - len(header)) // size
        for number in range(whole):
            at = len(header) + number * size
            self._marks.append(data[at : at + _MARK])
            self._rows.frombytes(data[at + _MARK : at + size])
        if len(header) + whole * size < len(data):
            os.truncate(self._path, len(header) + whole * size)

    def _drop_strangers(self, facts: Sequence[Passage]) -> None:
        """V1."""
        known = min(len(self._marks), len(facts))
        right = next((n for n in range(known) if self._marks[n] != facts[n].hash[:_MARK]), known)
        if right == len(self._marks):
            return
        del self._marks[right:]
        del self._rows[right * self.embedder.dimension :]
        if self._path is not None and self._path.exists():
            os.truncate(self._path, len(self._header()) + right * (_MARK + 4 * self.embedder.dimension))

    def _append(self, marks: list[bytes], rows: array[float]) -> None:
        if self._path is None:
            return
        size, data = 4 * self.embedder.dimension, rows.tobytes()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "ab") as out:
            if out.tell() == 0:
                out.write(self._header())
            out.write(b"".join(mark + data[at * size : (at + 1) * size] for at, mark in enumerate(marks)))


def passage(fact: Passage) -> str:
    """What stands for a fact: its text under its heading, without which many a fact says nothing."""
    return f"{fact.context}: {fact.text}" if fact.context else fact.text


def _products(rows: array[float], dimension: int, asked: array[float], count: int) -> Any:
    """Every row times `asked`; numpy does it where an embedder brought it along."""
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        return [
            sum(map(float.__mul__, rows[at : at + dimension], asked)) for at in range(0, count * dimension, dimension)
        ]
    matrix = numpy.frombuffer(rows, dtype=numpy.float32).reshape(count, dimension)
    return (matrix @ numpy.frombuffer(asked, dtype=numpy.float32)).tolist()

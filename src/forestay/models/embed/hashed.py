"""Vectors of spelling: hashed runs of characters. Small, deterministic, and blind to meaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from zlib import crc32

from forestay.models.embed import Vector

_LENGTHS = (3, 4)


class Hashed:
    """Counts each word's runs of three and four characters, so that similar spellings give similar vectors."""

    def __init__(self, dimension: int = 256) -> None:
        self.dimension = dimension
        self.name = f"hashed-{dimension}"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        counts = [0.0] * self.dimension
        for word in text.lower().split():
            marked = f" {word} ".encode("utf-8", "replace")
            for length in _LENGTHS:
                for at in range(len(marked) - length + 1):
                    found = crc32(marked[at : at + length])
                    counts[found % self.dimension] += 1.0 if found & 0x8000_0000 else -1.0
        size = math.sqrt(sum(value * value for value in counts))
        return [value / size for value in counts] if size else counts

"""Words with related meanings, measured with a sentence model.

For each of 9,600 stems `related_words.txt` lists the nearest other stems, each with a digit from 1 to 9 for how near it
is; `scripts/related_words.py` says how it was measured. The thesaurus is more exact, this table has more words: they
need not mean the same (`rent` is near to `landlord`). The file is mapped into memory and sorted, so a binary search
finds a word and reads only a few lines.
"""

from __future__ import annotations

import mmap
from functools import cache, lru_cache
from pathlib import Path

TABLE = Path(__file__).with_name("related_words.txt")
_NEAREST = 9
_KEPT = 512  # words


@cache
def _table() -> mmap.mmap:
    with TABLE.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@lru_cache(_KEPT)
def related(word: str) -> tuple[tuple[str, float], ...]:
    """Return the stems near the stem `word`, the nearest first, each with its nearness: above 0, at most 1."""
    if not word.isascii() or not word.isalpha():
        return ()
    return tuple((other[:-1], int(other[-1]) / _NEAREST) for other in _line(word.encode()).decode().split())


def _line(word: bytes) -> bytes:
    """Return the rest of the line that begins with `word`."""
    table = _table()
    low, high = 0, len(table)
    while low < high:  # the line of `word`, if there is one, begins in low..high
        begin = table.rfind(b"\n", low, (low + high) // 2) + 1 or low
        end = table.find(b"\n", begin)
        name, _, others = table[begin:end].partition(b" ")
        if name == word:
            return others
        if name < word:
            low = end + 1
        else:
            high = begin
    return b""

"""Words that are near each other in meaning, as a model of sentences sees them: the vectors of words by default.

`related_words.txt` holds for each stem the nearest ones of 9,600, each with a digit from 1 to 9 for how near it is;
`scripts/related_words.py` says what it was measured with. The thesaurus knows better, this knows more: its words need
not mean the same (`rent` is near to `landlord`). The file is mapped into memory and its lines are in order, so a word
is found by halving, and only what is asked for is read.
"""

from __future__ import annotations

import mmap
from functools import cache, lru_cache
from pathlib import Path

TABLE = Path(__file__).with_name("related_words.txt")
_NEAREST = 9
_KEPT = 4096  # words


@cache
def _table() -> mmap.mmap:
    with TABLE.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@lru_cache(_KEPT)
def related(word: str) -> tuple[tuple[str, float], ...]:
    """The stems that are near to the stem `word`, the nearest first, and how near: above 0, at most 1."""
    if not word.isascii() or not word.isalpha():
        return ()
    return tuple((other[:-1], int(other[-1]) / _NEAREST) for other in _line(word.encode()).decode().split())


def _line(word: bytes) -> bytes:
    """What stands behind `word` on its line."""
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

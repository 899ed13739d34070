"""Cuts a text into the pieces that an uncased BERT knows: lower case, no accents, longest piece first."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_LONGEST_WORD = 100
_CACHED = 100_000


class WordPiece:
    """Translates a text to the numbers of its pieces in a vocabulary, between `[CLS]` and `[SEP]`."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._unknown = self._numbers["[UNK]"]
        self._begin, self._end = self._numbers["[CLS]"], self._numbers["[SEP]"]
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str, limit: int) -> list[int]:
        """Return at most `limit` numbers; the rest is cut off."""
        found = [self._begin]
        for word in split(text):
            pieces = self._cache.get(word)
            if pieces is None:
                if len(self._cache) >= _CACHED:
                    self._cache.clear()
                pieces = self._cache[word] = self._pieces(word)
            found += pieces
            if len(found) >= limit:
                break
        return [*found[: limit - 1], self._end]

    def _pieces(self, word: str) -> list[int]:
        if len(word) > _LONGEST_WORD:
            return [self._unknown]
        found: list[int] = []
        at = 0
        while at < len(word):
            mark = "##" if at else ""
            for end in range(len(word), at, -1):
                number = self._numbers.get(mark + word[at:end])
                if number is not None:
                    found.append(number)
                    at = end
                    break
            else:
                return [self._unknown]
        return found


def split(text: str) -> list[str]:
    """Split a text into words and punctuation marks; each ideograph is its own word."""
    out: list[str] = []
    for character in unicodedata.normalize("NFD", _spaced(text).lower()):
        kind = unicodedata.category(character)
        if kind == "Mn":
            continue
        out.append(f" {character} " if _is_mark(character, kind) else character)
    return "".join(out).split()


def _spaced(text: str) -> str:
    """Drop control characters, normalize white space, and put spaces around ideographs."""
    if text.isascii() and text.isprintable():
        return text
    out: list[str] = []
    for character in text:
        if character in "\t\n\r" or unicodedata.category(character) == "Zs":
            out.append(" ")
        elif unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn") or character == "\ufffd":
            continue
        else:
            out.append(f" {character} " if _is_ideograph(ord(character)) else character)
    return "".join(out)


def _is_mark(character: str, kind: str) -> bool:
    code = ord(character)
    return 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126 or kind.startswith("P")


def _is_ideograph(code: int) -> bool:
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )

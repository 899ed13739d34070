"""A pattern that finds one of many words in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterable


def any_of(words: Iterable[str]) -> bytes:
    """The pattern of one of some words. It branches letter by letter: each place of a text is left at the first letter
    that no word has, where a list of words would be tried from its beginning to its end."""
    return _branches(sorted(set(words)), 0).encode()


def _branches(words: list[str], depth: int) -> str:
    """The pattern of what some sorted words, which are the same up to a letter, have from it on."""
    by_letter: dict[str, list[str]] = {}
    for word in words:
        if len(word) > depth:
            by_letter.setdefault(word[depth], []).append(word)
    if not by_letter:
        return ""
    ways = [re.escape(letter) + _branches(some, depth + 1) for letter, some in by_letter.items()]
    has_end = len(words[0]) == depth
    return f"(?:{'|'.join(ways)}){'?' if has_end else ''}" if len(ways) > 1 or has_end else ways[0]

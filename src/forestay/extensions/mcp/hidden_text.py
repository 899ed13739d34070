"""Finds characters that a person cannot see, or sees in a different order than a model reads them.

A definition with such a character is refused; in a tool's result they are spelled out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

_BLANKS = frozenset((0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x2028, 0x2029))
_LINES = frozenset("\n\t\r")
_JOINER, _PRESENTATION = "\u200d", "\ufe0f"


def spelled(text: str) -> str:
    """Return `text` with every hidden character replaced by its number: `\\u{202e}`."""
    if text.isascii() and text.isprintable():
        return text
    hidden = set(_positions(text))
    return "".join(f"\\u{{{ord(letter):x}}}" if at in hidden else letter for at, letter in enumerate(text))


def hidden_in(value: Any, where: str = "$") -> list[str]:
    """Return the places of hidden characters in a JSON value and its keys, such as `$.description: \\u{202e}`."""
    if isinstance(value, str):
        shown = list(dict.fromkeys(f"\\u{{{ord(value[at]):x}}}" for at in _positions(value)))[:8]
        return [f"{where}: {' '.join(shown)}"] if shown else []
    if isinstance(value, dict):
        found = [f"{where}: a key with {line.partition(': ')[2]}" for key in value for line in hidden_in(str(key))]
        return found + [line for key, item in value.items() for line in hidden_in(item, f"{where}.{spelled(str(key))}")]
    if isinstance(value, list):
        return [line for at, item in enumerate(value) for line in hidden_in(item, f"{where}[{at}]")]
    return []


def _positions(text: str) -> Iterator[int]:
    for at, letter in enumerate(text):
        code = ord(letter)
        if code < 0x7F and (code >= 0x20 or letter in _LINES):
            continue
        if letter in (_JOINER, _PRESENTATION):
            if not _in_emoji(text, at):
                yield at
        elif code in _BLANKS or unicodedata.category(letter) in ("Cc", "Cf", "Co", "Cs", "Cn") or _selects(code):
            yield at


def _selects(code: int) -> bool:
    """Whether it is a variation selector; a series of them can carry hidden text."""
    return 0xFE00 <= code <= 0xFE0E or 0x180B <= code <= 0x180F or 0xE0100 <= code <= 0xE01EF


def _in_emoji(text: str, at: int) -> bool:
    """Whether a joiner or a presentation mark directly follows a symbol, and so belongs to it."""
    before = text[at - 1] if at else ""
    if text[at] == _JOINER and before == _PRESENTATION and at > 1:
        before = text[at - 2]
    return bool(before) and (unicodedata.category(before) in ("So", "Sk") or before in "0123456789#*")

"""Estimates the tokens of a value without the model's tokenizer (R42).

null and booleans cost 1; a number or a string a token for every `ratio` characters, at least 1; an array 2, its
items and its commas; an object 2 and, per member, its key, 2 and its value. Characters are graphemes: what a person
would count. Beyond 20 levels the answer is infinity; a reference back into an object that is still open costs 1.

- E1  The same value costs the same, always.
- E2  The time is linear in the size of the value; a shared part is measured once.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any, Final, Literal

MAX_DEPTH: Final = 20
Family = Literal["default", "gpt", "claude", "llama"]
RATIOS: dict[Family, float] = {"default": 4.0, "gpt": 4.0, "claude": 3.5, "llama": 3.8}

# Characters that never join their neighbours: Latin, Greek, Cyrillic, punctuation, CJK, kana. One is one grapheme.
_SIMPLE = re.compile(
    "[\t\n -~\u00a1-\u00ac\u00ae-\u02ff\u0370-\u0482\u048a-\u0530\u2010-\u2027\u2030-\u205e\u2070-\u20cf"
    "\u2190-\u2319\u3001-\u3029\u3041-\u3096\u30a0-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff01-\uff9d]*"
)
_CONTAINERS = (dict, list, tuple)
_EIGHT_DIGITS = 10**8
_DIGITS_PER_BIT = math.log10(2)


def estimate(value: Any, family: Family = "default") -> float:
    """Return the tokens of a plain JSON value: a whole number, or infinity."""
    return Estimator(RATIOS[family]).tokens(value)


def graphemes(text: str) -> int:
    """Count the characters that a person sees in `text`."""
    if text.isascii():
        return len(text) - text.count("\r\n")
    if _SIMPLE.fullmatch(text):
        return len(text)
    return len(_clusters()(text))


@functools.cache
def _clusters() -> Callable[[str], list[str]]:
    """Unicode's own segmentation, loaded when the first text needs it."""
    import regex

    find: Callable[[str], list[str]] = regex.compile(r"\X").findall
    return find


class Estimator:
    """Estimates at one ratio of characters to tokens, and remembers the keys that it measured."""

    def __init__(self, ratio: float = 4.0) -> None:
        self._ratio = ratio
        self._lengths = [max(1, math.ceil(count / ratio)) for count in range(256)]
        self._keys: dict[str, int] = {}

    def tokens(self, value: Any) -> float:
        if isinstance(value, _CONTAINERS):
            cost, height = self._container(value, {}, set())
            return cost if height <= MAX_DEPTH else math.inf
        return self.scalar(value)

    def scalar(self, value: Any) -> int:
        """Return the tokens of a string, a number, a boolean or null."""
        if isinstance(value, str):
            return self._of_length(graphemes(value))
        if value is None or isinstance(value, bool):
            return 1
        return self._of_length(_digits(value) if isinstance(value, int) else len(repr(value)))

    def key(self, name: str) -> int:
        """Return the tokens of a member's name; names repeat, so they are remembered."""
        cost = self._keys.get(name)
        if cost is None:
            cost = self._of_length(graphemes(name))
            if len(self._keys) < 4096:
                self._keys[name] = cost
        return cost

    def _of_length(self, count: int) -> int:
        return self._lengths[count] if count < 256 else math.ceil(count / self._ratio)

    def _container(self, value: Any, counted: dict[int, tuple[int, int]], path: set[int]) -> tuple[int, int]:
        """Return the cost and height of an object or an array; beyond MAX_DEPTH the caller takes infinity."""
        known = counted.get(id(value))
        if known is not None:
            return known
        if len(path) > MAX_DEPTH:
            return 0, 1  # too deep: the whole is infinite, whatever stands here
        path.add(id(value))
        if isinstance(value, dict):
            cost, items = 2 + 2 * len(value) + sum(map(self.key, value)), value.values()
        else:
            cost, items = 2 + max(0, len(value) - 1), value
        height = 1 if items else 0
        lengths, scalar = self._lengths, self.scalar
        for item in items:
            kind = type(item)
            if kind is str and len(item) < 256 and item.isascii() and "\r\n" not in item:
                cost += lengths[len(item)]
            elif kind is int and -_EIGHT_DIGITS < item < _EIGHT_DIGITS:
                cost += lengths[len(str(item))]
            elif not isinstance(item, _CONTAINERS):
                cost += scalar(item)
            elif id(item) in path:
                cost += 1
            else:
                inner, below = self._container(item, counted, path)
                cost += inner
                height = max(height, below + 1)
        path.discard(id(value))
        if len(path) + height <= MAX_DEPTH:
            counted[id(value)] = (cost, height)
        return cost, height


def _digits(value: int) -> int:
    """Count the characters of an integer without writing out a very long one."""
    bits = value.bit_length()
    if bits < 10_000:
        return len(str(value))
    return int(bits * _DIGITS_PER_BIT) + 1 + (value < 0)

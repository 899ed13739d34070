"""Removes the request from a server's text. Pure.

Some servers repeat a request when they refuse it. Events and logs quote the refusal, and they must not hold a prompt.

- Q1  No run of 32 characters of a message is quoted. Shorter runs may be: they can be the server's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

LEFT_OUT = "[…]"
_LONGEST = 1000  # characters that are checked, and then shown
_STEP = 8
_SHORTEST = 16


def unasked(text: str, asked: Sequence[str]) -> str:
    """Return the beginning of `text` without the parts that also occur in one of the texts `asked`."""
    text = text[:_LONGEST]
    kept, done = "", 0
    for at in range(0, len(text) - _STEP + 1, _STEP):
        if at < done:
            continue
        parts = [_part(text, at, done, source) for source in asked if text[at : at + _STEP] in source]
        start, end = max(parts, key=lambda part: part[1] - part[0], default=(at, at))
        if end - start >= _SHORTEST:
            kept, done = kept + text[done:start] + LEFT_OUT, end
    return kept + text[done:]


def _part(text: str, at: int, done: int, source: str) -> tuple[int, int]:
    """Return the start and end of the part of `text` around `at` that occurs in `source`."""
    room = min(at - done, _STEP - 1)
    start = at - _most(room, lambda more: text[at - more : at + _STEP] in source)
    end = at + _STEP + _most(len(text) - at - _STEP, lambda more: text[start : at + _STEP + more] in source)
    return start, end


def _most(limit: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` that holds; if one holds, all smaller ones do."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low

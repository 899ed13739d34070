"""What a server said, without what it was asked. Pure.

Some servers repeat a request in their refusal of it, and a refusal is told in events and logs, where no prompt belongs.

- Q1  No part of a message of 32 characters is quoted. Shorter ones may be: they can be the server's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

LEFT_OUT = "[…]"
_LONGEST = 1000  # characters that are looked at, and then shown
_STEP = 8
_SHORTEST = 16


def unasked(text: str, asked: Sequence[str]) -> str:
    """The beginning of `text` without the parts that stand in one of the texts `asked`."""
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
    """Where the part of `text` around `at` begins and ends that stands in `source`."""
    room = min(at - done, _STEP - 1)
    start = at - _most(room, lambda more: text[at - more : at + _STEP] in source)
    end = at + _STEP + _most(len(text) - at - _STEP, lambda more: text[start : at + _STEP + more] in source)
    return start, end


def _most(limit: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `limit` that holds; what holds for a number holds for all below it."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low

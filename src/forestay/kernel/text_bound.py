"""Cuts foreign values and texts to a size before other code reads them; a mark tells what was cut.

B1  A value that fits is returned unchanged, as the same object.
B2  A mark stands at each cut, with the original length and the length that was kept.
B3  A cut does not end inside a word, where half a secret would no longer look like one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_FEW = 16
_PLAIN = frozenset((bool, int, float))
_WORD = 256  # at most this many characters are dropped to end between two words


class Bounds(msgspec.Struct, frozen=True):
    """The limits: characters of one text and of all texts, members of one list or object, depth."""

    text: int
    total: int = 1_048_576
    items: int = 1_000
    depth: int = 64


def cut(text: str, most: int) -> str:
    """Return `text`, or its beginning with a mark (B2, B3)."""
    if len(text) <= most:
        return text
    kept = text[:most]
    if not text[most].isspace() and not kept[-1:].isspace():
        start = max(0, most - _WORD)
        found = max(kept.rfind(" ", start), kept.rfind("\n", start))
        kept = kept[: found + 1] if found >= 0 else kept
    return f"{kept}… [cut: the first {len(kept)} of {len(text)} characters]"


def bounded(value: Any, bounds: Bounds) -> Any:
    """Return `value` within its bounds: cut texts, lists and objects, and leave out what is nested too deep."""
    if isinstance(value, dict) and len(value) <= _FEW and _is_small(value, bounds):
        return value
    return _Walk(bounds).of(value, 0)


def _is_small(value: dict[Any, Any], bounds: Bounds) -> bool:
    """Whether there are only a few short texts and numbers, as in most details of a Problem."""
    most = min(bounds.text, bounds.total // (2 * _FEW))
    for key, item in value.items():
        if type(key) is not str or len(key) > most:
            return False
        if item is not None and type(item) not in _PLAIN and (type(item) is not str or len(item) > most):
            return False
    return len(value) <= bounds.items and bounds.depth > 0


class _Walk:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left = bounds.total

    def of(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, self._bounds.text)
        if not isinstance(value, Mapping | list | tuple):
            self._left -= 1
            return value
        if depth >= self._bounds.depth:
            return f"[cut: nested deeper than {self._bounds.depth}]"
        kept = self._members(value, depth) if isinstance(value, Mapping) else self._elements(value, depth)
        return value if kept is None else kept

    def _text(self, text: str, most: int) -> str:
        kept = cut(text, max(0, min(most, self._left)))
        self._left -= len(text) if kept is text else len(kept)
        return kept

    def _members(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any] | None:
        """Return the members that fit, or None when all fit unchanged (B1)."""
        found: dict[str, Any] = {}
        changed = False
        for key, item in value.items():
            if len(found) >= self._bounds.items or self._left <= 0:
                return {**found, "…": f"[cut: {len(found)} of {len(value)} members]"}
            name, kept = self._text(str(key), self._bounds.text), self.of(item, depth + 1)
            changed = changed or name is not key or kept is not item
            found[name] = kept
        return found if changed else None

    def _elements(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any] | None:
        found: list[Any] = []
        changed = False
        for item in value:
            if len(found) >= self._bounds.items or self._left <= 0:
                return [*found, f"[cut: {len(found)} of {len(value)} elements]"]
            kept = self.of(item, depth + 1)
            changed = changed or kept is not item
            found.append(kept)
        return found if changed else None

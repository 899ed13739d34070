"""Cuts a JSON value to a given room, and reports what was cut (R40).

- T1  The kept part costs no more than the room, in tokens and in bytes.
- T2  An array loses items from its end, an object loses members; what is kept is unchanged and in its order,
      except that `hybrid` may shorten a string.
- T3  Every place where something is missing is counted, and the first of them are named.
- T4  The time is linear in the size of the value, but for sorting the members of objects that are cut.

The strategies differ in what an object keeps first. `depth_first` keeps shallow members, so the deepest parts go.
`field_priority` keeps the members that identify a thing, then the others in order. `hybrid` keeps those members, then
the shallow and cheap ones, and shortens long strings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from forestay.envelope.token_estimate import Estimator

Strategy = Literal["depth_first", "field_priority", "hybrid"]
PRIORITY = ("id", "name", "success", "code", "message")
MAX_PATHS = 10
_MAX_HEIGHT = 120
_SHORTENED = "…"
_encode = msgspec.json.Encoder().encode


class Size(NamedTuple):
    """Tokens, bytes and levels of a value."""

    tokens: float
    bytes: float
    height: int = 0


class Cut(msgspec.Struct):
    """What was cut: the number of places, and the paths of the first ones."""

    count: int = 0
    paths: list[str] = msgspec.field(default_factory=list)

    def note(self, path: str) -> None:
        self.count += 1
        if len(self.paths) < MAX_PATHS:
            self.paths.append(path)


class Room:
    """The tokens, bytes and levels that are left."""

    def __init__(self, tokens: float, bytes: float, levels: int) -> None:
        self.tokens = tokens
        self.bytes = bytes
        self.levels = levels

    def holds(self, size: Size, depth: int, tokens: int = 0, bytes: int = 0) -> bool:
        return (
            size.tokens + tokens <= self.tokens
            and size.bytes + bytes <= self.bytes
            and depth + size.height <= self.levels
        )

    def take(self, size: Size, tokens: int = 0, bytes: int = 0) -> None:
        self.tokens -= size.tokens + tokens
        self.bytes -= size.bytes + bytes


class Truncation:
    """Cuts values into a room, and notes what was cut."""

    def __init__(self, strategy: Strategy, estimator: Estimator) -> None:
        self.cut = Cut()
        self._strategy = strategy
        self._estimator = estimator
        self._sizes: dict[int, Size] = {}
        self._key_bytes: dict[str, int] = {}

    def apply(self, value: Any, room: Room, path: str, depth: int) -> Any:
        """Return the part of an object or array that fits into `room`; `depth` is its level in the whole answer."""
        if room.holds(self.size(value), depth):
            room.take(self.size(value))
            return value
        empty = Size(2, 2)
        if not room.holds(empty, depth):
            self.cut.note(path)
            return None
        room.take(empty)
        if isinstance(value, dict):
            return self._object(value, room, path, depth)
        return self._array(value, room, path, depth)

    def size(self, value: Any) -> Size:
        if not isinstance(value, (dict, list)):
            return Size(self._estimator.scalar(value), len(_encode(value)))
        known = self._sizes.get(id(value))
        if known is None:
            known = self._sizes[id(value)] = self._measure(value, 0)
        return known

    def _measure(self, value: dict[str, Any] | list[Any], depth: int) -> Size:
        if depth > _MAX_HEIGHT:
            return Size(math.inf, math.inf, depth)
        tokens, size, height = 2.0, 2.0, 0
        pairs: Iterable[tuple[str | None, Any]]
        pairs = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for name, item in pairs:
            if isinstance(item, (dict, list)):
                inner = self._sizes[id(item)] = self._measure(item, depth + 1)
            else:
                inner = self.size(item)
            key_tokens, key_bytes = self._key(name)
            tokens += inner.tokens + key_tokens
            size += inner.bytes + key_bytes
            height = max(height, inner.height + 1)
        return Size(tokens, size, height)

    def _key(self, name: str | None) -> tuple[int, int]:
        """Return the tokens and bytes of a member beside its value: its name and its separators."""
        if name is None:
            return 1, 1
        written = self._key_bytes.get(name)
        if written is None:
            written = self._key_bytes[name] = len(_encode(name)) + 2
        return self._estimator.key(name) + 2, written

    def _array(self, items: list[Any], room: Room, path: str, depth: int) -> list[Any]:
        kept: list[Any] = []
        for index, item in enumerate(items):
            size = self.size(item)
            if room.holds(size, depth + 1, 1, 1):
                room.take(size, 1, 1)
                kept.append(item)
                continue
            if index == 0:  # better a part of the first item than nothing
                self._keep_part(None, item, room, f"{path}[0]", depth, kept)
            if len(kept) < len(items):
                self.cut.note(f"{path}[{len(kept)}:]")
            return kept
        return kept

    def _object(self, members: dict[str, Any], room: Room, path: str, depth: int) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name in self._order(members):
            item = members[name]
            size = self.size(item)
            key_tokens, key_bytes = self._key(name)
            if room.holds(size, depth + 1, key_tokens, key_bytes):
                room.take(size, key_tokens, key_bytes)
                kept[name] = item
                continue
            part: list[Any] = []
            self._keep_part(name, item, room, f"{path}.{name[:40]}", depth, part)
            if part:
                kept[name] = part[0]
            else:
                self.cut.note(f"{path}.{name[:40]}")
        return {name: kept[name] for name in members if name in kept}

    def _keep_part(self, name: str | None, item: Any, room: Room, path: str, depth: int, into: list[Any]) -> None:
        """Append the part of `item` that fits to `into`; nothing when not even its brackets fit."""
        key_tokens, key_bytes = self._key(name)
        if isinstance(item, (dict, list)):
            if item and room.holds(Size(2, 2, 1), depth + 1, key_tokens, key_bytes):
                room.take(Size(0, 0), key_tokens, key_bytes)
                into.append(self.apply(item, room, path, depth + 1))
        elif isinstance(item, str) and self._strategy == "hybrid":
            short = self._shorten(item, room, depth, key_tokens, key_bytes)
            if short is not None:
                room.take(self.size(short), key_tokens, key_bytes)
                into.append(short)
                self.cut.note(f"{path} (shortened)")

    def _shorten(self, text: str, room: Room, depth: int, key_tokens: int, key_bytes: int) -> str | None:
        """Return the longest start of `text`, with a mark, that fits; None when fewer than 8 characters fit."""
        low, high = 8, len(text) - 1
        best: str | None = None
        while low <= high:
            middle = (low + high) // 2
            candidate = text[:middle] + _SHORTENED
            if room.holds(self.size(candidate), depth + 1, key_tokens, key_bytes):
                best, low = candidate, middle + 1
            else:
                high = middle - 1
        return best

    def _order(self, members: dict[str, Any]) -> list[str]:
        names = list(members)
        if self._strategy == "depth_first":
            return sorted(names, key=lambda name: self.size(members[name]).height)
        first = [name for name in PRIORITY if name in members]
        rest = [name for name in names if name not in PRIORITY]
        if self._strategy == "hybrid":
            rest.sort(key=lambda name: self.size(members[name])[2::-2])  # height, then tokens
        return first + rest

"""Summarizes repeated calls of an extension in one record, with the first, the last and their number.

F1  An extension's first calls, and one more each second, get their full records. Only further calls are summarized.
F2  Only repeats are summarized: the same call, with the same decision and outcome, already has a full record.
F3  A count is written a second after its first call, when somebody waits for the evidence, and before any other record
    of the same extension: so the stream keeps the order of events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FULL_CALLS = 1_000  # at once
FULL_PER_SECOND = 1.0
WINDOW_MS = 1_000
MAX_KNOWN = 4_096  # remembered calls of one extension; beyond that, they get full records again

Key = tuple[Any, ...]


class Count:
    """Counts one call within a window."""

    __slots__ = ("count", "data", "duration", "first", "first_id", "last", "last_id")

    def __init__(self, data: dict[str, Any], at: int, id: str) -> None:
        self.data = data
        self.first, self.first_id = at, id
        self.last, self.last_id = at, id
        self.count = 0
        self.duration = 0.0

    def told(self) -> dict[str, Any]:
        return {
            **self.data,
            "count": self.count,
            "first": self.first,
            "last": self.last,
            "first_call": self.first_id,
            "last_call": self.last_id,
            "duration_ms": round(self.duration, 3),
        }


class Repeats:
    """The repeats of one extension; the caller holds a lock."""

    def __init__(self, now_ms: int) -> None:
        self._full = 0.0  # the caller does not ask about an extension's first calls
        self._then = now_ms
        self._known: set[Key] = set()
        self._open: dict[Key, Count] = {}
        self._since = now_ms

    def in_full(self, now_ms: int) -> bool:
        """Whether the next call gets full records in any case (F1)."""
        passed = now_ms - self._then
        if passed:
            self._then = now_ms
            self._full = min(float(FULL_CALLS), self._full + max(0, passed) / 1000 * FULL_PER_SECOND)
        if self._full < 1.0:
            return False
        self._full -= 1.0
        return True

    def take(self, key: Key, summary: Callable[[], dict[str, Any]], at: int, id: str, duration: float) -> bool:
        """Count a call that already has a full record; return False when it needs one (F2)."""
        if key not in self._known:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known.add(key)
            return False
        if not self._open:
            self._since = at
        if key not in self._open:
            self._open[key] = Count(summary(), at, id)
        return self.again(key, at, id, duration)

    def again(self, key: Key, at: int, id: str, duration: float) -> bool:
        """Count a call that is already counted in this window; return False when it is not."""
        count = self._open.get(key)
        if count is None:
            return False
        count.last, count.last_id = at, id
        count.count += 1
        count.duration += duration
        return True

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def is_due(self, now_ms: int) -> bool:
        return bool(self._open) and now_ms - self._since >= WINDOW_MS

    def close(self) -> list[Count]:
        """Return the counts in the order of their first calls, and start anew (F3)."""
        counts, self._open = sorted(self._open.values(), key=lambda count: count.first), {}
        return counts

"""Decides whether a call may begin on the event loop's own thread, from earlier calls of the same tool."""

from __future__ import annotations

SHORT = 500e-6
"""After a call that took fewer processor seconds, the next one may begin on the loop's thread."""
_MOST = 6


class Pace:
    """The history of one tool.

    Its first call runs on a thread. After a short call, the next one begins on the loop's thread. A call that must move
    from there keeps the following calls away: two, then four, at most 64.
    """

    __slots__ = ("_away", "_misses", "_short")

    def __init__(self) -> None:
        self._short = False
        self._misses = self._away = 0

    @property
    def is_short(self) -> bool:
        return self._short and not self._away

    def took(self, seconds: float) -> None:
        """Note a call on a thread, and its processor time."""
        self._short = seconds < SHORT
        self._away = max(0, self._away - 1)

    def ended(self) -> None:
        """Note a call that ended on the loop's thread."""
        self._misses = 0

    def moved(self) -> None:
        """Note a call that had to leave the loop's thread."""
        self._misses = min(self._misses + 1, _MOST)
        self._away = 1 << self._misses

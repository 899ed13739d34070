"""Whether a call may begin on the event loop's own thread: how the calls of the same tool went before."""

from __future__ import annotations

SHORT = 500e-6
"""Seconds of the processor that a call may have taken for the next one to begin on the loop's thread."""
_MOST = 6


class Pace:
    """What is known of one tool.

    Its first call runs on a thread. One that was short lets the next one begin on the loop's thread. A call that has to
    be moved from there keeps the next ones away: two, then four, at most 64 of them.
    """

    __slots__ = ("_away", "_misses", "_short")

    def __init__(self) -> None:
        self._short = False
        self._misses = self._away = 0

    @property
    def is_short(self) -> bool:
        return self._short and not self._away

    def took(self, seconds: float) -> None:
        """A call ran on a thread, and took so much of the processor."""
        self._short = seconds < SHORT
        self._away = max(0, self._away - 1)

    def ended(self) -> None:
        """A call ended on the loop's thread, where it began."""
        self._misses = 0

    def moved(self) -> None:
        """A call had to go on elsewhere."""
        self._misses = min(self._misses + 1, _MOST)
        self._away = 1 << self._misses

"""How an extension shows that something is under way: a message behind an indicator of one or several frames.

W1  There are at most so many frames, each on one line, and an indicator does not change faster than it can be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORKING = ("setWorkingMessage", "setWorkingVisible", "setWorkingIndicator")
FRAMES, FRAME = 60, 40
FASTEST_MS, SLOWEST_MS, USUAL_MS = 50, 10_000, 80


class Working:
    """What one extension shows of it; `interval_ms` is how long a frame stands."""

    def __init__(self) -> None:
        self._message, self._is_visible = "", True
        self._frames: list[str] = []
        self.interval_ms = USUAL_MS

    def heard(self, operation: str, params: Mapping[str, Any]) -> str:
        """What is shown now; empty: nothing."""
        if operation == "setWorkingMessage":
            self._message = str(params.get("message") or "")
        elif operation == "setWorkingVisible":
            self._is_visible = params.get("visible") is not False
        else:
            options = params.get("options")
            self._indicate(options if isinstance(options, Mapping) else {})
        return self.line()

    def _indicate(self, options: Mapping[str, Any]) -> None:
        frames, interval = options.get("frames"), options.get("intervalMs")
        self._frames = [str(frame)[:FRAME] for frame in frames[:FRAMES]] if isinstance(frames, list) else []
        wanted = interval if isinstance(interval, int | float) else USUAL_MS
        self.interval_ms = int(min(max(wanted, FASTEST_MS), SLOWEST_MS))

    def line(self, number: int = 0) -> str:
        """The message behind frame `number`, counted round and round."""
        frame = self._frames[number % len(self._frames)] if self._frames else ""
        return f"{frame} {self._message}".strip() if self._is_visible and self._message else ""

    @property
    def lines(self) -> list[str]:
        """One line for each frame, where there are several; else none."""
        count = len(self._frames) if self.line() else 0
        return [self.line(number) for number in range(count)] if count > 1 else []

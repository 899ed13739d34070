"""An extension's sign that it is working: a message behind an indicator of one or more frames.

W1  The number and length of frames are limited, each is one line, and frames change no faster than a person can see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORKING = ("setWorkingMessage", "setWorkingVisible", "setWorkingIndicator")
FRAMES, FRAME = 60, 40
FASTEST_MS, SLOWEST_MS, USUAL_MS = 50, 10_000, 80


class Working:
    """The state of one extension's indicator; a frame stays for `interval_ms`."""

    def __init__(self) -> None:
        self._message, self._is_visible = "", True
        self._frames: list[str] = []
        self.interval_ms = USUAL_MS

    def heard(self, operation: str, params: Mapping[str, Any]) -> str:
        """Apply an operation; return the line to show now (empty: nothing)."""
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
        """Return the message behind frame `number`, modulo the number of frames."""
        frame = self._frames[number % len(self._frames)] if self._frames else ""
        return f"{frame} {self._message}".strip() if self._is_visible and self._message else ""

    @property
    def lines(self) -> list[str]:
        """One line for each frame when there are several, else none."""
        count = len(self._frames) if self.line() else 0
        return [self.line(number) for number in range(count)] if count > 1 else []

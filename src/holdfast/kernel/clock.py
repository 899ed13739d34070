"""Time as an object that is passed in.

`SystemClock` is the machine's. `ManualClock` stands still until every task waits, and then jumps to the
next deadline: run a test with `ManualClock().run(main())` and `asyncio.sleep(3600)` inside it costs nothing.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for records, monotonic time for durations. Waiting is asyncio's."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment, never going back."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only by `advance`, or by itself inside `run` when nothing else can happen."""

    def __init__(self, start_ms: int = 1_767_225_600_000, *, threshold: float = 0.005) -> None:
        self._start_ms = start_ms
        self._elapsed = 0.0
        self._threshold = threshold

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not go back")
        self._elapsed += seconds

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` on a loop that lives in this clock's time."""
        with asyncio.Runner(loop_factory=lambda: _ManualLoop(self, self._threshold)) as runner:
            return runner.run(main)


class _ManualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a ManualClock's: when it would wait for a timer, the clock jumps instead."""

    def __init__(self, clock: ManualClock, threshold: float) -> None:
        self._manual_clock = clock
        super().__init__(_JumpingSelector(clock, threshold))

    def time(self) -> float:
        return self._manual_clock.monotonic()


class _JumpingSelector(selectors.DefaultSelector):
    """Waits `threshold` real seconds for other threads to report, then lets the clock jump."""

    def __init__(self, clock: ManualClock, threshold: float) -> None:
        super().__init__()
        self._clock = clock
        self._threshold = threshold

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(self._threshold)
        if not events:
            self._clock.advance(timeout)
        return events


def iso(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds, as every contract writes time."""
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def parse_iso(text: str) -> int:
    """Milliseconds of an RFC 3339 time; ValueError when it is none or has no zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs a zone")
    return round(moment.timestamp() * 1000)

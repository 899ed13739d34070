"""Time as an object that is passed in.

`SystemClock` is the machine's, `SharedClock` one that several machines have in common. `ManualClock` stands still until
every task waits, and then jumps to the next deadline: run a test with `ManualClock().run(main())` and
`asyncio.sleep(3600)` inside it costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from forestay.kernel.problems import Problem

T = TypeVar("T")
# How long a manual clock waits for a thread before it jumps all the same: the thread may be waiting for the clock.
_PATIENCE = 30.0
_ON_ITS_WAY_MS = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Wall time for records, monotonic time for durations. Waiting is asyncio's."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment, never going back."""


class SystemClock:
    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SharedClock:
    """The machine's clock, set by another that several machines share: what one of them writes down for a moment to
    come, another finds at that moment, however wrong their own clocks are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind = 0
        self.monotonic = clock.monotonic  # durations are the machine's own

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._behind

    def set(self, now_ms: int) -> None:
        """Go by a clock that says `now_ms`; what the answer took on its way is no difference."""
        behind = now_ms - self._clock.now_ms()
        if abs(behind - self._behind) > _ON_ITS_WAY_MS:
            self._behind = behind


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

    def jump(self, seconds: float) -> None:
        """Advance because the loop has nothing to do before then."""
        self.advance(seconds)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` on a loop that lives in this clock's time."""
        import asyncio

        with asyncio.Runner(loop_factory=lambda: _manual_loop(self, self._threshold)) as runner:
            return runner.run(main)


def _manual_loop(clock: ManualClock, threshold: float) -> Any:
    """An event loop whose time is the clock's: when it would wait for a timer, the clock jumps instead.

    It is made here, and not at import, because most programs that ask for the time never start a loop.
    """
    import asyncio
    import selectors

    class JumpingSelector(selectors.DefaultSelector):
        """Waits for the threads that work for this loop, then lets the clock jump."""

        def select(self, timeout: float | None = None) -> Any:
            if timeout is None or timeout <= 0:
                return super().select(timeout)
            events = super().select(threshold)
            patience = time.monotonic() + min(timeout, _PATIENCE)
            while not events and loop.outside and time.monotonic() < patience:
                events = super().select(threshold)
            if not events:
                clock.jump(timeout)
            return events

    class ManualLoop(asyncio.SelectorEventLoop):
        outside = 0  # pieces of work that other threads do for this loop

        def time(self) -> float:
            return clock.monotonic()

        def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
            future = super().run_in_executor(executor, func, *args)
            self.outside += 1
            future.add_done_callback(self._came_back)
            return future

        def _came_back(self, _future: Any) -> None:
            self.outside -= 1

    loop = ManualLoop(JumpingSelector())
    return loop


@contextmanager
def outside_work(loop: Any) -> Iterator[None]:
    """While another thread works for `loop`: a manual clock does not jump meanwhile, any other does not notice."""
    count_outside(loop, 1)
    try:
        yield
    finally:
        count_outside(loop, -1)


def count_outside(loop: Any, change: int) -> None:
    """`outside_work` for work that begins in one function and ends in another."""
    if counts_outside(loop):
        loop.outside += change


def counts_outside(loop: Any) -> bool:
    """Whether `loop` is told of work outside: who often has some asks once."""
    return hasattr(loop, "outside")


def iso(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds, as every contract writes time."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """The same second is written many times in a row."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def parse_iso(text: str) -> int:
    """Milliseconds of an RFC 3339 time; ValueError when it is none, has no zone, or is none that `iso` can write."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs a zone")
    try:
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except OverflowError as error:
        raise ValueError("a time is in the years 1 to 9999, in UTC too") from error


def bound_of(text: str, at: str) -> int:
    """As `moment_of`, to compare with: in the first and the last year the zone, which may lead out, does not count."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and moment.year in (1, 9999):
            return (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        pass  # told below
    return moment_of(text, at)


def moment_of(text: str, at: str) -> int:
    """As `parse_iso`, of what a caller sent: a Problem at `at` when it is no time."""
    try:
        return parse_iso(text)
    except ValueError as error:
        name = at.removeprefix("$.")
        raise Problem("schema_mismatch", f"{name} is not an RFC 3339 time with a zone.", at=at) from error

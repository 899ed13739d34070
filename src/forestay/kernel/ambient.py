"""What differs from one run of a program to the next, as objects that are passed in: time, randomness and ids.

`SystemClock` is the machine's, `SharedClock` one that several machines have in common. `ManualClock` stands still until
every task waits, and then jumps to the next deadline: run a test with `ManualClock().run(main())` and
`asyncio.sleep(3600)` inside it costs nothing.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from forestay.kernel.problems import Problem

T = TypeVar("T")
# How long a manual clock waits for a thread before it jumps: the thread may itself wait for the clock.
_PATIENCE = 30.0
_ON_ITS_WAY_MS = 200
JUMP_MS = 1_000
"""The wall clock went this much further than the machine's own: it was set, or the machine slept."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: sorts as the number does
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_SHIFTS = range(110, -1, -10)


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
        """Follow a clock that says `now_ms`. A difference as small as the answer's way is ignored."""
        behind = now_ms - self._clock.now_ms()
        if abs(behind - self._behind) > _ON_ITS_WAY_MS:
            self._behind = behind


class Watch:
    """Reads a clock, and sees it jump ahead of the machine's own time: `missed_ms` is the sum of all jumps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms, self._monotonic = clock.now_ms(), clock.monotonic()
        self.missed_ms = 0

    def look(self) -> int:
        """What time it is, now that all jumps up to this moment are counted."""
        wall_ms, monotonic = self._clock.now_ms(), self._clock.monotonic()
        jump = round(wall_ms - self._wall_ms - (monotonic - self._monotonic) * 1000)
        self._wall_ms, self._monotonic = wall_ms, monotonic
        if jump > JUMP_MS:
            self.missed_ms += jump
        return wall_ms


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
    """Whether `loop` counts work outside. A caller that often has such work asks once."""
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


class Randomness(Protocol):
    def bytes(self, count: int) -> bytes: ...

    def uniform(self) -> float:
        """A number in [0, 1)."""


class SystemRandomness:
    """The operating system's generator: for keys, tokens and ids."""

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self) -> float:
        return int.from_bytes(os.urandom(7), "big") / (1 << 56)


class SeededRandomness:
    """The same numbers for the same seed: for tests, replays and jitter that must be repeatable."""

    def __init__(self, seed: int | str | bytes = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatability is the purpose

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self) -> float:
        return self._random.random()


class Ids:
    """Makes 26-character ids that sort by time: 48 bits of milliseconds, 80 bits of randomness.

    Ids made in the same millisecond count up, so that one maker's ids are strictly increasing.
    """

    def __init__(self, clock: Clock | None = None, randomness: Randomness | None = None) -> None:
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._lock = threading.Lock()
        self._last_ms = -1
        self._last = 0

    def new(self, prefix: str = "") -> str:
        """A new id, `prefix_…` when a prefix is given."""
        (text,) = self.several(1)
        return f"{prefix}_{text}" if prefix else text

    def several(self, count: int) -> list[str]:
        """New ids in a row, without a prefix."""
        with self._lock:
            now = self._clock.now_ms()
            if now > self._last_ms:
                self._last_ms = now
                # The top bit stays free, so that counting up cannot overflow into the time.
                first = (now << 80) | (int.from_bytes(self._randomness.bytes(10), "big") >> 1)
            else:
                first = self._last + 1
            self._last = first + count - 1
        return _in_a_row(first, count)

    def uuid4(self) -> str:
        return str(uuid.UUID(bytes=self._randomness.bytes(16), version=4))

    def token(self, count: int = 32) -> str:
        """`count` random bytes in hex: unguessable when the randomness is."""
        return self._randomness.bytes(count).hex()


def _in_a_row(first: int, count: int) -> list[str]:
    """`count` numbers from `first` on, in base 32. They differ in their last digits: the others are made once."""
    if count == 1:
        return [_base32(first >> 10) + _PAIRS[first & 1023]]
    texts: list[str] = []
    while len(texts) < count:
        start = first + len(texts)
        place = start & 1023
        front = _base32(start >> 10)
        texts += [front + pair for pair in _PAIRS[place : place + count - len(texts)]]
    return texts


@lru_cache(maxsize=4)
def _base32(number: int) -> str:
    """The first 24 digits of an id. Ids of the same millisecond have them in common."""
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])

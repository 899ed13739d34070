"""What a VM can learn from outside while it runs: time, chance, the time zone, synchronous host calls.

All of it passes through one object, so that a run can be recorded and repeated (Pi §1A.4.6).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from forestay.kernel import Clock, Randomness, SystemClock, SystemRandomness

_TICKS_A_SECOND = 10_000


class VmInputs(Protocol):
    """The host of a VM, and the clock of its loop."""

    touched: bool
    """Whether anything was asked: a VM that asked nothing may be kept and used again for another session."""

    def now_ms(self) -> int:
        """The loop's time: monotonic, in milliseconds."""

    def tick_time(self) -> int:
        """The same, where it decides what happens: a trace has it."""

    def clock_ns(self, monotonic: bool) -> int: ...
    def random(self, count: int) -> bytes: ...
    def timezone_offset(self, seconds: int) -> int: ...
    def sync(self, request: bytes) -> bytes: ...


class RealInputs:
    """The machine's clock, chance and zone; `answer` performs a synchronous host call."""

    def __init__(
        self,
        answer: Callable[[bytes], bytes],
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        zone: Callable[[int], int] | None = None,
    ) -> None:
        self.touched = False
        self._answer = answer
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._zone = zone or local_offset
        self._began = self._clock.monotonic()

    def now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def tick_time(self) -> int:
        return self.now_ms()

    def clock_ns(self, monotonic: bool) -> int:
        self.touched = True
        if not monotonic:
            return self._clock.now_ms() * 1_000_000
        # Since this VM began, and coarse: a fine clock would tell an extension of what others do (Pi §2A.4).
        return int((self._clock.monotonic() - self._began) * _TICKS_A_SECOND) * (1_000_000_000 // _TICKS_A_SECOND)

    def random(self, count: int) -> bytes:
        self.touched = True
        return self._randomness.bytes(count)

    def timezone_offset(self, seconds: int) -> int:
        self.touched = True
        return self._zone(seconds)

    def sync(self, request: bytes) -> bytes:
        self.touched = True
        return self._answer(request)


def local_offset(seconds: int) -> int:
    """Seconds east of UTC at that moment, as the machine's zone has it; 0 for moments beyond its calendar."""
    try:
        return time.localtime(seconds).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        return 0

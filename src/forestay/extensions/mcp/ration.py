"""Limits a server's unsolicited messages: a burst at once, then a rate for each second."""

from __future__ import annotations

from forestay.kernel import Clock

BURST = 2000
PER_SECOND = 200


class Ration:
    """A token bucket, which refills with time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._since = clock.monotonic()

    def take(self) -> bool:
        """Count one message; return whether it is within the ration."""
        now = self._clock.monotonic()
        self._left = min(BURST, self._left + (now - self._since) * PER_SECOND)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

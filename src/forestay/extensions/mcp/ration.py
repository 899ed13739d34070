"""How much a server may say that nobody asked for: so many messages at once, so many a second after that."""

from __future__ import annotations

from forestay.kernel import Clock

BURST = 2000
PER_SECOND = 200


class Ration:
    """A bucket that time fills again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._since = clock.monotonic()

    def take(self) -> bool:
        """Whether one more message is within the ration; it is counted."""
        now = self._clock.monotonic()
        self._left = min(BURST, self._left + (now - self._since) * PER_SECOND)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

"""Identifiers and randomness as objects that are passed in."""

from __future__ import annotations

import os
import random
import threading
import uuid
from functools import lru_cache
from typing import Protocol

from forestay.kernel.clock import Clock, SystemClock

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: sorts as the number does
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_SHIFTS = range(110, -1, -10)


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

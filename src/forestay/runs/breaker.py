"""A circuit breaker for each receiver: one that keeps failing gets no requests for a while, then a single trial.

It is pure: callers pass the time. Nothing is on disk; after a restart every receiver is tried again.
"""

from __future__ import annotations

import msgspec

FAILURES = 5
FIRST_PAUSE_MS = 30_000
LONGEST_PAUSE_MS = 600_000


class _Circuit(msgspec.Struct):
    failures: int = 0
    pause_ms: int = 0
    open_until: int = 0
    trying: bool = False


class Breaker:
    """Opens a receiver's circuit after `FAILURES` in a row, for a pause that doubles with every failed trial."""

    def __init__(self) -> None:
        self._circuits: dict[str, _Circuit] = {}

    def allows(self, receiver: str, now: int) -> bool:
        """Whether a request may be sent now; after the pause one may, and no other until its outcome is known."""
        circuit = self._circuits.get(receiver)
        if circuit is None or circuit.pause_ms == 0:
            return True
        return now >= circuit.open_until and not circuit.trying

    def began(self, receiver: str) -> None:
        if (circuit := self._circuits.get(receiver)) is not None and circuit.pause_ms:
            circuit.trying = True

    def ended(self, receiver: str, ok: bool, now: int) -> None:
        if ok:
            self._circuits.pop(receiver, None)
            return
        circuit = self._circuits.setdefault(receiver, _Circuit())
        circuit.failures += 1
        if circuit.failures >= FAILURES and (circuit.trying or circuit.pause_ms == 0):
            circuit.pause_ms = min(circuit.pause_ms * 2 or FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
            circuit.open_until = now + circuit.pause_ms
        circuit.trying = False

    def opens_at(self, receiver: str) -> int | None:
        """Return when an open circuit allows its next trial; None for a closed one."""
        circuit = self._circuits.get(receiver)
        return circuit.open_until if circuit is not None and circuit.pause_ms else None

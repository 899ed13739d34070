"""The time limit of one request to a server: silence ends it; progress and the host's own answers extend it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Self

LAST_MOMENT = 10.0
"""A request may take at most this many times its normal time, despite progress."""


class RequestTime:
    """The time limit of one request (K1). It is in the `waits` of its connection while the request runs."""

    def __init__(self, seconds: float, waits: set[RequestTime]) -> None:
        now = _now()
        self._limit = asyncio.timeout_at(now + seconds)
        self._seconds = seconds
        self._waits = waits
        self._last = now + seconds * LAST_MOMENT
        self._held_at: float | None = None

    async def __aenter__(self) -> Self:
        self._waits.add(self)
        await self._limit.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._waits.discard(self)
        await self._limit.__aexit__(*error)

    async def heard(self, progress: float, total: float | None, message: str | None) -> None:
        """Restart the time at progress, up to the last moment."""
        if self._held_at is None and not self._limit.expired():
            self._limit.reschedule(min(_now() + self._seconds, self._last))

    def hold(self) -> bool:
        """Stop the time; return False when it is already stopped or over."""
        if self._held_at is not None or self._limit.expired():
            return False
        self._held_at = _now()
        self._limit.reschedule(None)
        return True

    def go_on(self) -> None:
        assert self._held_at is not None, "only a stopped time can continue"
        self._last += _now() - self._held_at
        self._held_at = None
        with contextlib.suppress(RuntimeError):  # the request has already ended
            self._limit.reschedule(min(_now() + self._seconds, self._last))


def _now() -> float:
    return asyncio.get_running_loop().time()

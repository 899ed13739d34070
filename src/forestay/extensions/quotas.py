"""What one extension may use of the host, counted. One that passes a quota is stopped with a Problem that names it.

Q1  Each extension has its own counts: one that is stopped takes nothing from another.
Q2  Bytes are counted over a day that begins with the first of them; what a session keeps is counted as long as it is
    kept. Calls are a bucket: so many a second, and twenty seconds' worth of them at once.
Q3  A quota is passed once; from then on the extension is off until a person loads it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from forestay.kernel import Clock, ExtensionQuotas, Problem, SystemClock

Kind = Literal["evidence", "log", "storage", "session"]
BURST_SECONDS = 20
DAY = 86_400.0
_MB = 1_048_576
_TOLD = {
    "evidence": "left {used} MB of evidence within a day",
    "log": "logged {used} MB within a day",
    "storage": "wrote {used} MB to files within a day",
    "session": "gave the session and its notices {used} MB to keep",
}


class Meter:
    """The counts of one extension."""

    __slots__ = ("calls", "since", "spent", "then")

    def __init__(self, now: float, burst: float) -> None:
        self.calls = burst  # that it may make at once
        self.then = now
        self.since: dict[str, float] = {}
        self.spent: dict[str, int] = {}


class Quotas:
    """Counts what extensions use; `over(extension, problem)` hears of the first quota that one of them passes."""

    def __init__(
        self,
        limits: ExtensionQuotas,
        over: Callable[[str, Problem], None],
        *,
        clock: Clock | None = None,
    ) -> None:
        self._limits = limits
        self._over = over
        self._clock = clock or SystemClock()
        self._burst = float(limits.calls_per_second * BURST_SECONDS)
        self._meters: dict[str, Meter] = {}
        self._lock = threading.Lock()
        self.passed: dict[str, Problem] = {}

    def check(self, extension: str) -> None:
        """Raise the Problem of an extension that was stopped (Q3)."""
        problem = self.passed.get(extension)
        if problem is not None:
            raise Problem(problem.key, problem.message, **problem.details)

    def call(self, extension: str, now: float) -> None:
        """Count one host call; raises when the extension is stopped, or by this call passes its rate."""
        if self.passed:
            self.check(extension)
        meter = self._meters.get(extension) or self._meter(extension, now)
        rate = self._limits.calls_per_second
        left = min(self._burst, meter.calls + (now - meter.then) * rate) - 1.0
        meter.calls, meter.then = left, now
        if left < 0:
            told = f"made more than {rate} host calls a second for {BURST_SECONDS} seconds"
            self._pass(extension, "calls_per_second", told, rate)
            self.check(extension)

    def spend(self, extension: str, kind: Kind, size: int) -> None:
        """Count bytes; `over` hears of it when there are too many."""
        now = self._clock.monotonic()
        with self._lock:
            meter = self._meters.get(extension) or self._meter(extension, now)
            if kind != "session" and now - meter.since.setdefault(kind, now) >= DAY:
                meter.since[kind], meter.spent[kind] = now, 0
            used = meter.spent[kind] = meter.spent.get(kind, 0) + size
        setting = f"{kind}_mb"
        limit: int = getattr(self._limits, setting)
        if used > limit * _MB:
            self._pass(extension, setting, _TOLD[kind].format(used=used // _MB), limit)

    def _meter(self, extension: str, now: float) -> Meter:
        return self._meters.setdefault(extension, Meter(now, self._burst))

    def _pass(self, extension: str, setting: str, told: str, limit: int) -> None:
        name = f"extensions.quotas.{setting}"
        problem = Problem(
            "quota_exceeded",
            f"{extension} {told}; its quota is {limit} ({name}). It was stopped.",
            extension=extension,
            quota=setting,
            limit=limit,
            setting=name,
            fix=f"Read what it did, then remove it, or raise {name} and start the host again.",
        )
        with self._lock:
            first = self.passed.setdefault(extension, problem) is problem
        if first:
            self._over(extension, problem)

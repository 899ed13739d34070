"""Limits requests: token buckets per key, tenant, route and for all; and how many may be open at once.

When several processes serve one ledger, each allows an equal share of every rate.

The rates are settings (`[http.rates]`). A refusal takes nothing from any bucket, comes before scope checks (OpenWOP
§1.4) and says when to try again (§1.2: `Retry-After`, `details.retryAfterMs`, `details.scope`).
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from forestay.kernel import Clock, HttpRates, Problem, Rate

Scope = Literal["global", "tenant", "key", "route"]
Kind = Literal["requests", "streams"]
_MAX_BUCKETS = 16_384


class _Bucket:
    __slots__ = ("at", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.tokens = tokens
        self.at = at

    def fill(self, rate: Rate, now: float, share: float) -> None:
        self.tokens = min(_most(rate, share), self.tokens + (now - self.at) * rate.per_second * share)
        self.at = now


def _most(rate: Rate, share: float) -> float:
    return max(1.0, rate.burst * share)


class RateLimits:
    """Token buckets in memory: they start full, and the least recently used are dropped first."""

    def __init__(self, rates: HttpRates, clock: Clock) -> None:
        self._rates = rates
        self._clock = clock
        self.share = 1.0  # the part of each rate that this process allows
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def admit(self, *, key: str, tenant: str, route: str) -> None:
        """Count one request, or raise `rate_limited` with the time until it would pass."""
        rates = self._rates
        asked: list[tuple[Scope, str, Rate | None]] = [
            ("global", "", rates.overall),
            ("tenant", tenant, rates.tenants.get(tenant, rates.tenant)),
            ("key", key, rates.keys.get(key, rates.key)),
            ("route", f"{route} {key}", rates.routes.get(route)),
        ]
        now = self._clock.monotonic()
        taken = []
        for scope, name, rate in asked:
            if rate is None:
                continue
            bucket = self._bucket(scope, name, rate, now)
            if bucket.tokens < 1.0:
                wait_ms = max(1, math.ceil((1.0 - bucket.tokens) / (rate.per_second * self.share) * 1000))
                raise Problem(
                    "rate_limited",
                    "Too many requests.",
                    retry_after_ms=wait_ms,
                    scope=scope,
                    limit=rate.burst,
                    windowSeconds=max(1, math.ceil(rate.burst / rate.per_second)),
                )
            taken.append(bucket)
        for bucket in taken:
            bucket.tokens -= 1.0

    def _bucket(self, scope: Scope, name: str, rate: Rate, now: float) -> _Bucket:
        bucket = self._buckets.get((scope, name))
        if bucket is None:
            bucket = self._buckets[scope, name] = _Bucket(_most(rate, self.share), now)
            if len(self._buckets) > _MAX_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end((scope, name))
            bucket.fill(rate, now, self.share)
        return bucket


class Load:
    """Backpressure: limits the requests and streams that are open at once.

    Beyond the limit of the host, or while draining, the answer is 503; beyond the limit of a key, 429.
    """

    def __init__(
        self,
        requests: int = 1_000,
        streams: int = 10_000,
        *,
        requests_per_key: int | None = None,
        streams_per_key: int | None = None,
    ) -> None:
        self._most = {"requests": requests, "streams": streams}
        self._most_of_one = {"requests": requests_per_key, "streams": streams_per_key}
        self._now = {"requests": 0, "streams": 0}
        self._of_one: Counter[tuple[Kind, str]] = Counter()
        self.draining = False

    @property
    def active(self) -> int:
        return self._now["requests"]

    @property
    def streams(self) -> int:
        return self._now["streams"]

    def most(self, kind: Kind) -> int:
        return self._most[kind]

    @contextmanager
    def enter(self, kind: Kind = "requests", key: str = "") -> Iterator[None]:
        """Count one more of `kind` within the block, for `key` if it is known."""
        if self.draining:
            raise Problem("unavailable", "The host is shutting down.", retry_after_ms=5_000)
        if self._now[kind] >= self._most[kind]:
            raise Problem("unavailable", f"The host has too many {kind} open.", retry_after_ms=1_000, reason="overload")
        mine = (kind, key)
        most_of_one = self._most_of_one[kind]
        if key and most_of_one is not None and self._of_one[mine] >= most_of_one:
            raise Problem(
                "rate_limited",
                f"This key has too many {kind} open.",
                retry_after_ms=1_000,
                scope="key",
                limit=most_of_one,
                fix="Close one, or wait for one to end.",
            )
        self._now[kind] += 1
        self._of_one[mine] += 1
        try:
            yield
        finally:
            self._now[kind] -= 1
            self._of_one[mine] -= 1
            if not self._of_one[mine]:
                del self._of_one[mine]

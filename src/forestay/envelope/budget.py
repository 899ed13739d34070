"""What an answer may cost: `_budget` with tokens, bytes and items (R39, R41)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from forestay.envelope.token_estimate import Estimator
from forestay.kernel import Problem

_NAMES = ("maxTokens", "maxBytes", "maxItems")
_encode = msgspec.json.Encoder().encode


class Budget(msgspec.Struct, frozen=True, rename="camel"):
    """At least one limit; an answer that passes any of them is over budget."""

    max_tokens: int | None = None
    max_bytes: int | None = None
    max_items: int | None = None

    def as_json(self) -> dict[str, int]:
        limits = zip(_NAMES, (self.max_tokens, self.max_bytes, self.max_items), strict=True)
        return {name: limit for name, limit in limits if limit is not None}


class Cost(msgspec.Struct, frozen=True):
    """What a value costs; `tokens` is infinite when it is nested too deeply to estimate."""

    tokens: float
    bytes: int
    items: int


def read_budget(value: Any, ceiling: Budget | None = None) -> Budget:
    """Read `_budget` as a caller sent it; refuse a limit above the server's `ceiling` (R39)."""
    if not isinstance(value, Mapping) or not value:
        raise _bad("A budget is an object with at least one limit.", "$._budget")
    unknown = sorted(str(name) for name in value if name not in _NAMES)
    if unknown:
        raise _bad(f"A budget has no limit {unknown[0][:80]!r}.", f"$._budget.{unknown[0][:80]}")
    for name, limit in value.items():
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise _bad(f"{name} must be a positive whole number.", f"$._budget.{name}")
        most = ceiling.as_json().get(name) if ceiling else None
        if most is not None and limit > most:
            raise _bad(f"{name} may be at most {most} here.", f"$._budget.{name}")
    return Budget(value.get("maxTokens"), value.get("maxBytes"), value.get("maxItems"))


def cost(shown: Mapping[str, Any], estimator: Estimator | None = None) -> Cost:
    """Return the cost of an envelope in the form in which it is sent."""
    tokens = (estimator or Estimator()).tokens(shown)
    return Cost(tokens, len(_encode(shown)), count_items(shown.get("result")))


def count_items(result: Any) -> int:
    """Count the items of an array, or of the arrays that an object wraps."""
    if isinstance(result, list):
        return len(result)
    if isinstance(result, dict):
        return sum(len(value) for value in result.values() if isinstance(value, list))
    return 0


def within(cost: Cost, budget: Budget) -> bool:
    return violated(cost, budget) is None


def violated(cost: Cost, budget: Budget) -> str | None:
    """Return the name of the first limit that `cost` passes, or None."""
    observed = (cost.tokens, cost.bytes, cost.items)
    for name, seen in zip(_NAMES, observed, strict=True):
        limit = budget.as_json().get(name)
        if limit is not None and seen > limit:
            return name
    return None


def exceeded(cost: Cost, budget: Budget, constraint: str | None = None) -> Problem:
    """Return E_MVI_BUDGET_EXCEEDED as R41 requires it: retryable, no time to wait, and the figures."""
    constraint = constraint or violated(cost, budget) or "maxTokens"
    estimated = None if math.isinf(cost.tokens) else int(cost.tokens)
    return Problem(
        "mvi_budget_exceeded",
        f"The answer does not fit the budget: {constraint} is passed even with everything optional left out.",
        estimatedTokens=estimated,
        estimatedBytes=cost.bytes,
        items=cost.items,
        budget=budget.as_json(),
        excessTokens=None if estimated is None else max(0, estimated - (budget.max_tokens or estimated)),
        constraint=constraint,
        fix="Raise the limit named in `constraint`, or ask for less: fields, a smaller page, a lower level.",
    )


def _bad(message: str, at: str) -> Problem:
    return Problem(
        "schema_mismatch", message, at=at, fix="Send positive whole numbers for maxTokens, maxBytes or maxItems."
    )

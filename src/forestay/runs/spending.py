"""A run's own budget (OpenWOP RFC 0084): what its log says it used, and what follows when a ceiling is passed. Pure.

- B1  Consumption is a fold of the log: `provider.usage`, `agent.toolCalled`, `node.retried` and
      `envelope.retry.attempted`.
- B2  A change is told once: `budget.consumed`, then `budget.threshold.crossed` (once a dimension). While a node is
      under way, small changes wait until they are a percent of the ceiling together (RFC 0084 §C: the host may
      coalesce); when none is, and before the run ends, all that was used is told.
- B3  A ceiling that is passed is told once with `budget.exhausted`. A hard one then ends the run: `cap.breached`, and
      `run.failed` with the code `budget_exhausted`. An advisory one never does.
- B4  The ceilings are those of the last `budget.reserved`; nobody resolves them again.
- B5  Events hold dimensions, numbers and the scope: never a price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

import msgspec

Dimension = Literal["tokens", "cost", "toolCalls", "retries"]
Spend = Mapping[Dimension, int]
"""Whole numbers that add up exactly; cost is in micro-USD (W2). An absent dimension is not used, or not limited."""

DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
MICRO = 1_000_000
_CEILINGS: dict[Dimension, str] = {
    "tokens": "maxTokens",
    "cost": "maxCostUsd",
    "toolCalls": "maxToolCalls",
    "retries": "maxRetries",
}
_CAPS: dict[Dimension, str] = {
    "tokens": "budget-tokens",
    "cost": "budget-cost",
    "toolCalls": "budget-tool-calls",
    "retries": "budget-retries",
}
_SHARE = 100  # a change of one in so many parts of a ceiling is told at once
Told = tuple[str, dict[str, Any]]
"""The type and the payload of an event."""

MOVES = frozenset(
    {
        "budget.reserved",
        "budget.consumed",
        "budget.threshold.crossed",
        "budget.exhausted",
        "provider.usage",
        "agent.toolCalled",
        "node.retried",
        "envelope.retry.attempted",
    }
)
"""The events that `take_in` takes in; others leave a budget as it is."""


class ModelRule(msgspec.Struct, frozen=True):
    """Which models may be called: patterns, with the provider (`openai:gpt-*`) or without. `deny` wins."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    def allows(self, model: str) -> bool:
        if any(_names(pattern, model) for pattern in self.deny):
            return False
        return self.allow is None or any(_names(pattern, model) for pattern in self.allow)


class RunBudget(msgspec.Struct):
    """The ceilings of one run and what was used of them. Only `evolve` changes it."""

    limits: dict[Dimension, int]
    enforce: Literal["hard", "advisory"] = "hard"
    on_exhaustion: Literal["fail", "interrupt"] = "fail"
    threshold_percent: float | None = None
    models: tuple[ModelRule, ...] = ()
    raises: set[str] = set()  # the answers of people that gave more
    used: dict[Dimension, int] = {}
    told: dict[Dimension, int] = {}
    crossed: set[Dimension] = set()
    exhausted: set[Dimension] = set()

    @property
    def stops(self) -> bool:
        """Whether a passed ceiling ends the run, rather than being told or asked about."""
        return self.enforce == "hard" and self.on_exhaustion == "fail"

    def room(self, dimension: Dimension) -> int | None:
        """What is left; None where nothing limits."""
        limit = self.limits.get(dimension)
        return None if limit is None else max(0, limit - self.used.get(dimension, 0))


def ceilings(limits: Spend) -> dict[str, Any]:
    """Limits in the contract's words: `{maxTokens, maxCostUsd, …}`."""
    return {_CEILINGS[name]: shown(name, limits[name]) for name in DIMENSIONS if name in limits}


def limits_of(policy: Mapping[str, Any]) -> dict[Dimension, int]:
    """The numeric ceilings of a policy in the contract's words."""
    found: dict[Dimension, int] = {}
    for name in DIMENSIONS:
        if (value := policy.get(_CEILINGS[name])) is not None:
            found[name] = math.floor(round(value * MICRO, 6)) if name == "cost" else int(value)
    return found


def shown(dimension: Dimension, amount: int) -> float:
    """An amount as the contract's events show it: cost in USD, the others as they are counted."""
    return amount / MICRO if dimension == "cost" else amount


def cost_of(usd: float) -> int:
    """Micro-USD, rounded up: what was spent is never shown as less."""
    return math.ceil(round(usd * MICRO, 6))


def used_by(type: str, payload: Mapping[str, Any]) -> dict[Dimension, int]:
    """What an event of the log says was used (B1)."""
    if type == "provider.usage":
        used: dict[Dimension, int] = {"tokens": payload["inputTokens"] + payload["outputTokens"]}
        if cost := cost_of(payload.get("costEstimateUsd") or 0):
            used["cost"] = cost
        return used
    if type == "agent.toolCalled":
        return {"toolCalls": 1}
    return {"retries": 1} if type in ("node.retried", "envelope.retry.attempted") else {}


def add(left: Spend, right: Spend) -> dict[Dimension, int]:
    """The sum, dimension by dimension."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in DIMENSIONS if name in left or name in right}


def take_in(
    budget: RunBudget | None, type: str, payload: Mapping[str, Any], private: Mapping[str, Any] | None
) -> RunBudget | None:
    """The budget after an event of its run."""
    if type == "budget.reserved":
        limits = limits_of(payload["effectiveBudget"])
        if budget is None:
            return msgspec.convert({**(private or {}).get("budget", {}), "limits": limits}, RunBudget)
        budget.limits = limits  # a person gave more: what has room again may run out again
        budget.exhausted = {name for name in budget.exhausted if budget.room(name) == 0}
        budget.raises = {*budget.raises, *(private or {}).get("raised", ())}
        return budget
    if budget is None:
        return None
    if type == "budget.consumed":
        budget.told = {**budget.told, payload["dimension"]: budget.used.get(payload["dimension"], 0)}
    elif type == "budget.threshold.crossed":
        budget.crossed = {*budget.crossed, payload["dimension"]}
    elif type == "budget.exhausted":
        budget.exhausted = {*budget.exhausted, payload["dimension"]}
    elif used := used_by(type, payload):
        budget.used = add(budget.used, used)
    return budget


def following(budget: RunBudget, *, resting: bool = True) -> list[Told]:
    """The events that follow from what was used since the last of them; the last is `cap.breached` when the run must
    end (B2, B3). `resting`: no node is under way."""
    events: list[Told] = []
    for name, limit in budget.limits.items() if budget.used else ():
        used = budget.used.get(name, 0)
        passed = used > limit and name not in budget.exhausted
        crossed = budget.threshold_percent is not None and _has_crossed(budget, name, used, limit)
        if not (crossed or passed) and used == budget.told.get(name, 0):
            continue
        if resting or crossed or passed or (used - budget.told.get(name, 0)) * _SHARE >= limit:
            events += _consumed(budget, name)
        if crossed:
            percent = budget.threshold_percent
            events.append(("budget.threshold.crossed", {**_standing(name, used, limit), "percent": percent}))
        if passed:
            events += _exhaustion(budget, name)
            if budget.stops:
                break
    return events


def untold(budget: RunBudget) -> list[Told]:
    """What a run that ends has still to tell (B2); one that a ceiling ends has told why."""
    if budget.stops and budget.exhausted:
        return []
    return [item for name in budget.limits for item in _consumed(budget, name)]


def exhaustion(budget: RunBudget, name: Dimension) -> list[Told]:
    """What is told when a dimension has no room for what comes next."""
    return [*_consumed(budget, name), *_exhaustion(budget, name)]


def _consumed(budget: RunBudget, name: Dimension) -> list[Told]:
    used, limit = budget.used.get(name, 0), budget.limits[name]
    if used == budget.told.get(name, 0):
        return []
    return [("budget.consumed", {**_standing(name, used, limit), "remaining": shown(name, max(0, limit - used))})]


def _exhaustion(budget: RunBudget, name: Dimension) -> list[Told]:
    used, limit = budget.used.get(name, 0), budget.limits[name]
    events: list[Told] = [("budget.exhausted", _standing(name, used, limit))]
    if budget.stops:
        events.append(("cap.breached", {"kind": _CAPS[name], "limit": limit, "observed": max(used, limit)}))
    return events


def _names(pattern: str, model: str) -> bool:
    return fnmatchcase(model, pattern) or fnmatchcase(model.partition(":")[2], pattern)


def _has_crossed(budget: RunBudget, name: Dimension, used: int, limit: int) -> bool:
    percent = budget.threshold_percent
    return percent is not None and name not in budget.crossed and used > 0 and used * 100 >= limit * percent


def _standing(name: Dimension, used: int, limit: int) -> dict[str, Any]:
    return {"dimension": name, "consumed": shown(name, used), "limit": shown(name, limit)}

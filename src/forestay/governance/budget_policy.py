"""Budget policies, and the budget that applies to a run (OpenWOP RFC 0084 §A, §B). Pure.

- P1  The ceilings of a run are the smallest of all scopes that apply, including the request's own.
- P2  A model is denied by any scope that denies it, and by any scope with a list of models that does not name it.
- P3  A request can only tighten what the operator set.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import msgspec

from forestay.kernel import Budgets, Ceiling, Price, Problem, canonical
from forestay.runs import DIMENSIONS, Dimension, ModelRule, ceilings, limits_of

BudgetScope = Literal["project", "agent", "workflow", "run"]
_COUNT = msgspec.Meta(ge=1)
_KEPT = ("enforce", "on_exhaustion", "threshold_percent", "models")


class BudgetPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """`configurable.budget` of a run; an absent field does not limit."""

    max_tokens: Annotated[int, _COUNT] | None = None
    max_cost_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
    max_tool_calls: Annotated[int, _COUNT] | None = None
    max_retries: Annotated[int, msgspec.Meta(ge=0)] | None = None
    model_allow: list[str] | None = None
    model_deny: list[str] = []
    threshold_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    on_exhaustion: Literal["fail", "interrupt"] | None = None


class Pool(msgspec.Struct, frozen=True):
    """Ceilings that all runs of a scope share in a day or a month or, with `per="run"`, those of an agent in a run."""

    scope: BudgetScope
    name: str
    per: Literal["run", "day", "month"]
    limits: dict[Dimension, int]


class EffectiveBudget(msgspec.Struct, frozen=True):
    """The budget that applies to a run, as `budget.reserved` records it."""

    limits: dict[Dimension, int]
    scope: BudgetScope
    enforce: Literal["hard", "advisory"] = "hard"
    on_exhaustion: Literal["fail", "interrupt"] = "fail"
    threshold_percent: float | None = None
    models: tuple[ModelRule, ...] = ()

    @property
    def payload(self) -> dict[str, Any]:
        """The public part: ceilings and scope, without prices and lists of models."""
        return {"effectiveBudget": ceilings(self.limits), "scope": self.scope}

    @property
    def private(self) -> dict[str, Any]:
        """The other fields that the run's budget needs."""
        told = msgspec.to_builtins(self)
        return {"budget": {name: told[name] for name in _KEPT}}


def read_policy(value: Any, at: str = "$.configurable.budget") -> BudgetPolicy:
    """Read a caller's policy; a located Problem when it is not valid."""
    try:
        return msgspec.convert(value, BudgetPolicy)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, at)
        raise Problem("schema_mismatch", f"{message}.", at=where) from error


def resolve(settings: Budgets, policy: BudgetPolicy | None, workflow_id: str) -> EffectiveBudget | None:
    """Return the budget of a run of `workflow_id`; None when nothing limits it (P1)."""
    found: list[tuple[BudgetScope, BudgetPolicy]] = [
        (item.scope, _policy(item))
        for item in settings.ceilings
        if item.per == "run" and _applies(item, workflow_id, None) and item.scope != "agent"
    ]
    if policy is not None:
        found.append(("run", policy))
    limits: dict[Dimension, int] = {}
    binding: BudgetScope | None = None
    for scope, item in found:
        for name, limit in limits_of(_words(item)).items():
            if limit < limits.get(name, limit + 1):
                limits[name] = limit
                binding = scope
    if not found:
        return None
    actions = [item.on_exhaustion for _, item in found if item.on_exhaustion is not None]
    thresholds = [item.threshold_percent for _, item in found if item.threshold_percent is not None]
    return EffectiveBudget(
        {name: limits[name] for name in DIMENSIONS if name in limits},
        binding or found[-1][0],
        settings.enforce,
        "fail" if "fail" in actions or not actions else "interrupt",
        min(thresholds, default=None),
        tuple(rule for rule in (rule_of(item) for _, item in found) if rule != ModelRule()),
    )


def pools(settings: Budgets, workflow_id: str, agent_id: str | None) -> list[Pool]:
    """Return the ceilings that a call shares with others, besides its run's own."""
    return [
        Pool(item.scope, item.name, item.per, limits_of(_words(_policy(item))))
        for item in settings.ceilings
        if (item.per != "run" or item.scope == "agent") and _applies(item, workflow_id, agent_id)
    ]


def check_model(rules: Iterable[ModelRule], model: str) -> None:
    """Refuse a model that a budget does not allow, before it is called (P2)."""
    if not all(rule.allows(model) for rule in rules):
        raise Problem("budget_model_denied", f"The budget does not allow the model {model[:120]}.", model=model[:120])


def agent_rules(settings: Budgets, workflow_id: str, agent_id: str | None) -> list[ModelRule]:
    """Return the model rules of an agent's ceilings; those of the run are recorded with the run."""
    found = (item for item in settings.ceilings if item.scope == "agent" and _applies(item, workflow_id, agent_id))
    return [rule_of(_policy(item)) for item in found]


def rule_of(policy: BudgetPolicy) -> ModelRule:
    allow = None if policy.model_allow is None else tuple(policy.model_allow)
    return ModelRule(allow, tuple(policy.model_deny))


def price_of(prices: dict[str, Price], model: str) -> Price | None:
    """Return the price of a model; None when the operator has not set one."""
    return next((price for pattern, price in prices.items() if ModelRule((pattern,)).allows(model)), None)


def _applies(item: Ceiling, workflow_id: str, agent_id: str | None) -> bool:
    if item.scope == "workflow":
        return fnmatchcase(workflow_id, item.name)
    if item.scope == "agent":
        return agent_id is not None and fnmatchcase(agent_id, item.name)
    return True


def _policy(item: Ceiling) -> BudgetPolicy:
    """Return an operator's ceiling as a policy."""
    return BudgetPolicy(
        item.max_tokens,
        item.max_cost_usd,
        item.max_tool_calls,
        item.max_retries,
        item.model_allow,
        item.model_deny,
        item.threshold_percent,
        item.on_exhaustion,
    )


def _words(policy: BudgetPolicy) -> dict[str, Any]:
    words: dict[str, Any] = msgspec.to_builtins(policy)
    return words

"""Budgets: how much may be used, how much was used, and what is left, which is never negative."""

from __future__ import annotations

import msgspec

from forestay.kernel.problems import Problem


class Amounts(msgspec.Struct, frozen=True):
    """Quantities that a budget counts. Cost is in micro-USD: whole numbers add up exactly."""

    tokens: int = 0
    cost: int = 0
    calls: int = 0
    bytes: int = 0
    items: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*(mine + theirs for mine, theirs in zip(_values(self), _values(other), strict=True)))


class Limits(msgspec.Struct, frozen=True):
    """Ceilings; None does not limit."""

    tokens: int | None = None
    cost: int | None = None
    calls: int | None = None
    bytes: int | None = None
    items: int | None = None


class Budget(msgspec.Struct, frozen=True):
    """Limits and what was used of them. Spending returns a new budget, or raises a Problem and changes nothing."""

    limits: Limits = Limits()
    used: Amounts = Amounts()

    def left(self, dimension: str) -> int | None:
        limit = getattr(self.limits, dimension)
        return None if limit is None else max(0, limit - getattr(self.used, dimension))

    def over(self, amount: Amounts) -> str | None:
        """Return the first dimension whose limit `amount` would exceed."""
        for dimension in Amounts.__struct_fields__:
            left = self.left(dimension)
            if left is not None and getattr(amount, dimension) > left:
                return dimension
        return None

    def spend(self, amount: Amounts) -> Budget:
        dimension = self.over(amount)
        if dimension is not None:
            raise Problem(
                "budget_exhausted",
                f"The budget of {dimension} does not allow this.",
                dimension=dimension,
                limit=getattr(self.limits, dimension),
                used=getattr(self.used, dimension),
                wanted=getattr(amount, dimension),
            )
        return Budget(self.limits, self.used + amount)


def _values(amounts: Amounts) -> list[int]:
    return [getattr(amounts, name) for name in Amounts.__struct_fields__]

"""Reserves amounts of accounts before a call (OpenWOP RFC 0084). Pure.

- A1  When a call begins, spent and held amounts together never exceed a ceiling.
- A2  A hold has an identity: holding it again replaces it, so a call that is repeated after a crash holds once.
- A3  A call with an unknown price holds all that is left of the cost, so no other call begins meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from forestay.kernel import Price
from forestay.runs import Dimension, Spend


class Account(msgspec.Struct, frozen=True):
    """One ceiling, with what was spent and what running calls hold."""

    name: str
    limits: Spend
    spent: Spend = {}
    held: Spend = {}

    def room(self, dimension: Dimension) -> int | None:
        """Return how much a call may still take; None without a limit."""
        limit = self.limits.get(dimension)
        return None if limit is None else limit - self.spent.get(dimension, 0) - self.held.get(dimension, 0)


class Short(msgspec.Struct, frozen=True):
    """The account and the dimension that have no room for a call."""

    account: str
    dimension: Dimension


class ModelCall(msgspec.Struct, frozen=True):
    """A call of a model: its input tokens, and the maximum of output tokens."""

    input_tokens: int
    max_output_tokens: int
    price: Price | None = None


class Reservation(msgspec.Struct, frozen=True):
    """The amounts that a call holds, and the maximum length of its answer."""

    amounts: dict[Dimension, int]
    max_output_tokens: int = 0


def fit_model_call(accounts: Sequence[Account], call: ModelCall) -> Reservation | Short:
    """Reserve the longest answer that fits into every account; `Short` when not even the input fits."""
    output = call.max_output_tokens
    bound = Short("", "tokens")
    cost_room: int | None = None
    for account in accounts:
        tokens, cost = account.room("tokens"), account.room("cost")
        for dimension, most in (("tokens", _by_tokens(call, tokens)), ("cost", _by_cost(call, cost))):
            if most is not None and most < output:
                output, bound = most, Short(account.name, "tokens" if dimension == "tokens" else "cost")
        if cost is not None:
            cost_room = cost if cost_room is None else min(cost_room, cost)
    if output < 1:
        return bound
    amounts: dict[Dimension, int] = {"tokens": call.input_tokens + output}
    if call.price is not None:
        amounts["cost"] = price(call.price, call.input_tokens, output)
    elif cost_room is not None:
        amounts["cost"] = cost_room  # A3
    return Reservation(amounts, output)


def fit(accounts: Sequence[Account], amounts: Mapping[Dimension, int]) -> Reservation | Short:
    """Reserve known amounts in every account; `Short` when one has no room."""
    for account in accounts:
        for dimension, amount in amounts.items():
            room = account.room(dimension)
            if room is not None and amount > room:
                return Short(account.name, dimension)
    return Reservation(dict(amounts))


def price(of: Price, input_tokens: int, output_tokens: int) -> int:
    """Return the price in micro-USD, rounded up: a million tokens at one USD are a million micro-USD."""
    return math.ceil(round(of.input * input_tokens + of.output * output_tokens, 6))


def _by_tokens(call: ModelCall, room: int | None) -> int | None:
    return None if room is None else room - call.input_tokens


def _by_cost(call: ModelCall, room: int | None) -> int | None:
    """Return the longest answer that fits into the cost."""
    if room is None:
        return None
    if call.price is None:
        return None if room > 0 else 0
    left = room - price(call.price, call.input_tokens, 0)
    if left < 0:
        return 0
    return None if call.price.output == 0 else max(0, math.floor(left / call.price.output))

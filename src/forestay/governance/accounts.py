"""Reserving before a call, giving back after it (OpenWOP RFC 0084). Pure.

- A1  Spent and held together never pass a ceiling when a call begins.
- A2  A hold has an identity: holding it again replaces it, so a call that is repeated after a crash holds once.
- A3  A call whose price nobody knows holds all that is left of the cost: no other call begins beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from forestay.kernel import Price
from forestay.runs import Dimension, Spend


class Account(msgspec.Struct, frozen=True):
    """One ceiling with what was spent under it and what calls under way hold of it."""

    name: str
    limits: Spend
    spent: Spend = {}
    held: Spend = {}

    def room(self, dimension: Dimension) -> int | None:
        """What a call may still take; None where nothing limits."""
        limit = self.limits.get(dimension)
        return None if limit is None else limit - self.spent.get(dimension, 0) - self.held.get(dimension, 0)


class Short(msgspec.Struct, frozen=True):
    """The account and the dimension that have no room for a call."""

    account: str
    dimension: Dimension


class ModelCall(msgspec.Struct, frozen=True):
    """A question to a model: the tokens that it has, and the most that the answer may have."""

    input_tokens: int
    max_output_tokens: int
    price: Price | None = None


class Reservation(msgspec.Struct, frozen=True):
    """What a call holds, and how long its answer may be."""

    amounts: dict[Dimension, int]
    max_output_tokens: int = 0


def fit_model_call(accounts: Sequence[Account], call: ModelCall) -> Reservation | Short:
    """The largest answer that every account has room for, held at its ceiling; the question alone must fit."""
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
    """Whether every account has room for amounts that are known before."""
    for account in accounts:
        for dimension, amount in amounts.items():
            room = account.room(dimension)
            if room is not None and amount > room:
                return Short(account.name, dimension)
    return Reservation(dict(amounts))


def price(of: Price, input_tokens: int, output_tokens: int) -> int:
    """Micro-USD, rounded up: a million tokens at one USD are a million micro-USD."""
    return math.ceil(round(of.input * input_tokens + of.output * output_tokens, 6))


def _by_tokens(call: ModelCall, room: int | None) -> int | None:
    return None if room is None else room - call.input_tokens


def _by_cost(call: ModelCall, room: int | None) -> int | None:
    """The longest answer that the cost leaves room for."""
    if room is None:
        return None
    if call.price is None:
        return None if room > 0 else 0
    left = room - price(call.price, call.input_tokens, 0)
    if left < 0:
        return 0
    return None if call.price.output == 0 else max(0, math.floor(left / call.price.output))

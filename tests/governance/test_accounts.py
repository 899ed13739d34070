"""Reservations against a plain model (A1 to A3 of `governance/accounts.py`)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from forestay.governance import Account, ModelCall, Reservation, Short, fit, fit_model_call
from forestay.kernel import Price

_prices = st.one_of(st.none(), st.builds(Price, st.sampled_from([0.0, 0.25, 3.0]), st.sampled_from([0.0, 1.25, 15.0])))
_limits = st.fixed_dictionaries({}, optional={"tokens": st.integers(0, 500), "cost": st.integers(0, 5000)})


@given(
    st.lists(_limits, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 200), _prices, st.integers(0, 100)), max_size=20),
)
def test_a1_what_is_spent_and_held_never_passes_a_ceiling(
    ceilings: list[Any], calls: list[tuple[int, int, Price | None, int]]
) -> None:
    """Calls begin and end in any order; each uses at most what it holds; the sums are kept by hand."""
    spent: list[dict[Any, int]] = [{} for _ in ceilings]
    held: list[Reservation] = []

    def accounts() -> list[Account]:
        sums: dict[Any, int] = {}
        for item in held:
            for name, amount in item.amounts.items():
                sums[name] = sums.get(name, 0) + amount
        return [Account(str(at), limits, spent[at], sums) for at, limits in enumerate(ceilings)]

    for question, longest, price, share in calls:
        found = fit_model_call(accounts(), ModelCall(question, longest, price))
        if isinstance(found, Short):
            assert _is_full(accounts(), question, price), "a call was refused though there was room for a word"
        else:
            assert 1 <= found.max_output_tokens <= longest
            held.append(found)
        for account in accounts():
            for name in account.limits:
                assert (account.room(name) or 0) >= 0
        if held and share > 40:  # the oldest call ends, and used a part of what it held
            done = held.pop(0)
            for sums in spent:
                for name, amount in done.amounts.items():
                    sums[name] = sums.get(name, 0) + amount * share // 100


def _is_full(accounts: list[Account], question: int, price: Price | None) -> bool:
    for account in accounts:
        tokens, cost = account.room("tokens"), account.room("cost")
        if tokens is not None and question + 1 > tokens:
            return True
        if cost is not None and (cost <= 0 if price is None else price.input * question + price.output > cost - 1):
            return True
    return False


def test_a3_a_call_without_a_price_holds_all_that_is_left() -> None:
    account = Account("run/r", {"cost": 700}, {"cost": 200})
    found = fit_model_call([account], ModelCall(10, 100))
    assert found == Reservation({"tokens": 110, "cost": 500}, 100)


def test_an_answer_is_cut_to_what_the_cost_leaves() -> None:
    account = Account("run/r", {"cost": 1000})
    found = fit_model_call([account], ModelCall(100, 4000, Price(1.0, 10.0)))
    assert found == Reservation({"tokens": 190, "cost": 1000}, 90)
    assert fit_model_call([account], ModelCall(1000, 10, Price(1.0, 10.0))) == Short("run/r", "cost")


def test_known_amounts_fit_everywhere_or_nowhere() -> None:
    accounts = [Account("run/r", {"toolCalls": 5}), Account("project/day/x", {"toolCalls": 2}, {"toolCalls": 1})]
    assert fit(accounts, {"toolCalls": 1}) == Reservation({"toolCalls": 1})
    assert fit(accounts, {"toolCalls": 2}) == Short("project/day/x", "toolCalls")

"""`Balances`: accounts in memory, for a process that is the only writer.

- L1  A balance is the tables' state plus this process's writes since. If that is not certain, the account is dropped
      and read again.
- L2  A limited number of accounts is kept; the least recently used are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from forestay.governance.accounts import Account
from forestay.runs import Dimension, Spend

_MOST = 4096


class Balance:
    """What was spent under one ceiling, and what each running call holds of it.

    `charged` are the calls that were charged once. It is None when some may be missing, because something had already
    been spent when the account was read.
    """

    __slots__ = ("charged", "held", "spent")

    def __init__(self, spent: Spend, held: Mapping[str, Spend]) -> None:
        self.spent = dict(spent)
        self.held = dict(held)
        self.charged: set[str] | None = None if spent else set()

    def account(self, name: str, limits: Spend, without: str) -> Account:
        """Return the current account, without the hold of the call `without`."""
        held: dict[Dimension, int] = {}
        for id, amounts in self.held.items():
            if id != without:
                _increase(held, amounts)
        return Account(name, limits, self.spent, held)


class Balances:
    """The known balances, by tenant and account."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str], Balance] = OrderedDict()

    def find(self, tenant: str, account: str) -> Balance | None:
        found = self._known.get((tenant, account))
        if found is not None:
            self._known.move_to_end((tenant, account))
        return found

    def keep(self, tenant: str, account: str, balance: Balance) -> None:
        self._known[tenant, account] = balance
        while len(self._known) > self._most:
            self._known.popitem(last=False)

    def drop(self, tenant: str, accounts: Iterable[str] | None = None) -> None:
        """Forget some accounts of a tenant, or with None all of them."""
        names = [name for owner, name in self._known if owner == tenant] if accounts is None else accounts
        for name in names:
            self._known.pop((tenant, name), None)

    def held(self, tenant: str, accounts: Iterable[str], id: str, amounts: Spend) -> None:
        """Let a call hold `amounts`, instead of what it held before."""
        for balance in self._of(tenant, accounts):
            balance.held[id] = amounts

    def spent(self, tenant: str, accounts: Iterable[str], id: str, amounts: Spend) -> None:
        """Release what a call held, and add `amounts` to what was spent."""
        for balance in self._of(tenant, accounts):
            balance.held.pop(id, None)
            _increase(balance.spent, amounts)

    def charged(self, tenant: str, accounts: Iterable[str], id: str, amounts: Spend) -> None:
        """Charge a call once: add `amounts` to what was spent, and remember the call."""
        for balance in self._of(tenant, accounts):
            _increase(balance.spent, amounts)
            if balance.charged is not None:
                balance.charged.add(id)

    def _of(self, tenant: str, accounts: Iterable[str]) -> list[Balance]:
        known = self._known
        return [known[tenant, name] for name in accounts if (tenant, name) in known]


def _increase(sums: dict[Dimension, int], amounts: Spend) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + amount

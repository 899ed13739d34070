"""`AccountBook`: records what each account has spent, and what running calls hold of it.

Invariants, with those of `budgets`:

- B2  A record states what a call holds before the call begins, and another what it used after it. Both change the
      accounts in the transaction that writes them.
- B3  Concurrent calls, of one process or of several, never exceed a ceiling together: one at a time reserves, and on a
      shared ledger a reservation is written only if no other one came between.
- B4  A hold of a run that has ended counts nothing, unless its call is still running in this process. So a crash leaks
      no reservation, and a run that fails during its calls releases nothing before they end.
- B6  A tool call is charged once for its place in the run, before it begins: its repetition after a crash is not
      charged again. A repeated question to a model is charged again, because the provider charges it again.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from forestay.governance.accounts import Account, Reservation, Short
from forestay.governance.balances import Balance, Balances
from forestay.governance.budget_table import PREFIX
from forestay.kernel import Append, Draft, Ledger, Problem, Record, outside_work
from forestay.runs import Dimension, Spend

_NOTHING = Reservation({})


class Hold(msgspec.Struct, frozen=True):
    """A reservation."""

    id: str
    tenant: str
    run_id: str
    accounts: tuple[str, ...]
    reservation: Reservation


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A call's request to the accounts that pay for it.

    Without `hard` there is always room. An amount that is charged `once` is spent as soon as it is reserved, however
    often the call is repeated (B6). `own` is the account that the call draws on at every attempt, if there is one.
    """

    id: str
    tenant: str
    run_id: str
    limits: Mapping[str, Spend]
    reserve: Callable[[Sequence[Account]], Reservation | Short]
    hard: bool = True
    once: bool = False
    own: str = ""


class AccountBook:
    """The accounts of every tenant of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._turn: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._settling: dict[str, Future[list[Record]]] = {}
        self._under_way: set[tuple[str, str]] = set()  # this process's unsettled holds: tenant and id
        self._balances = Balances()
        self._settled = 0  # the number of settled calls

    async def hold(self, claim: Claim) -> Hold | Short:
        """Reserve in all accounts or in none (B3); the reservation is on disk when this returns."""
        async with self._turn[claim.tenant]:
            while True:
                await self.settled(claim.tenant)
                head = await self._ledger.head(_stream(claim.tenant))
                found = self._fitted(claim, *await self._read(claim))
                if isinstance(found, Short) or not found.accounts:
                    return found
                self._begin(claim, found)
                try:
                    await self._ledger.append(_stream(claim.tenant), [_draft(claim, found)], expect=head.seq)
                except BaseException as error:
                    self._undo(claim)
                    if not isinstance(error, Problem) or error.key != "ledger_conflict":
                        raise
                    continue  # another process came between
                return found

    async def reserve(self, claim: Claim) -> Hold | Short:
        """Reserve like `hold`, but write the reservation before the next record: the run's record that the call begins.

        If there is no such record, `settled` writes it. The accounts come from memory. On a shared ledger the
        reservation has its own commit, because only then can it be refused (B3).
        """
        if self._ledger.shared:
            return await self.hold(claim)
        async with self._turn[claim.tenant]:
            found = self._fitted(claim, *await self._known(claim))
            if isinstance(found, Hold) and found.accounts:
                self._begin(claim, found)
                self._write_later(claim.tenant, _draft(claim, found))
            return found

    def _begin(self, claim: Claim, found: Hold) -> None:
        """Count a hold as running until it is settled (B4); an amount that is charged once is spent at once."""
        if claim.once:
            self._balances.charged(claim.tenant, found.accounts, claim.id, found.reservation.amounts)
        else:
            self._under_way.add((claim.tenant, claim.id))
            self._balances.held(claim.tenant, found.accounts, claim.id, found.reservation.amounts)

    def _undo(self, claim: Claim) -> None:
        """Forget a reservation that may not have been written; the tables have the truth."""
        self._under_way.discard((claim.tenant, claim.id))
        self._balances.drop(claim.tenant, claim.limits)

    @staticmethod
    def _fitted(claim: Claim, accounts: Sequence[Account], was_charged: bool) -> Hold | Short:
        """Fit a claim into the accounts; a call that was already charged needs no room."""
        if claim.once and was_charged:
            return Hold(claim.id, claim.tenant, claim.run_id, (), _NOTHING)
        found = claim.reserve(accounts)
        if isinstance(found, Short):
            if claim.hard:
                return found
            found = claim.reserve([]) if claim.once else _NOTHING
            assert isinstance(found, Reservation), "without accounts nothing is short"
        return Hold(claim.id, claim.tenant, claim.run_id, tuple(claim.limits), found)

    def settle(self, hold: Hold, used: Spend | None) -> None:
        """Release a hold and charge what was used; None means nothing.

        It is written before the next record, which is the run's record about the call.
        """
        self._under_way.discard((hold.tenant, hold.id))
        self._balances.spent(hold.tenant, hold.accounts, hold.id, used or {})
        self._settled += 1
        self._write_later(
            hold.tenant, Draft("budget.freed" if used is None else "budget.settled", _said(hold, used or {}))
        )

    def _write_later(self, tenant: str, draft: Draft) -> None:
        self._settling[tenant] = self._ledger.submit(Append(_stream(tenant), [draft]), later=True)

    async def settled(self, tenant: str) -> None:
        """Wait until this process's reservations, charges and settlements are on disk."""
        settling = self._settling.get(tenant)
        if settling is None:
            return
        try:
            if not settling.done():
                self._ledger.write_now()
                with outside_work(asyncio.get_running_loop()):
                    await asyncio.shield(asyncio.wrap_future(settling))  # other tasks may wait for it too
            settling.result()
        except BaseException:
            self._balances.drop(tenant)  # the disk may not match them
            raise
        finally:
            if settling.done() and self._settling.get(tenant) is settling:
                del self._settling[tenant]

    async def accounts(self, tenant: str, limits: Mapping[str, Spend]) -> list[Account]:
        """Return the current accounts with these limits."""
        if not limits:
            return []
        rows = await self._rows(tenant, limits)
        return [self._balance(tenant, name, rows).account(name, limit, "") for name, limit in limits.items()]

    async def _read(self, claim: Claim) -> tuple[list[Account], bool]:
        """Return the accounts of a claim from the tables, and whether its call was charged."""
        await self.settled(claim.tenant)
        rows = await self._rows(claim.tenant, claim.limits, claim.id)
        balances = [(name, limit, self._balance(claim.tenant, name, rows)) for name, limit in claim.limits.items()]
        return [item.account(name, limit, claim.id) for name, limit, item in balances], _has_charge(rows)

    async def _known(self, claim: Claim) -> tuple[list[Account], bool]:
        """Return the same as `_read`, from memory where only this process can have changed the accounts."""
        tenant, settling = claim.tenant, self._settling.get(claim.tenant)
        found = {name: self._balances.find(tenant, name) for name in claim.limits}
        missing = [name for name, balance in found.items() if balance is None]
        own = found.get(claim.own)
        charged = None if own is None else own.charged
        reads = missing or (claim.once and charged is None)
        if reads or (settling is not None and settling.done()):
            await self.settled(tenant)  # or raise the disk's error
        before = self._settled
        rows = await self._rows(tenant, missing, claim.id) if reads else []
        for name in missing:
            balance = found[name] = self._balance(tenant, name, rows)
            if before == self._settled and all((tenant, id) in self._under_way for id in balance.held):
                self._balances.keep(tenant, name, balance)  # otherwise a dead process's hold ends with its run (B4)
        accounts = [item.account(name, claim.limits[name], claim.id) for name, item in found.items() if item]
        return accounts, _has_charge(rows) if charged is None else claim.id in charged

    async def _rows(self, tenant: str, accounts: Iterable[str], charge: str = "") -> list[tuple[Any, ...]]:
        """Read what was spent and is held of accounts, and whether the call `charge` was charged."""
        names = tuple(accounts)
        places = ", ".join("?" * len(names))
        charged = "SELECT '', '', 0, hold, 'charged' FROM budget_charged WHERE tenant = ? AND hold = ?"
        if not names:
            return await self._ledger.look_up(charged, (tenant, charge))
        return await self._ledger.look_up(
            "SELECT account, dimension, amount, '', 'spent' FROM budget_spent "  # noqa: S608
            f"WHERE tenant = ? AND account IN ({places}) UNION ALL "
            "SELECT h.account, h.dimension, h.amount, h.hold, CASE WHEN r.ended IS NULL THEN 'held' ELSE 'left' END "
            "FROM budget_held h JOIN runs r ON r.run_id = h.run_id "
            f"WHERE h.tenant = ? AND h.account IN ({places}) UNION ALL {charged}",
            (tenant, *names, tenant, *names, tenant, charge),
        )

    def _balance(self, tenant: str, account: str, rows: Iterable[tuple[Any, ...]]) -> Balance:
        spent: dict[Dimension, int] = {}
        held: dict[str, dict[Dimension, int]] = {}
        for name, dimension, amount, hold, kind in rows:
            if name != account:
                continue
            if kind == "spent":
                spent[dimension] = int(amount)
            elif kind == "held" or (tenant, hold) in self._under_way:  # B4
                held.setdefault(hold, {})[dimension] = int(amount)
        return Balance(spent, held)


def _has_charge(rows: Iterable[tuple[Any, ...]]) -> bool:
    return any(row[4] == "charged" for row in rows)


def _draft(claim: Claim, hold: Hold) -> Draft:
    """Return the record of a reservation."""
    said = _said(hold, hold.reservation.amounts)
    return Draft("budget.settled", {**said, "once": True}) if claim.once else Draft("budget.held", said)


def _said(hold: Hold, amounts: Spend) -> dict[str, Any]:
    return {
        "tenant": hold.tenant,
        "hold": hold.id,
        "runId": hold.run_id,
        "accounts": list(hold.accounts),
        "amounts": dict(amounts),
    }


@functools.lru_cache(maxsize=256)
def _stream(tenant: str) -> str:
    return PREFIX + hashlib.sha256(tenant.encode()).hexdigest()[:32]

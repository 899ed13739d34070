"""`Budgets`: who may spend what, reserved before each call (OpenWOP RFC 0084).

Invariants:

- B1  A call begins when every account has room for its ceiling: its run's, its agent's, its workflow's, the project's.
- B2  What a call holds is a record before the call begins; what it used is a record after. Both move the accounts in
      the transaction that writes them.
- B3  Concurrent calls, of one process or of several, never pass a ceiling together: a reservation is written only if
      no other came between.
- B4  A hold of a run that has ended counts nothing: a crash leaks no reservation.
- B5  Prices are the operator's settings. No event has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from forestay.governance.accounts import Account, ModelCall, Reservation, Short, fit, fit_model_call, price
from forestay.governance.budget_policy import (
    BudgetScope,
    Pool,
    agent_rules,
    check_model,
    pools,
    price_of,
    read_policy,
    resolve,
)
from forestay.kernel import Budgets as Settings
from forestay.kernel import Ceiling, Clock, Draft, Ledger, Problem, Record, Transaction, iso
from forestay.runs import (
    DIMENSIONS,
    CreateRun,
    Dimension,
    Execution,
    Fact,
    RunBudget,
    Spend,
    ceilings,
    exhaustion,
    limits_of,
    shown,
)

PREFIX = "budget/"
_TITLE = "The budget of this run is used up. Give it more?"
_HOW = 'Accept with `budget`: what to add, such as {"maxTokens": 1000}. A rejection ends the run.'


class BudgetTable:
    """What each account spent, and what calls under way hold of it."""

    name = "budgets"
    version = 1
    prefix = PREFIX
    schema = """
        CREATE TABLE budget_spent (
            tenant TEXT NOT NULL, account TEXT NOT NULL, dimension TEXT NOT NULL, amount BIGINT NOT NULL,
            PRIMARY KEY (tenant, account, dimension)
        );
        CREATE TABLE budget_held (
            tenant TEXT NOT NULL, hold TEXT NOT NULL, run_id TEXT NOT NULL, account TEXT NOT NULL,
            dimension TEXT NOT NULL, amount BIGINT NOT NULL, PRIMARY KEY (tenant, hold, account, dimension)
        );
        CREATE INDEX budget_held_account ON budget_held (tenant, account)
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            self._take(tx, record)

    def _take(self, tx: Transaction, record: Record) -> None:
        said = record.payload
        tenant = said["tenant"]
        tx.execute("DELETE FROM budget_held WHERE tenant = ? AND hold = ?", (tenant, said["hold"]))
        rows = [(account, *item) for account in said.get("accounts", ()) for item in said["amounts"].items()]
        if record.type == "budget.held":
            statement = "INSERT INTO budget_held VALUES (?, ?, ?, ?, ?, ?)"
            tx.executemany(statement, [(tenant, said["hold"], said["runId"], *row) for row in rows])
        elif record.type == "budget.settled":
            statement = (
                "INSERT INTO budget_spent VALUES (?, ?, ?, ?) "
                "ON CONFLICT (tenant, account, dimension) DO UPDATE SET amount = budget_spent.amount + excluded.amount"
            )
            tx.executemany(statement, [(tenant, *row) for row in rows])


class Hold(msgspec.Struct, frozen=True):
    """A reservation that is on record."""

    id: str
    tenant: str
    run_id: str
    accounts: tuple[str, ...]
    reservation: Reservation


class Standing(msgspec.Struct, frozen=True, rename="camel"):
    """One account as people see it, in the contract's words."""

    account: str
    spent: dict[str, Any]
    held: dict[str, Any]
    limits: dict[str, Any]


class Spent(msgspec.Struct):
    """What a call says it used; nobody said anything while it is None."""

    amounts: dict[Dimension, int] | None = None


class Budgets:
    """The budgets of one ledger."""

    def __init__(self, ledger: Ledger, settings: Settings, *, clock: Clock) -> None:
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._pools = [pool for item in settings.ceilings for pool in _pools_of(item)]
        self._turn: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    # When a run is made

    def facts(self, request: CreateRun, tenant: str) -> list[Fact]:
        """`budget.reserved`, when something limits the run; a Problem when what it asks for is no budget."""
        wanted = request.configurable.get("budget")
        policy = None if wanted is None else read_policy(wanted)
        found = resolve(self._settings, policy, request.workflow_id or "")
        return [] if found is None else [Fact("budget.reserved", found.payload, found.private)]

    # Around a call

    @contextlib.asynccontextmanager
    async def model_call(
        self, ctx: Execution, key: str, model: str, call: Callable[[], ModelCall], agent_id: str | None = None
    ) -> AsyncIterator[tuple[int | None, Spent]]:
        """Hold room for a question to a model; gives how long the answer may be (None: as long as it likes), and takes
        what was used. `call` is asked for when something limits it."""
        own = await ctx.budget()
        shared = pools(self._settings, ctx.workflow_id, agent_id)
        if own is None and not shared:
            yield None, Spent()
            return
        if self._is_hard(own):
            check_model([*(own.models if own else ()), *agent_rules(self._settings, ctx.workflow_id, agent_id)], model)
        priced = msgspec.structs.replace(call(), price=price_of(self._settings.prices, model))
        async with self._holding(ctx, key, agent_id, lambda accounts: fit_model_call(accounts, priced)) as (
            hold,
            spent,
        ):
            yield hold.reservation.max_output_tokens or None, spent

    @contextlib.asynccontextmanager
    async def tool_call(self, ctx: Execution, key: str, agent_id: str | None = None) -> AsyncIterator[None]:
        """Hold room for a call of a tool, which counts whatever becomes of it."""
        if await ctx.budget() is None and not pools(self._settings, ctx.workflow_id, agent_id):
            yield
            return
        one: dict[Dimension, int] = {"toolCalls": 1}
        async with self._holding(ctx, key, agent_id, lambda accounts: fit(accounts, one)) as (_, spent):
            spent.amounts = one
            yield

    def used(self, model: str, input_tokens: int, output_tokens: int) -> dict[Dimension, int]:
        """What a call used, with its cost where the operator gave the model a price."""
        cost = self.cost(model, input_tokens, output_tokens)
        used: dict[Dimension, int] = {"tokens": input_tokens + output_tokens}
        return used if cost is None else {**used, "cost": cost}

    def cost(self, model: str, input_tokens: int, output_tokens: int) -> int | None:
        """What a call cost by the operator's prices, in micro-USD."""
        found = price_of(self._settings.prices, model)
        return None if found is None else price(found, input_tokens, output_tokens)

    def priced(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The payload of `provider.usage` with what the call cost."""
        name = f"{usage['provider']}:{usage['model']}"
        cost = self.cost(name, usage["inputTokens"], usage["outputTokens"])
        return usage if cost is None else {**usage, "costEstimateUsd": cost / 1_000_000}

    def capability(self) -> dict[str, Any]:
        """What discovery says: cost is a dimension where there are prices, models where a budget can refuse them."""
        hard = self._settings.enforce == "hard"
        dimensions = ["tokens", *(["cost"] if self._settings.prices else []), "toolCalls", "retries"]
        return {
            "supported": True,
            "dimensions": [*dimensions, *(["model"] if hard else [])],
            "enforce": self._settings.enforce,
            "scopes": ["run", "workflow", "agent", "project"],
        }

    @contextlib.asynccontextmanager
    async def _holding(
        self,
        ctx: Execution,
        key: str,
        agent_id: str | None,
        reserve: Callable[[Sequence[Account]], Reservation | Short],
    ) -> AsyncIterator[tuple[Hold, Spent]]:
        hold = await self._hold_or_stop(ctx, ctx.identity(key, "budget"), agent_id, reserve)
        spent = Spent()
        try:
            yield hold, spent
        finally:
            await asyncio.shield(self.settle(hold, spent.amounts))

    async def _hold_or_stop(
        self,
        ctx: Execution,
        id: str,
        agent_id: str | None,
        reserve: Callable[[Sequence[Account]], Reservation | Short],
    ) -> Hold:
        """A reservation; without room the run stops, or asks a person as often as it comes to this (RFC 0084 §D)."""
        for asked in range(1000):
            own = await ctx.budget()
            limits = self._limits(ctx, own, agent_id)
            hold = await self.hold(ctx.tenant, ctx.run_id, id, limits, reserve, hard=self._is_hard(own))
            if isinstance(hold, Hold):
                return hold
            if own is None or not hold.account.startswith("run/") or own.on_exhaustion == "fail":
                _tell(ctx, own, hold)
                raise _exhausted(hold)
            await self._ask(ctx, own, hold, f"budget:{ctx.node_id}:{id[:16]}:{asked}")
        raise AssertionError("nobody answers a thousand times")

    async def _ask(self, ctx: Execution, own: RunBudget, short: Short, key: str) -> None:
        """Ask a person for more. The answer is an approval with `budget`, the ceilings to add; one that adds nothing is
        asked for again."""
        if key in own.raises:
            return
        _tell(ctx, own, short)
        shown: dict[str, Any] = {"artifactId": f"{ctx.node_id}/{key}", "artifactType": "budget", "title": _TITLE}
        actions = ["accept", "reject"]
        about = {"dimension": short.dimension, "limits": ceilings(own.limits)}
        answer: dict[str, Any] = await ctx.interrupt(
            "approval",
            {**shown, "description": _HOW, "actions": actions, "artifactData": about},
            key=key,
            announce=("approval.requested", {**shown, "actions": actions}),
        )
        if answer.get("action") != "accept":
            raise _exhausted(short)
        try:
            given = limits_of(msgspec.to_builtins(read_policy(answer.get("budget") or {})))
        except Problem:
            return
        limits = {name: limit + given.get(name, 0) for name, limit in own.limits.items()}
        await ctx.raise_budget(key, {"effectiveBudget": ceilings(limits), "scope": "run"})

    def _limits(self, ctx: Execution, own: RunBudget | None, agent_id: str | None) -> dict[str, Spend]:
        """Every account that a call draws on, with its ceilings."""
        found: dict[str, Spend] = {}
        if own is not None:
            found[f"run/{ctx.root}"] = {k: v for k, v in own.limits.items() if k != "retries"}
        for pool in pools(self._settings, ctx.workflow_id, agent_id):
            found[self._account(pool, ctx.root)] = pool.limits
        return found

    def _account(self, pool: Pool, root: str) -> str:
        day = iso(self._clock.now_ms())[:10]
        return _prefix_of(pool) + {"run": root, "day": day, "month": day[:7]}[pool.per]

    def _is_hard(self, own: RunBudget | None) -> bool:
        return (own.enforce if own is not None else self._settings.enforce) == "hard"

    # The accounts

    async def hold(
        self,
        tenant: str,
        run_id: str,
        id: str,
        limits: dict[str, Spend],
        reserve: Callable[[Sequence[Account]], Reservation | Short],
        *,
        hard: bool = True,
    ) -> Hold | Short:
        """Reserve in every account, or nowhere (B1, B3). Without `hard` there is always room."""
        async with self._turn[tenant]:
            while True:
                head = await self._ledger.head(_stream(tenant))
                accounts = [await self._read(tenant, name, limit, but=id) for name, limit in limits.items()]
                found = reserve(accounts)
                if isinstance(found, Short):
                    if hard:
                        return found
                    found = Reservation({})
                hold = Hold(id, tenant, run_id, tuple(limits), found)
                draft = Draft("budget.held", _said(hold, found.amounts))
                try:
                    await self._ledger.append(_stream(tenant), [draft], expect=head.seq)
                except Problem as problem:
                    if problem.key != "ledger_conflict":
                        raise
                    continue  # another process reserved meanwhile
                return hold

    async def settle(self, hold: Hold, used: Spend | None) -> None:
        """Give back what was held, and take what was used; None: the call used nothing."""
        type = "budget.freed" if used is None else "budget.settled"
        await self._ledger.append(_stream(hold.tenant), [Draft(type, _said(hold, used or {}))])

    async def _read(self, tenant: str, name: str, limits: Spend, but: str = "") -> Account:
        spent = await self._ledger.look_up(
            "SELECT dimension, amount FROM budget_spent WHERE tenant = ? AND account = ?", (tenant, name)
        )
        held = await self._ledger.look_up(
            "SELECT h.dimension, sum(h.amount) FROM budget_held h JOIN runs r ON r.run_id = h.run_id "
            "WHERE h.tenant = ? AND h.account = ? AND h.hold <> ? AND r.ended IS NULL GROUP BY h.dimension",
            (tenant, name, but),
        )
        return Account(name, limits, dict(spent), {dimension: int(amount) for dimension, amount in held})

    async def standings(
        self, tenant: str, *, scope: BudgetScope | None = None, after: str = "", limit: int = 200
    ) -> list[Standing]:
        """The accounts of a tenant that are in use, by name, behind `after`: their ceilings where the settings have
        them."""
        begin = f"{scope}/" if scope else ""
        rows = await self._ledger.query(
            "SELECT account FROM (SELECT account FROM budget_spent WHERE tenant = ? "
            "UNION SELECT account FROM budget_held WHERE tenant = ?) AS used "
            "WHERE account > ? AND substr(account, 1, ?) = ? ORDER BY account LIMIT ?",
            (tenant, tenant, after, len(begin), begin, limit),
        )
        found = []
        for (name,) in rows:
            limits = next((pool.limits for pool in self._pools if name.startswith(_prefix_of(pool))), {})
            account = await self._read(tenant, name, limits)
            found.append(Standing(name, _shown(account.spent), _shown(account.held), ceilings(limits)))
        return found


def _tell(ctx: Execution, own: RunBudget | None, short: Short) -> None:
    """The events of a call that had no room: in the run's words when its own ceiling was met."""
    if own is not None and short.dimension in own.limits and short.dimension not in own.exhausted:
        for type, payload in exhaustion(own, short.dimension):
            ctx.emit(type, payload)


def _exhausted(short: Short) -> Problem:
    scope = short.account.partition("/")[0]
    message = f"The {scope}'s budget of {short.dimension} has no room for this call."
    return Problem("budget_exhausted", message, dimension=short.dimension, scope=scope)


def _pools_of(item: Ceiling) -> list[Pool]:
    return pools(Settings(ceilings=[item]), item.name, item.name)


def _prefix_of(pool: Pool) -> str:
    """An account without its period; a pattern of names is one account for all that it names."""
    named = (pool.name,) if pool.scope in ("workflow", "agent") else ()
    return "/".join((pool.scope, *named, pool.per, ""))


def _shown(amounts: Spend) -> dict[str, Any]:
    return {name: shown(name, amounts[name]) for name in DIMENSIONS if name in amounts}


def _said(hold: Hold, amounts: Spend) -> dict[str, Any]:
    return {
        "tenant": hold.tenant,
        "hold": hold.id,
        "runId": hold.run_id,
        "accounts": list(hold.accounts),
        "amounts": dict(amounts),
    }


def _stream(tenant: str) -> str:
    return PREFIX + hashlib.sha256(tenant.encode()).hexdigest()[:32]

"""`Budgets`: who may spend what, reserved before each call (OpenWOP RFC 0084).

Invariants:

- B1  A call begins when every account has room for its ceiling: its run's, its agent's, its workflow's, the project's.
- B5  Prices are the operator's settings. No event has one.

`AccountBook` keeps B2 to B4 and B6. Budgets meet calls in a model and in a tool gate that reserve first (RFC 0084 §D).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from forestay.governance.account_book import AccountBook, Claim, Hold
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
from forestay.governance.directory import AgentDirectory
from forestay.governance.staff import Staff
from forestay.kernel import Budgets as Settings
from forestay.kernel import Ceiling, Clock, Decision, Ledger, Problem, iso
from forestay.models import DEFAULT_PARAMS, Delta, Deltas, Message, Model, Params, ToolSpec, Usage, message_tokens
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
from forestay.tools import Gate, Tool

_TITLE = "The budget of this run is used up. Give it more?"
_HOW = 'Accept with `budget`: what to add, such as {"maxTokens": 1000}. A rejection ends the run.'


_BY_NAME = (
    "SELECT account FROM (SELECT account FROM budget_spent WHERE tenant = ? "
    "UNION SELECT account FROM budget_held WHERE tenant = ?) AS used "
    "WHERE account > ? AND substr(account, 1, ?) = ? ORDER BY account LIMIT ?"
)
_NEWEST = _BY_NAME.replace("ORDER BY account", "ORDER BY account DESC")


class Standing(msgspec.Struct, frozen=True, rename="camel"):
    """One account as people see it, in the contract's words."""

    account: str
    spent: dict[str, Any]
    held: dict[str, Any]
    limits: dict[str, Any]


class Spent(msgspec.Struct):
    """What a call says it used; nobody said anything while it is None."""

    amounts: dict[Dimension, int] | None = None


class _Wanted(msgspec.Struct, frozen=True):
    """What a call needs, from every kind of caller."""

    id: str
    reserve: Callable[[Sequence[Account]], Reservation | Short]
    once: bool = False


class Budgets:
    """The budgets of one ledger."""

    def __init__(self, ledger: Ledger, settings: Settings, *, clock: Clock) -> None:
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self.limits_runs = bool(settings.ceilings)  # those that ask for no budget too
        self._pools = [pool for item in settings.ceilings for pool in _pools_of(item)]
        self._price_of = functools.lru_cache(maxsize=256)(functools.partial(price_of, settings.prices))
        self._drawn_on = functools.lru_cache(maxsize=256)(functools.partial(pools, settings))
        self._rules_for = functools.lru_cache(maxsize=256)(functools.partial(agent_rules, settings))
        self.book = AccountBook(ledger)

    # When a run is made

    def facts(self, request: CreateRun) -> list[Fact]:
        """`budget.reserved`, when something limits the run; a Problem when what it asks for is no budget."""
        wanted = request.configurable.get("budget")
        policy = None if wanted is None else read_policy(wanted)
        found = resolve(self._settings, policy, request.workflow_id or "")
        return [] if found is None else [Fact("budget.reserved", found.payload, found.private)]

    # Around a call

    def concerns(self, ctx: Execution) -> bool:
        """Whether something may limit the calls of a node, or gives them a price."""
        return ctx.may_have_budget or self.limits_runs or bool(self._settings.prices)

    @contextlib.asynccontextmanager
    async def model_call(
        self,
        ctx: Execution,
        key: str,
        model: str,
        call: Callable[[], ModelCall],
        agent_id: str | None = None,
        held: Hold | None = None,
    ) -> AsyncIterator[tuple[int | None, Spent]]:
        """Hold room for a question to a model, unless that is `held`; gives how long the answer may be (None: as long
        as it likes), and takes what was used. `call` is asked for when something limits it."""
        spent = Spent()
        is_new = held is None
        held = held or await self.reserve(ctx, key, model, call, agent_id)
        try:
            if is_new and held is not None:
                await self.book.settled(ctx.tenant)
            yield None if held is None else held.reservation.max_output_tokens or None, spent
        finally:
            if held is not None:
                self.book.settle(held, spent.amounts)

    async def reserve(
        self, ctx: Execution, key: str, model: str, call: Callable[[], ModelCall], agent_id: str | None = None
    ) -> Hold | None:
        """Room for a question to a model, on record before what the run says next; None where nothing limits it."""
        own = await ctx.budget()
        if own is None and not self._drawn_on(ctx.workflow_id, agent_id):
            return None
        if self._is_hard(own):
            check_model([*(own.models if own else ()), *self._rules_for(ctx.workflow_id, agent_id)], model)
        priced = msgspec.structs.replace(call(), price=self._price_of(model))
        wanted = _Wanted(ctx.identity(key, "budget"), lambda accounts: fit_model_call(accounts, priced))
        return await self._held(ctx, wanted, agent_id)

    async def tool_call(self, ctx: Execution, key: str, agent_id: str | None = None) -> None:
        """Charge a call of a tool, which counts whatever becomes of it, and counts once. It is on record before what
        the run says next, and so before the call begins (B6)."""
        if await ctx.budget() is None and not self._drawn_on(ctx.workflow_id, agent_id):
            return
        one: dict[Dimension, int] = {"toolCalls": 1}
        wanted = _Wanted(ctx.identity(key, "budget"), lambda accounts: fit(accounts, one), once=True)
        await self._held(ctx, wanted, agent_id)

    def used(self, model: str, input_tokens: int, output_tokens: int) -> dict[Dimension, int]:
        """What a call used, with its cost where the operator gave the model a price."""
        cost = self.cost(model, input_tokens, output_tokens)
        used: dict[Dimension, int] = {"tokens": input_tokens + output_tokens}
        return used if cost is None else {**used, "cost": cost}

    def cost(self, model: str, input_tokens: int, output_tokens: int) -> int | None:
        """What a call cost by the operator's prices, in micro-USD."""
        found = self._price_of(model)
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

    async def _held(self, ctx: Execution, wanted: _Wanted, agent_id: str | None) -> Hold:
        """A reservation; without room the run stops, or asks a person as often as it comes to this (RFC 0084 §D)."""
        for asked in range(1000):
            own = await ctx.budget()
            claim = Claim(
                id=wanted.id,
                tenant=ctx.tenant,
                run_id=ctx.run_id,
                limits=self._limits(ctx, own, agent_id),
                reserve=wanted.reserve,
                hard=self._is_hard(own),
                once=wanted.once,
                own="" if own is None else _own_account(ctx),
            )
            found = await self.book.reserve(claim)
            if isinstance(found, Hold):
                return found
            if own is None or not found.account.startswith("run/") or own.on_exhaustion == "fail":
                _tell(ctx, own, found)
                raise _exhausted(found)
            await self._ask(ctx, own, found, f"budget:{ctx.node_id}:{wanted.id[:16]}:{asked}")
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
            found[_own_account(ctx)] = {k: v for k, v in own.limits.items() if k != "retries"}
        if shared := self._drawn_on(ctx.workflow_id, agent_id):
            day = iso(self._clock.now_ms())[:10]
            period = {"run": ctx.root, "day": day, "month": day[:7]}
            found |= {_prefix_of(pool) + period[pool.per]: pool.limits for pool in shared}
        return found

    def _is_hard(self, own: RunBudget | None) -> bool:
        return (own.enforce if own is not None else self._settings.enforce) == "hard"

    # What people see

    async def standings(
        self,
        tenant: str,
        *,
        scope: BudgetScope | None = None,
        after: str = "",
        limit: int = 200,
        is_newest_first: bool = False,
    ) -> list[Standing]:
        """The accounts of a tenant that are in use, by name, behind `after`: their ceilings where the settings have
        them. The names of runs' accounts are in the order of time."""
        await self.book.settled(tenant)
        begin = f"{scope}/" if scope else ""
        rows = await self._ledger.query(
            _NEWEST if is_newest_first else _BY_NAME, (tenant, tenant, after, len(begin), begin, limit)
        )
        limits = {name: self._limits_of(name) for (name,) in rows}
        return [
            Standing(item.name, _shown(item.spent), _shown(item.held), ceilings(item.limits))
            for item in await self.book.accounts(tenant, limits)
        ]

    def _limits_of(self, account: str) -> Spend:
        return next((pool.limits for pool in self._pools if account.startswith(_prefix_of(pool))), {})


def _tell(ctx: Execution, own: RunBudget | None, short: Short) -> None:
    """The events of a call that had no room: in the run's words when its own ceiling was met."""
    if own is not None and short.dimension in own.limits and short.dimension not in own.exhausted:
        for type, payload in exhaustion(own, short.dimension):
            ctx.emit(type, payload)


def _exhausted(short: Short) -> Problem:
    scope = short.account.partition("/")[0]
    message = f"The {scope}'s budget of {short.dimension} has no room for this call."
    return Problem("budget_exhausted", message, dimension=short.dimension, scope=scope)


def _own_account(ctx: Execution) -> str:
    """The account of the run's own budget."""
    return f"run/{ctx.root}"


def _pools_of(item: Ceiling) -> list[Pool]:
    return pools(Settings(ceilings=[item]), item.name, item.name)


def _prefix_of(pool: Pool) -> str:
    """An account without its period; a pattern of names is one account for all that it names."""
    named = (pool.name,) if pool.scope in ("workflow", "agent") else ()
    return "/".join((pool.scope, *named, pool.per, ""))


def _shown(amounts: Spend) -> dict[str, Any]:
    return {name: shown(name, amounts[name]) for name in DIMENSIONS if name in amounts}


class Metering:
    """`runs.Governor` over budgets, and over the roster and the installed agents where there are some."""

    def __init__(self, budgets: Budgets, staff: Staff | None = None, directory: AgentDirectory | None = None) -> None:
        self._budgets = budgets
        self.limits_runs = budgets.limits_runs
        self._staff = staff
        self._directory = directory

    async def facts(self, request: CreateRun, tenant: str, agents: Sequence[Mapping[str, Any]]) -> list[Fact]:
        told: list[Fact] = []
        if agents and self._directory is not None:
            await self._directory.check_sources(tenant, agents)
        if agents and self._staff is not None:
            names = [agent["agentId"] for agent in agents]
            told = await self._staff.named(tenant, request.workflow_id or "", names)
        limited = self._budgets.limits_runs or request.configurable.get("budget") is not None
        return [*told, *self._budgets.facts(request)] if limited else told

    def metered(self, model: Model, node: Execution, agent_id: str | None = None) -> Model:
        return MeteredModel(model, self._budgets, node, agent_id) if self._budgets.concerns(node) else model


class MeteredModel:
    """A model for one execution of a node; what an answer cost is said with its usage."""

    def __init__(self, model: Model, budgets: Budgets, ctx: Execution, agent_id: str | None) -> None:
        self.name = model.name
        self.context_window = model.context_window
        self.max_output_tokens = model.max_output_tokens
        self.count_tokens = model.count_tokens
        self._model = model
        self._budgets = budgets
        self._ctx = ctx
        self._agent_id = agent_id
        self._asked: dict[str, int] = {}
        self._held: Hold | None = None  # for the next question

    @contextlib.asynccontextmanager
    async def reserving(self, messages: Sequence[Message], params: Params) -> AsyncIterator[None]:
        """`models.Reserving`: what the question may cost goes to disk with what the node has to say."""
        ctx, book = self._ctx, self._budgets.book
        held = await self._budgets.reserve(ctx, self._key(), self.name, self._call(messages, params), self._agent_id)
        try:
            yield
            if ctx.appends:
                await ctx.flush()
            elif held is not None:
                await book.settled(ctx.tenant)
        except BaseException:
            if held is not None:
                book.settle(held, None)
            raise
        self._held = held

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        held, self._held = self._held, None
        call, longest = self._call(messages, params), self._longest(params)
        key = self._key() if held is None else ""
        paid = self._budgets.model_call(self._ctx, key, self.name, call, self._agent_id, held)
        async with paid as (most, spent):
            bounded = params if most is None or most >= longest else msgspec.structs.replace(params, max_tokens=most)
            written = 0
            async for delta in self._model.stream(messages, tools=tools, params=bounded):
                written += self.count_tokens(delta.text) if delta.text and most is not None else 0
                if delta.finish_reason not in (None, "error"):
                    usage = delta.usage or (Usage(call().input_tokens, written) if most is not None else Usage(0, 0))
                    spent.amounts = self._budgets.used(self.name, usage.input_tokens, usage.output_tokens)
                    delta = self._priced(delta, spent.amounts.get("cost"))
                yield delta

    def _key(self) -> str:
        """The place of the next question in the run."""
        place = self._ctx.place
        number = self._asked[place] = self._asked.get(place, 0) + 1
        return f"{place}#{number}"

    def _longest(self, params: Params) -> int:
        return params.max_tokens or self.max_output_tokens or self.context_window

    def _call(self, messages: Sequence[Message], params: Params) -> Callable[[], ModelCall]:
        def call() -> ModelCall:
            tokens = sum(message_tokens(self.count_tokens, item) for item in messages)
            return ModelCall(tokens, self._longest(params))

        return call

    def _priced(self, delta: Delta, cost: int | None) -> Delta:
        if cost is None or delta.usage is None or delta.usage.cost_usd is not None:
            return delta
        return msgspec.structs.replace(delta, usage=msgspec.structs.replace(delta.usage, cost_usd=cost / 1_000_000))


class MeteredGate:
    """A tool gate that charges each call before policy decides about it."""

    def __init__(self, gate: Gate, budgets: Budgets, ctx: Execution, agent_id: str) -> None:
        self._gate = gate
        self._budgets = budgets
        self._ctx = ctx
        self._agent_id = agent_id

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        await self._budgets.tool_call(self._ctx, f"{self._ctx.place}tool", self._agent_id)
        return await self._gate.decide(tool, arguments)

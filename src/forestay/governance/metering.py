"""Where budgets meet calls: a model and a tool gate that reserve first (OpenWOP RFC 0084 §D)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from forestay.governance.account_book import Hold
from forestay.governance.accounts import ModelCall
from forestay.governance.budgets import Budgets
from forestay.governance.directory import AgentDirectory
from forestay.governance.staff import Staff
from forestay.kernel import Decision
from forestay.models import DEFAULT_PARAMS, Delta, Deltas, Message, Model, Params, ToolSpec, Usage, message_tokens
from forestay.runs import CreateRun, Execution, Fact
from forestay.tools import Gate, Tool


class Metering:
    """`runs.Governor` over budgets, and over the roster and the installed agents where there are some."""

    def __init__(self, budgets: Budgets, staff: Staff | None = None, directory: AgentDirectory | None = None) -> None:
        self._budgets = budgets
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
        asked = self._ctx, self._key(), self.name, self._call(messages, params), self._agent_id
        async with self._budgets.reserving(*asked, along=self._ctx.along) as held:
            yield
            if self._ctx.appends:
                await self._ctx.flush()
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
    """A tool gate that charges each call; that goes to disk with what policy decided about it."""

    def __init__(self, gate: Gate, budgets: Budgets, ctx: Execution, agent_id: str) -> None:
        self._gate = gate
        self._budgets = budgets
        self._ctx = ctx
        self._agent_id = agent_id

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        async with self._budgets.tool_call(self._ctx, f"{self._ctx.place}tool", self._agent_id):
            return await self._gate.decide(tool, arguments)

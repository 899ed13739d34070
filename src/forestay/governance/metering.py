"""Where budgets meet calls: a model, a node's model caller and a tool gate that reserve first (OpenWOP RFC 0084 §D)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import msgspec

from forestay.agents import Tool, Verdict
from forestay.governance.accounts import ModelCall
from forestay.governance.budgets import Budgets
from forestay.models import DEFAULT_PARAMS, Delta, Deltas, Message, Model, Params, ToolSpec, message_tokens
from forestay.runs import Caller, CreateRun, Execution, Fact, ModelCaller, ModelDelta, ModelRequest


class Described(msgspec.Struct, frozen=True):
    """A request as budgets see it: the model's whole name, and what the call may use at most."""

    model: str
    call: Callable[[], ModelCall]


class Metering:
    """`runs.Governor` over budgets: `described` knows the host's models."""

    def __init__(self, budgets: Budgets, described: Callable[[ModelRequest], Described]) -> None:
        self._budgets = budgets
        self._described = described

    def facts(self, request: CreateRun, tenant: str) -> list[Fact]:
        return self._budgets.facts(request, tenant)

    def metered(self, models: ModelCaller) -> ModelCaller:
        return MeteredCaller(models, self._budgets, self._described)


class MeteredModel:
    """A model for one execution of an agent's node."""

    def __init__(self, model: Model, budgets: Budgets, ctx: Execution, agent_id: str) -> None:
        self.name = model.name
        self.context_window = model.context_window
        self.max_output_tokens = model.max_output_tokens
        self.count_tokens = model.count_tokens
        self._model = model
        self._budgets = budgets
        self._ctx = ctx
        self._agent_id = agent_id
        self._asked: dict[str, int] = {}

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        longest = params.max_tokens or self.max_output_tokens or self.context_window

        def call() -> ModelCall:
            return ModelCall(sum(message_tokens(self.count_tokens, item) for item in messages), longest)

        place = self._ctx.place
        number = self._asked[place] = self._asked.get(place, 0) + 1
        held = self._budgets.model_call(self._ctx, f"{place}#{number}", self.name, call, self._agent_id)
        async with held as (most, spent):
            bounded = params if most is None or most >= longest else msgspec.structs.replace(params, max_tokens=most)
            text, last = 0, Delta()
            async for delta in self._model.stream(messages, tools=tools, params=bounded):
                text += self.count_tokens(delta.text) if delta.usage is None and delta.text else 0
                last = delta if delta.usage is not None else last
                if delta.finish_reason not in (None, "error"):
                    asked = last.usage.input_tokens if last.usage else call().input_tokens
                    said = last.usage.output_tokens if last.usage else text
                    spent.amounts = self._budgets.used(self.name, asked, said)
                yield delta


class MeteredCaller:
    """`runs.ModelCaller` for nodes that ask a model themselves; what an answer cost is said with its last piece."""

    def __init__(self, models: ModelCaller, budgets: Budgets, described: Callable[[ModelRequest], Described]) -> None:
        self._models = models
        self._budgets = budgets
        self._described = described

    async def stream(self, request: ModelRequest, caller: Caller) -> AsyncIterator[ModelDelta]:
        asked = self._described(request)
        held = self._budgets.model_call(caller.node, caller.idempotency_key, asked.model, asked.call)
        async with held as (most, spent):
            if most is not None and (request.max_tokens is None or most < request.max_tokens):
                request = msgspec.structs.replace(request, max_tokens=most)
            async for delta in self._models.stream(request, caller):
                if delta.finish_reason is not None:
                    spent.amounts = self._budgets.used(asked.model, delta.input_tokens, delta.output_tokens)
                    cost = spent.amounts.get("cost")
                    if cost is not None and delta.cost_usd is None:
                        delta = msgspec.structs.replace(delta, cost_usd=cost / 1_000_000)
                yield delta


class _Gate(Protocol):
    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Verdict: ...


class MeteredGate:
    """A tool gate that counts each call before policy is asked about it."""

    def __init__(self, gate: _Gate, budgets: Budgets, ctx: Execution, agent_id: str) -> None:
        self._gate = gate
        self._budgets = budgets
        self._ctx = ctx
        self._agent_id = agent_id

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Verdict:
        async with self._budgets.tool_call(self._ctx, f"{self._ctx.place}tool", self._agent_id):
            return await self._gate.decide(tool, arguments)

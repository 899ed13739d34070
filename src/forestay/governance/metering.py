"""Where budgets meet calls: a model and a tool gate that reserve first (OpenWOP RFC 0084 §D)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from forestay.governance.accounts import ModelCall
from forestay.governance.budgets import Budgets
from forestay.governance.staff import Staff
from forestay.kernel import Decision
from forestay.models import DEFAULT_PARAMS, Delta, Deltas, Message, Model, Params, ToolSpec, Usage, message_tokens
from forestay.runs import CreateRun, Execution, Fact
from forestay.tools import Gate, Tool


class Metering:
    """`runs.Governor` over budgets, and over the roster where there is one."""

    def __init__(self, budgets: Budgets, staff: Staff | None = None) -> None:
        self._budgets = budgets
        self._staff = staff

    async def facts(self, request: CreateRun, tenant: str, agents: Sequence[str]) -> list[Fact]:
        told = await self._staff.named(tenant, request.workflow_id or "", agents) if self._staff else []
        return [*told, *self._budgets.facts(request, tenant)]

    def metered(self, model: Model, node: Execution, agent_id: str | None = None) -> Model:
        return MeteredModel(model, self._budgets, node, agent_id)


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
            written = 0
            async for delta in self._model.stream(messages, tools=tools, params=bounded):
                written += self.count_tokens(delta.text) if delta.text and most is not None else 0
                if delta.finish_reason not in (None, "error"):
                    usage = delta.usage or (Usage(call().input_tokens, written) if most is not None else Usage(0, 0))
                    spent.amounts = self._budgets.used(self.name, usage.input_tokens, usage.output_tokens)
                    delta = self._priced(delta, spent.amounts.get("cost"))
                yield delta

    def _priced(self, delta: Delta, cost: int | None) -> Delta:
        if cost is None or delta.usage is None or delta.usage.cost_usd is not None:
            return delta
        return msgspec.structs.replace(delta, usage=msgspec.structs.replace(delta.usage, cost_usd=cost / 1_000_000))


class MeteredGate:
    """A tool gate that counts each call before policy is asked about it."""

    def __init__(self, gate: Gate, budgets: Budgets, ctx: Execution, agent_id: str) -> None:
        self._gate = gate
        self._budgets = budgets
        self._ctx = ctx
        self._agent_id = agent_id

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        async with self._budgets.tool_call(self._ctx, f"{self._ctx.place}tool", self._agent_id):
            return await self._gate.decide(tool, arguments)

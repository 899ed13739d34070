"""Tools for the nodes of a workflow (`core.tool`): the same tools, the same gate and the same questions as an agent's.

A call that was begun and not recorded when the process died is decided by the tool's effect class, as an agent's is.
What policy wants to ask about, the tool itself or a capability that an extension needs on its way, is an interrupt of
the node. `agents.allow` names tools that need no question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from forestay.agents import ApprovalAnswer, ApprovalRequest, Guarded, Tool, ToolOutcome, Verdict, once_or_ask
from forestay.host.approvals import RunApprovals
from forestay.host.builtin import BUILTIN
from forestay.host.extensions import ProjectExtensions
from forestay.host.gate import PolicyGate
from forestay.host.tools import AgentTools
from forestay.kernel import OPERATOR, Agents, Clock, Ledger, Problem
from forestay.runs import Caller, Execution, Runs

_SUBJECT = "core.forestay.workflow"


class NodeTools:
    """`runs.ToolSource`."""

    def __init__(
        self,
        extensions: ProjectExtensions,
        settings: Agents,
        ledger: Ledger,
        clock: Clock,
        *,
        runs: Callable[[], Runs],
    ) -> None:
        self._extensions = extensions
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._runs = runs

    def names(self) -> list[str]:
        """The tools that are known without opening anything, and those of extensions that run already."""
        suite = self._extensions.opened
        return [tool.name for tool in BUILTIN] + ([tool.name for tool in suite.tools()] if suite is not None else [])

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
        if caller.tenant != OPERATOR:
            raise Problem("permission_denied", "Tools are the operator's alone.", tool=tool[:80])
        ctx: Execution = caller.node
        suite = await self._extensions.suite(ctx)
        prompts = self._extensions.prompts
        source = AgentTools(suite, self._runs(), ctx, subject=_SUBJECT, consents=False, prompts=prompts)
        offered = await source.tools()
        found = next((item for item in offered if tool in (item.name, item.id)), None)
        if found is None:
            raise Problem("not_found", f"There is no tool {tool[:80]}.", tools=sorted(item.name for item in offered))
        if found.prepares:
            given = arguments
            arguments = await ctx.effect(f"{ctx.place}prepared", lambda: source.prepare(found, given), later=True)
        arguments = found.fit(arguments)
        about = {"runId": caller.run_id, "nodeId": caller.node_id}
        gate = PolicyGate(self._settings, self._ledger, self._clock, _SUBJECT, about)
        # The class that the tool had when the node began is the one that decides after a crash.
        effect = await ctx.effect(f"{ctx.place}class", lambda: found.effect, later=True)
        found = msgspec.structs.replace(found, effect=effect)
        arguments = await _gated(ctx, gate, found, arguments)
        outcome = await self._once(ctx, source, found, arguments, caller.idempotency_key)
        if outcome.is_error:
            raise Problem("extension_failed", outcome.content[:2000], tool=found.name)
        return {"output": outcome.content, "details": outcome.details}

    async def _once(
        self, ctx: Execution, source: AgentTools, tool: Tool, arguments: dict[str, Any], key: str
    ) -> ToolOutcome:
        """The call, once; when another life began it and did not record it, a person says what to do."""
        effects = Guarded(ctx.effect, self._extensions.prompts.life, self._clock)
        identity = key if tool.takes_key else None

        async def body() -> Any:
            made = await source.call(tool, arguments, call_id=key, idempotency_key=key, update=_unheard)
            return msgspec.to_builtins(made)

        async def perform(attempt: str) -> ToolOutcome:
            return msgspec.convert(await effects.perform(attempt, body, tool.effect, identity), ToolOutcome)

        def fail(answer: ApprovalAnswer, problem: Problem) -> ToolOutcome:
            raise Problem(problem.key, answer.note or problem.message, tool=tool.name)

        return await once_or_ask(
            f"{ctx.place}{tool.name}",
            perform,
            RunApprovals(ctx),
            tool,
            arguments,
            otherwise="let the node fail.",
            rejected=fail,
        )


async def _gated(ctx: Execution, gate: PolicyGate, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that policy, or the person it asks, lets the tool be called with; asked about once."""

    async def decide() -> Any:
        return msgspec.to_builtins(await gate.decide(tool, arguments))

    verdict = msgspec.convert(await ctx.effect(f"{ctx.place}gate", decide, later=True), Verdict)
    if verdict.effect == "allow":
        return arguments
    fix = f"Name {tool.name} in agents.allow."
    if verdict.effect == "deny":
        raise Problem("capability_denied", verdict.reason, tool=tool.name, fix=fix)
    known = {"effect": tool.effect}
    actions = ("accept", "reject", "edit-accept")
    title = f"May the workflow call {tool.name}?"
    request = ApprovalRequest("approval", title, verdict.reason, tool.name, arguments, known, actions)
    answer = await RunApprovals(ctx).ask(f"{ctx.place}approval", request)
    if answer.action == "reject":
        said = answer.note or f"A person refused {tool.name}."
        raise Problem("capability_denied", said, tool=tool.name, fix=fix)
    return tool.fit(answer.arguments or {}) if answer.action == "edit-accept" else arguments


async def _unheard(partial: Any) -> None:
    """A node has nobody who watches a tool work."""

"""Performing a tool call: the gates before it, the person who may be asked, the call itself, and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from forestay.agents import pi
from forestay.agents.decide import AgentState
from forestay.agents.stage import Stage
from forestay.agents.steps import Approved, AskApproval, CallTool, Gated, RefuseCall, Returned, ReturnStatus
from forestay.kernel import Problem
from forestay.models import Message, ToolCall
from forestay.tools import ApprovalAnswer, Tool, ToolOutcome, approved, fit_for, once_or_ask


class _Called(msgspec.Struct, frozen=True):
    outcome: ToolOutcome
    duration_ms: int | None


async def gate_call(stage: Stage, state: AgentState, call: ToolCall) -> Gated:
    async def body() -> Gated:
        await stage.tell("tool_execution_start", toolCallId=call.id, toolName=call.name, args=call.arguments)
        tool = state.tool(call.name)
        if tool is None:
            return Gated("refuse", reason=f"There is no tool {call.name!r}.", status="error")
        if call.malformed is not None:
            return Gated("refuse", reason="The arguments are not a JSON object.", status="error")
        try:
            arguments = await _fit(stage, state, tool, call.arguments)
        except Problem as problem:
            return Gated("refuse", reason=problem.message, status="error")
        try:
            answer = await stage.tell("tool_call", toolName=call.name, toolCallId=call.id, input=arguments)
            if answer and answer.get("block"):
                reason = str(answer.get("reason") or "An extension blocked this call.")
                return Gated("refuse", arguments, reason, "forbidden")
            if answer and isinstance(answer.get("input"), dict):
                arguments = tool.fit(answer["input"])
        except Problem as problem:
            status: ReturnStatus = "error" if problem.key == "schema_mismatch" else "forbidden"
            return Gated("refuse", reason=problem.message, status=status)
        return await _decided(stage, tool, arguments)

    return await stage.step(f"agent/{state.place}/gate", body, Gated)


async def _fit(stage: Stage, state: AgentState, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the tool takes them; the tool's own preparation happens once."""
    key = f"agent/{state.place}/prepared"
    return await fit_for(stage.tools, tool, arguments, lambda prepare: stage.step(key, prepare, Any))


async def ask_approval(stage: Stage, state: AgentState, step: AskApproval) -> Approved:
    tool = state.tool(step.call.name)
    assert tool is not None, "decide asks only for tools that are there"
    key, known = f"agent/{state.place}/approval", {"agentId": stage.manifest.agent_id}
    answer = await approved(stage.approvals, key, "agent", tool, step.arguments, step.reason, **known)
    return Approved(answer.action, answer.arguments, answer.note)


async def call_tool(stage: Stage, place: str, step: CallTool) -> Returned:
    """The tool's effect, then what the extensions make of its result."""
    key = f"agent/{place}/call"
    identity = f"{stage.invocation.id}/{key}" if step.tool.effect == "write" and step.tool.takes_key else None

    async def body() -> _Called:
        began = stage.clock.monotonic()

        async def update(partial: Any) -> None:
            await stage.tell(
                "tool_execution_update",
                toolCallId=step.call.id,
                toolName=step.call.name,
                args=step.arguments,
                partialResult=partial,
            )

        try:
            outcome = await stage.tools.call(
                step.tool, step.arguments, call_id=step.call.id, idempotency_key=identity, update=update
            )
        except Problem as problem:
            if problem.key == "effect_uncertain":
                raise
            outcome = ToolOutcome(problem.message, is_error=True, details=problem.as_lafs())
        return _Called(outcome, round((stage.clock.monotonic() - began) * 1000))

    called = await _once_or_ask(stage, key, body, step, identity)
    return await _settled(stage, place, step.call, step.arguments, called.outcome, called.duration_ms)


async def refuse_call(stage: Stage, place: str, step: RefuseCall) -> Returned:
    async def body() -> Returned:
        await _tell_end(stage, step.call, step.reason, is_error=True)
        return Returned(step.reason, step.status)

    return await stage.step(f"agent/{place}/result", body, Returned)


async def _decided(stage: Stage, tool: Tool, arguments: dict[str, Any]) -> Gated:
    decision = await stage.gate.decide(tool, arguments)
    if decision.effect == "deny":
        return Gated("refuse", arguments, decision.reason or "Policy denies this call.", "forbidden")
    return Gated("prompt" if decision.effect == "prompt" else "run", arguments, decision.reason)


async def _once_or_ask(
    stage: Stage, key: str, body: Callable[[], Awaitable[_Called]], step: CallTool, identity: str | None
) -> _Called:
    def without(answer: ApprovalAnswer, _problem: Problem) -> _Called:
        text = answer.note or "It is not known whether this was done. It was not run again."
        return _Called(ToolOutcome(text, is_error=True), None)

    return await once_or_ask(
        key,
        lambda attempt: stage.once(attempt, body, step.tool.effect, _Called, identity),
        stage.approvals,
        step.tool,
        step.arguments,
        otherwise="go on without, and say in the note what you found.",
        rejected=without,
        callId=step.call.id,
    )


async def _settled(
    stage: Stage, place: str, call: ToolCall, arguments: dict[str, Any], outcome: ToolOutcome, duration: int | None
) -> Returned:
    async def body() -> Returned:
        answer = await stage.tell(
            "tool_result",
            toolName=call.name,
            toolCallId=call.id,
            input=arguments,
            content=pi.blocks_of(outcome.content),
            details=outcome.details,
            isError=outcome.is_error,
        )
        text, failed, details = outcome.content, outcome.is_error, outcome.details
        if answer is not None:
            text = pi.text_of(answer["content"]) if "content" in answer else text
            failed, details = bool(answer.get("isError", failed)), answer.get("details", details)
        await _tell_end(stage, call, text, is_error=failed)
        return Returned(text, "error" if failed else "ok", duration, details if stage.transcript else None)

    return await stage.step(f"agent/{place}/result", body, Returned)


async def _tell_end(stage: Stage, call: ToolCall, text: str, *, is_error: bool) -> None:
    result = {"content": pi.blocks_of(text)}
    await stage.tell("tool_execution_end", toolCallId=call.id, toolName=call.name, result=result, isError=is_error)
    await stage.tell_message(Message("tool", text, tool_call_id=call.id))

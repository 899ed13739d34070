"""The agent loop as two pure functions: `evolve` folds records into a state, `decide` says what comes next.

A1  The same records give the same state and the same next step; nothing here reads a clock, a file or a model.
A2  Every tool call of an answer is settled by exactly one Returned, in the order of the calls, before the model is
    called again.
A3  A tool that is not on the surface is never called (OpenWOP RFC 0077: the allowlist is always enforced).
A4  The loop ends: turns and repairs are bounded.
A5  An answer leaves the loop only when it fits the return schema.
A6  A tool of the caller's own is never called here. When the host's own calls of an answer are settled, the loop ends
    and hands the others over.
A7  What is said to an agent of a conversation while it works, it hears when all tool calls of its answer are settled:
    before the model is asked again, and before the loop ends.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from forestay.agents import structured
from forestay.agents.manifest import AgentManifest
from forestay.agents.steps import (
    Answered,
    Approved,
    AskApproval,
    Begin,
    Begun,
    CallModel,
    CallTool,
    Confirm,
    Confirmed,
    Correct,
    Corrected,
    Fail,
    Finish,
    GateCall,
    Gated,
    Interjected,
    Listen,
    Outcome,
    Record,
    RefuseCall,
    Returned,
    Step,
)
from forestay.models import Message, ToolCall, Usage
from forestay.tools import Tool

CALLER = "caller"
"""The source of tools that the caller of the invocation performs itself (A6)."""
DEFAULT_THRESHOLD = 0.7  # OpenWOP RFC 0002 §F


class AgentState(msgspec.Struct, frozen=True):
    """Where an invocation stands: the fold of its records."""

    manifest: AgentManifest
    hears: bool = False
    """Whether a person may speak to it while it works (A7)."""
    listened: int = -1
    """After how many turns it listened last."""
    messages: tuple[Message, ...] = ()
    surface: tuple[Tool, ...] = ()
    handled: bool = False
    known: int = 0
    turns: int = 0
    repairs: int = 0
    last: Answered | None = None
    waiting: tuple[ToolCall, ...] = ()
    gated: Gated | None = None
    approved: Approved | None = None
    confirmed: Confirmed | None = None
    usage: Usage = Usage(0, 0)

    @property
    def place(self) -> str:
        """Which call of which turn is next; the same in every replay, whatever ids a model gives its calls."""
        number = len(self.last.tool_calls) - len(self.waiting) if self.last else 0
        return f"turn-{self.turns - 1}/tool-{number}"

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.surface if tool.name == name), None)

    def is_callers(self, call: ToolCall) -> bool:
        """Whether a call is the caller's to make (A6)."""
        tool = self.tool(call.name)
        return tool is not None and tool.source == CALLER


def evolve(state: AgentState, record: Record) -> AgentState:
    replace = msgspec.structs.replace
    match record:
        case Begun():
            begun = {"messages": record.messages, "surface": record.surface, "handled": record.handled}
            return replace(state, **begun, known=record.known)
        case Answered():
            return _answered(state, record)
        case Gated():
            return replace(state, gated=record)
        case Approved():
            return replace(state, approved=record)
        case Returned(content):
            message = Message("tool", content, tool_call_id=state.waiting[0].id)
            return replace(
                state, messages=(*state.messages, message), waiting=state.waiting[1:], gated=None, approved=None
            )
        case Corrected(text):
            return replace(
                state, messages=(*state.messages, Message("user", text)), repairs=state.repairs + 1, last=None
            )
        case Confirmed():
            return replace(state, confirmed=record)
        case Interjected():
            said = tuple(Message("user", item.text) for item in record.messages)
            last = None if any(item.wants_answer for item in record.messages) else state.last
            return replace(state, messages=(*state.messages, *said), last=last, listened=state.turns)
        case _:
            assert_never(record)


def _answered(state: AgentState, record: Answered) -> AgentState:
    used = record.usage or Usage(0, 0)
    return msgspec.structs.replace(
        state,
        messages=(*state.messages, Message("assistant", record.text, record.tool_calls)),
        turns=state.turns + 1,
        last=record,
        waiting=tuple(sorted(record.tool_calls, key=state.is_callers)),
        usage=Usage(state.usage.input_tokens + used.input_tokens, state.usage.output_tokens + used.output_tokens),
    )


def decide(state: AgentState) -> Step:
    if not state.messages:
        return Begin()
    if state.handled:
        return Finish("", "handed-off")
    if state.waiting and state.is_callers(state.waiting[0]):
        return Finish(state.last.text if state.last is not None else "", "handed-off", calls=state.waiting)
    if state.waiting:
        return _settle(state, state.waiting[0])
    if state.hears and state.listened < state.turns:
        is_failed = state.last is not None and state.last.finish_reason in ("content_filter", "error")
        return Listen(takes=not is_failed and state.turns < state.manifest.turns)
    if state.last is None or state.last.tool_calls:
        return _next_turn(state)
    return _conclude(state, state.last)


def _settle(state: AgentState, call: ToolCall) -> Step:
    """The next thing to do for the first call that waits (A2, A3)."""
    gated, approved = state.gated, state.approved
    tool = state.tool(call.name)
    if gated is None:
        return GateCall(call)
    if gated.verdict == "refuse" or tool is None:
        return RefuseCall(call, gated.reason, gated.status)
    if gated.verdict == "prompt" and approved is None:
        return AskApproval(call, gated.arguments, gated.reason)
    if approved is not None and approved.action == "reject":
        return RefuseCall(call, f"A person refused this call. {approved.note}".strip(), "forbidden")
    arguments = approved.arguments if approved and approved.arguments is not None else gated.arguments
    return CallTool(call, tool, arguments)


def _next_turn(state: AgentState) -> Step:
    limit = state.manifest.turns
    if state.turns >= limit:
        return Fail(
            "agent_turns_exhausted", f"The agent took {limit} turns and did not come to an answer.", {"turns": limit}
        )
    return CallModel(state.turns, state.messages)


def _conclude(state: AgentState, answer: Answered) -> Step:
    if answer.finish_reason == "content_filter":
        return Fail("agent_refused", "The model refused the task.", outcome="refused")
    if answer.finish_reason == "length":
        return Fail("agent_cut", "The model's answer was cut by its output limit.", {"turns": state.turns})
    if answer.finish_reason == "error":
        return Fail("provider_error", "The model ended with an error.", {"turns": state.turns})
    schema = state.manifest.return_schema
    if schema is None:
        if not answer.text.strip() and state.turns == 1:  # after a tool call there may be nothing left to say
            return Fail("provider_error", "The model ended without an answer and without a tool call.")
        return Finish(answer.text)
    parsed = structured.read(answer.text, schema)
    if not parsed.mistakes:
        return _confident(state, parsed.value)
    if state.repairs < state.manifest.repairs and state.turns < state.manifest.turns:
        return Correct(structured.correction(parsed.mistakes))
    errors = [{"at": mistake.at, "message": mistake.message} for mistake in parsed.mistakes]
    message = f"The answer does not fit the return schema after {state.repairs} repairs."
    return Fail("agent_output_invalid", message, {"errors": errors}, validated=False)


def _confident(state: AgentState, output: Any) -> Step:
    """An answer that carries a confidence below the threshold is confirmed by a person first (OpenWOP RFC 0002 §F)."""
    confidence = output.get("confidence") if isinstance(output, dict) else None
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        return Finish(output, validated=True)
    threshold = DEFAULT_THRESHOLD if state.manifest.threshold is None else state.manifest.threshold
    if confidence >= threshold:
        return Finish(output, validated=True, confidence=confidence)
    if state.confirmed is None:
        return Confirm(output, confidence, threshold)
    outcome: Outcome = "completed" if state.confirmed.accepted else "escalated"
    return Finish(output, outcome, validated=True, confidence=confidence)

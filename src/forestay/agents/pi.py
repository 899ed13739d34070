"""The agent's life as pi knows it: messages there and back, and what an invocation adds to pi's session.

Order in one invocation, as the real runtime keeps it:

    before_agent_start, agent_start,
      turn_start, message_start and message_end of the prompt (first turn),
        context, context_with_system, before_provider_request, after_provider_response,
        message_start, message_update …, message_end,
        for each tool call: tool_execution_start, tool_call, tool_execution_update …, tool_result, tool_execution_end,
                            message_start and message_end of its result,
      turn_end, …
    agent_end

R1  Each record of the loop gives the same entries under the same places, whenever it is read: a replay adds nothing.
R2  What a model is shown of a conversation is whole: every tool call in it has a result, and every result its call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from forestay.agents.decide import AgentState
from forestay.agents.steps import Answered, Begun, Corrected, Interjected, Record, Returned
from forestay.kernel import Problem
from forestay.models import FinishReason, Message, Role, ToolCall, Usage

_FROM_PI: dict[str, Role] = {"user": "user", "assistant": "assistant", "toolResult": "tool", "system": "system"}


def to_pi(message: Message) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": message.content}] if message.content else []
    if message.role == "tool":
        return {"role": "toolResult", "toolCallId": message.tool_call_id, "content": content}
    content += [
        {"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    made: dict[str, Any] = {"role": message.role, "content": content}
    return made | {"task": True} if message.task else made


def from_pi(message: Any) -> Message | None:
    """A message that an extension made; None when it is none."""
    if not isinstance(message, dict):
        return None
    role = _FROM_PI.get(str(message.get("role", "user")), "user")
    content = message.get("content", "")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    calls = tuple(
        ToolCall(str(block.get("id", "")), str(block.get("name", "")), dict(block.get("arguments") or {}))
        for block in blocks
        if block.get("type") == "toolCall"
    )
    call_id = message.get("toolCallId")
    call_id = call_id if isinstance(call_id, str) else None
    return Message(role, text_of(content), calls, call_id, task=role == "user" and message.get("task") is True)


def text_of(content: Any) -> str:
    """The text of a pi content: a string, or a list of blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(block.get("text", "")) for block in content if isinstance(block, dict) and "text" in block)


def blocks_of(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


_STOPS: dict[FinishReason, str] = {
    "stop": "stop", "length": "length", "tool_calls": "toolUse", "content_filter": "error", "error": "error",
}  # fmt: skip
_SENT = ("customType", "content", "display", "details")
NO_RESULT = "No result provided: the turn was ended before the tool was."
_COMPACTED = "The conversation before this point was compacted into this summary:\n\n"
_BRANCHED = "This is a summary of a branch of the conversation that was left:\n\n"

Entries = Iterator[tuple[str, dict[str, Any]]]


def entries_of(state: AgentState, record: Record, model: str, now_ms: int) -> Entries:
    """The entries of a record that was made in `state`, each with its place in the invocation (R1)."""
    match record:
        case Begun(handled=False):
            for message in record.messages[1 + record.known :]:
                if message.task:
                    yield "prompt", _message({"role": "user", "content": blocks_of(message.content)}, now_ms)
            for number, item in enumerate(record.added):
                if not item.get("inSession"):
                    yield f"added-{number}", _custom(item)
        case Answered():
            yield f"turn-{state.turns}/answer", _message(_answer(record, model), now_ms)
        case Returned():
            call = state.waiting[0]
            result: dict[str, Any] = {"role": "toolResult", "toolCallId": call.id, "toolName": call.name}
            result |= {"content": blocks_of(record.content), "isError": record.status != "ok"}
            result |= {} if record.details is None else {"details": record.details}
            yield f"{state.place}/result", _message(result, now_ms)
        case Corrected(text):
            yield f"turn-{state.turns}/correction", _message({"role": "user", "content": blocks_of(text)}, now_ms)
        case Interjected():
            for said in record.messages:
                user = _message({"role": "user", "content": blocks_of(said.text)}, now_ms)
                yield f"heard/{said.id}", user if said.sent is None else _custom(said.sent)
        case _:
            return


def _custom(sent: Mapping[str, Any]) -> dict[str, Any]:
    """A message of an extension, as pi keeps it."""
    told = {name: sent.get(name) for name in _SENT}
    return {"type": "custom_message", **told, "display": sent.get("display", True)}


def failed_entry(state: AgentState, problem: Problem, model: str, now_ms: int) -> tuple[str, dict[str, Any]]:
    """How pi keeps a turn that failed: an answer without content that says why."""
    error = {"stopReason": "error", "errorMessage": problem.message}
    return f"turn-{state.turns}/failed", _message({**_answer(Answered("", (), "error"), model), **error}, now_ms)


def aborted_entry(model: str, now_ms: int) -> dict[str, Any]:
    """How pi keeps a turn that a person ended."""
    answer = _answer(Answered("", (), "error"), model)
    return _message({**answer, "stopReason": "aborted", "errorMessage": "The turn was cancelled."}, now_ms)


def _message(message: dict[str, Any], now_ms: int) -> dict[str, Any]:
    return {"type": "message", "message": {**message, "timestamp": now_ms}}


def _answer(record: Answered, model: str) -> dict[str, Any]:
    provider, _, name = (record.model or model).partition(":")
    used = record.usage or Usage(0, 0)
    total = used.input_tokens + used.output_tokens
    nothing = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
    return {
        **to_pi(Message("assistant", record.text, record.tool_calls)),
        "api": "forestay",
        "provider": provider,
        "model": name or provider,
        "usage": {
            "input": used.input_tokens,
            "output": used.output_tokens,
            "cacheRead": 0,
            "cacheWrite": 0,
            "totalTokens": total,
            "cost": {**nothing, "total": used.cost_usd or 0},
        },
        "stopReason": "toolUse" if record.tool_calls else _STOPS[record.finish_reason],
    }


def conversation(messages: Iterable[Any]) -> list[Message]:
    """Messages of pi's session as a model is shown them (R2)."""
    whole: list[Message] = []
    waiting: dict[str, Message] = {}  # calls of the last answer, each with what stands for its result
    for message in (told for item in messages if (told := _told(item)) is not None):
        if message.role == "tool":
            if message.tool_call_id in waiting:  # else it has no call that is shown
                waiting[message.tool_call_id] = message
            continue
        whole += waiting.values()
        waiting = {call.id: Message("tool", NO_RESULT, tool_call_id=call.id) for call in message.tool_calls}
        whole.append(message)
    return [*whole, *waiting.values()]


def _told(item: Any) -> Message | None:
    if not isinstance(item, Mapping):
        return None
    match item.get("role"):
        case "user" | "toolResult":
            return from_pi({**item, "task": False})
        case "assistant":
            return None if item.get("stopReason") in ("error", "aborted") else from_pi(dict(item))
        case "custom":
            return Message("user", text_of(item.get("content")))
        case "compactionSummary":
            return Message("user", f"{_COMPACTED}{item.get('summary')}")
        case "branchSummary":
            return Message("user", f"{_BRANCHED}{item.get('summary')}")
        case "bashExecution" if not item.get("excludeFromContext"):
            return Message("user", _ran(item))
        case _:
            return None


def _ran(item: Mapping[str, Any]) -> str:
    """A command that the person ran, in pi's words."""
    output, code = item.get("output"), item.get("exitCode")
    text = f"Ran `{item.get('command')}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if item.get("cancelled"):
        return f"{text}\n\n(command cancelled)"
    return f"{text}\n\nCommand exited with code {code}" if code else text


def since_history(state: AgentState) -> Sequence[Message]:
    """What was said in this invocation, without what stood before it."""
    return [message for message in state.messages[1 + state.known :] if message.role != "system"]

"""What an invocation adds to the conversation that it goes on with, as entries of pi's session.

R1  Each record of the loop gives the same entries under the same places, whenever it is read: a replay adds nothing.
R2  What a model is shown of a conversation is whole: every tool call in it has a result, and every result its call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from forestay.agents import pi
from forestay.agents.decide import AgentState
from forestay.agents.steps import Answered, Begun, Corrected, Interjected, Record, Returned
from forestay.kernel import Problem
from forestay.models import FinishReason, Message, Usage

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
                    yield "prompt", _message({"role": "user", "content": pi.blocks_of(message.content)}, now_ms)
            for number, item in enumerate(record.added):
                if not item.get("inSession"):
                    yield f"added-{number}", _custom(item)
        case Answered():
            yield f"turn-{state.turns}/answer", _message(_answer(record, model), now_ms)
        case Returned():
            call = state.waiting[0]
            result: dict[str, Any] = {"role": "toolResult", "toolCallId": call.id, "toolName": call.name}
            result |= {"content": pi.blocks_of(record.content), "isError": record.status != "ok"}
            result |= {} if record.details is None else {"details": record.details}
            yield f"{state.place}/result", _message(result, now_ms)
        case Corrected(text):
            yield f"turn-{state.turns}/correction", _message({"role": "user", "content": pi.blocks_of(text)}, now_ms)
        case Interjected():
            for said in record.messages:
                user = _message({"role": "user", "content": pi.blocks_of(said.text)}, now_ms)
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
        **pi.to_pi(Message("assistant", record.text, record.tool_calls)),
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
            return pi.from_pi({**item, "task": False})
        case "assistant":
            return None if item.get("stopReason") in ("error", "aborted") else pi.from_pi(dict(item))
        case "custom":
            return Message("user", pi.text_of(item.get("content")))
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

"""One turn of a conversation: what `Session.turn` gives back, and where the session's stream holds it.

T1  A turn under a key is asked once. What the stream holds under that key is given back; an answer that was cut short
    goes on where it stopped.
T2  The answer stands in the session's stream and nowhere else. Other records name the session and the digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from forestay.kernel import Record, canonical
from forestay.models import Completion, FinishReason, Message, ToolCall, Usage, whole
from forestay.relay.report import tier
from forestay.relay.types import Stop, Tier
from forestay.relay.warm import Dispatch
from forestay.relay.window import Around

_CUT = frozenset({"max_windows", "max_continuations", "no_new_text", "information_flow"})


class Piece(msgspec.Struct, frozen=True):
    """The next piece of an answer, as it is written: in which window, and whether the answer ends with it."""

    text: str
    window: int
    last: bool = False


class Turned(msgspec.Struct, frozen=True):
    """What a model said in one turn, and how the relay got it; `digest` is the answer's."""

    answer: Completion
    digest: str
    window_id: str
    windows: int
    tier: Tier
    facts_in_envelope: int


def turned(state: Dispatch, stop: Stop) -> Turned:
    """The turn that a dispatch was, when it has ended."""
    text = whole(state.output)
    calls = msgspec.convert(state.calls, tuple[ToolCall, ...]) if stop == "complete" else ()
    finish: FinishReason = "tool_calls" if calls else "length" if stop in _CUT else "stop"
    return Turned(
        Completion(
            text,
            calls,
            "content_filter" if stop == "filtered" else finish,
            Usage(state.input_tokens, state.output_tokens),
            state.served_by,
            asked=tuple(Usage(*tokens) for tokens in state.used),
        ),
        canonical.digest(text),
        state.window_id,
        state.windows,
        tier(state.windows),
        len(state.envelope_facts),
    )


def recorded(records: Iterable[Record]) -> dict[str, Turned]:
    """The turns that a session's stream holds, by their keys (T1)."""
    found: dict[str, Turned] = {}
    state: Dispatch | None = None
    for record in records:
        match record.type.removeprefix("crp."):
            case "dispatch.start":
                state = Dispatch.begun(record.payload)
            case "envelope.build_complete" if state is not None:
                state.shown(record.payload)
            case "window.complete" if state is not None:
                state.said(record.payload)
            case "dispatch.complete" if state is not None:
                if state.key:
                    found[state.key] = turned(state, record.payload["stopped_by"])
                state = None
            case _:
                pass
    return found


def parts(messages: Sequence[Message]) -> tuple[str, str, Around]:
    """The system prompt, the task, and the conversation around it.

    The task is the message that is marked as one. Where an extension has taken that out, it is what the user says last.
    """
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    spoken = [message for message in messages if message.role != "system"]
    asked = [index for index, message in enumerate(spoken) if message.role == "user"]
    if not asked:
        return system, "", Around((), tuple(spoken))
    at = next((index for index in asked if spoken[index].task), asked[-1])
    return system, spoken[at].content, Around(tuple(spoken[:at]), tuple(spoken[at + 1 :]))

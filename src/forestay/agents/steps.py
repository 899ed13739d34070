"""The agent loop's data: records (what happened) and steps (what to do next)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from forestay.models import FinishReason, Message, ToolCall, Usage
from forestay.tools import Tool

Outcome = Literal["completed", "handed-off", "escalated", "refused", "failed"]
ReturnStatus = Literal["ok", "error", "forbidden"]


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The conversation as it starts, and the tools that the allowlist leaves."""

    messages: tuple[Message, ...]
    surface: tuple[Tool, ...]
    handled: bool = False
    """An extension handled the task (`input`): the model is not asked."""
    history: str | None = None
    """Where the conversation stood that this goes on: what was said before stands there, not in `messages`."""
    known: int = 0
    """How many of `messages`, after the first, are of the history."""
    added: tuple[dict[str, Any], ...] = ()
    """Messages that extensions added before the start, as they gave them."""
    recalled: tuple[str, ...] = ()
    """The ids of what the agent remembered; what they say stands in the memory alone, until it is forgotten."""


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """What the model said. Once recorded it is never asked again."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    usage: Usage | None = None
    asked: tuple[Usage, ...] = ()  # what each call of the model used
    model: str = ""
    """The model that wrote it, where the agent's own model is one that chooses among others."""


class Gated(msgspec.Struct, frozen=True, tag="gated"):
    """What allowlist, schema, extensions and policy said of the next call."""

    verdict: Literal["run", "prompt", "refuse"]
    arguments: dict[str, Any] = {}
    reason: str = ""
    status: ReturnStatus = "ok"


class Approved(msgspec.Struct, frozen=True, tag="approved"):
    """What a person said of the call that policy wanted asked."""

    action: Literal["accept", "reject", "edit-accept"]
    arguments: dict[str, Any] | None = None
    note: str = ""


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """How the next tool call ended, as the model will read it."""

    content: str
    status: ReturnStatus = "ok"
    duration_ms: int | None = None
    details: Any = None
    """What the tool says for programs; the model does not read it."""


class Corrected(msgspec.Struct, frozen=True, tag="corrected"):
    """The model was told what is wrong with its answer."""

    message: str


class Confirmed(msgspec.Struct, frozen=True, tag="confirmed"):
    """What a person said of an answer that the agent itself was not sure of."""

    accepted: bool


class Interjection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that was said to the agent while it worked."""

    id: str
    text: str
    """What the model reads of it."""
    sent: dict[str, Any] | None = None
    """A message of an extension, as it was sent; None: it is said in the user's name."""
    wants_answer: bool = True


class Interjected(msgspec.Struct, frozen=True, tag="interjected"):
    """What the agent heard after a turn, before the model is asked again or the work ends."""

    messages: tuple[Interjection, ...] = ()
    met: tuple[str, ...] = ()
    """The ids of everything that waits no longer, also of what an extension handled."""


Record = Begun | Answered | Gated | Approved | Returned | Corrected | Confirmed | Interjected


class Begin(msgspec.Struct, frozen=True):
    """Put the conversation together."""


class CallModel(msgspec.Struct, frozen=True):
    turn: int
    messages: tuple[Message, ...]


class GateCall(msgspec.Struct, frozen=True):
    call: ToolCall


class AskApproval(msgspec.Struct, frozen=True):
    call: ToolCall
    arguments: dict[str, Any]
    reason: str


class CallTool(msgspec.Struct, frozen=True):
    call: ToolCall
    tool: Tool
    arguments: dict[str, Any]


class RefuseCall(msgspec.Struct, frozen=True):
    call: ToolCall
    reason: str
    status: ReturnStatus


class Listen(msgspec.Struct, frozen=True):
    """End the turn, and hear what was said meanwhile; after a failed answer, or the last turn, it waits."""

    takes: bool


class Correct(msgspec.Struct, frozen=True):
    message: str


class Confirm(msgspec.Struct, frozen=True):
    output: Any
    confidence: float
    threshold: float


class Finish(msgspec.Struct, frozen=True):
    output: Any
    outcome: Outcome = "completed"
    validated: bool | None = None
    confidence: float | None = None
    calls: tuple[ToolCall, ...] = ()
    """Calls of the caller's own tools, which the caller makes."""


class Fail(msgspec.Struct, frozen=True):
    key: str
    message: str
    details: dict[str, Any] = {}
    outcome: Outcome = "failed"
    validated: bool | None = None


Step = (
    Begin | CallModel | GateCall | AskApproval | CallTool | RefuseCall | Listen | Correct | Confirm | Finish | Fail
)  # fmt: skip

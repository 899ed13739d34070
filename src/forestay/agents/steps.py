"""The agent loop's data: records (past events) and steps (the next action)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from forestay.models import FinishReason, Message, ToolCall, Usage
from forestay.tools import Tool

Outcome = Literal["completed", "handed-off", "escalated", "refused", "failed"]
ReturnStatus = Literal["ok", "error", "forbidden"]


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The conversation at its start, and the tools that the allowlist permits."""

    messages: tuple[Message, ...]
    surface: tuple[Tool, ...]
    handled: bool = False
    """An extension handled the task (`input`): the model is not asked."""
    history: str | None = None
    """The last entry of the session that this continues; the earlier messages are in the session, not in `messages`."""
    known: int = 0
    """How many of `messages`, after the first, come from the history."""
    added: tuple[dict[str, Any], ...] = ()
    """Messages that extensions added before the start, unchanged."""
    recalled: tuple[str, ...] = ()
    """The ids of the recalled memory entries; only the memory has their content."""


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The model's answer. Once it is recorded, the model is not asked for it again."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    usage: Usage | None = None
    asked: tuple[Usage, ...] = ()  # the usage of each call of the model
    model: str = ""
    """The model that wrote it, if the agent's model chooses among others."""


class Gated(msgspec.Struct, frozen=True, tag="gated"):
    """The verdict of allowlist, schema, extensions and policy on the next call."""

    verdict: Literal["run", "prompt", "refuse"]
    arguments: dict[str, Any] = {}
    reason: str = ""
    status: ReturnStatus = "ok"


class Approved(msgspec.Struct, frozen=True, tag="approved"):
    """A person's answer about a call that needs approval."""

    action: Literal["accept", "reject", "edit-accept"]
    arguments: dict[str, Any] | None = None
    note: str = ""


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """The result of the next tool call, in the form that the model reads."""

    content: str
    status: ReturnStatus = "ok"
    duration_ms: int | None = None
    details: Any = None
    """The tool's data for programs; the model does not read it."""


class Corrected(msgspec.Struct, frozen=True, tag="corrected"):
    """The correction that the model got for its answer."""

    message: str


class Confirmed(msgspec.Struct, frozen=True, tag="confirmed"):
    """A person's verdict on an answer of low confidence."""

    accepted: bool


class Interjection(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to the agent while it works."""

    id: str
    text: str
    """The text that the model reads."""
    sent: dict[str, Any] | None = None
    """An extension's message, unchanged; None: the message has the role `user`."""
    wants_answer: bool = True


class Interjected(msgspec.Struct, frozen=True, tag="interjected"):
    """The messages that the agent got after a turn, before the next call of the model or the end of the work."""

    messages: tuple[Interjection, ...] = ()
    met: tuple[str, ...] = ()
    """The ids of all messages that no longer wait, also of those that an extension handled."""


Record = Begun | Answered | Gated | Approved | Returned | Corrected | Confirmed | Interjected


class Begin(msgspec.Struct, frozen=True):
    """Build the conversation."""


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
    """End the turn and, if `takes`, take the waiting messages; after a failed answer or the last turn they stay."""

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

"""The extension protocol, v1, as typed data (Pi §3): the messages between an extension and its host.

`HostCall` and `HostResult` are the payloads of `host_call` and `host_result`; the dispatcher implements `HostCalls`.
`Message` is the envelope of the wire format, for tiers that exchange it literally.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from forestay.extensions.manifest import CapabilityManifest

VERSION = "1.0"

HostCode = Literal["timeout", "denied", "io", "invalid_request", "internal"]
MessageType = Literal[
    "register",
    "tool_call",
    "tool_result",
    "slash_command",
    "slash_result",
    "event_hook",
    "host_call",
    "host_result",
    "log",
    "error",
]


class HostCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for a privileged operation; there is no other way to make one (§3.2).

    `capability` is the caller's claim and never a reason to allow anything: the dispatcher derives the capability from
    `method` and `params` and refuses a claim that differs. An empty text means that the caller makes no claim.
    """

    call_id: str
    capability: str
    method: str
    params: dict[str, Any]
    timeout_ms: int | None = None
    cancel_token: str | None = None
    context: dict[str, Any] | None = None


class HostCallError(msgspec.Struct, frozen=True, omit_defaults=True):
    code: HostCode
    message: str
    details: dict[str, Any] | None = None
    retryable: bool | None = None


class Backpressure(msgspec.Struct, frozen=True, omit_defaults=True):
    credits: int | None = None
    delay_ms: int | None = None


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    index: int
    is_last: bool
    backpressure: Backpressure | None = None


class HostResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer, or one part of a streamed answer; `error` is set exactly when `is_error` is true."""

    call_id: str
    output: dict[str, Any]
    is_error: bool
    error: HostCallError | None = None
    chunk: Chunk | None = None

    @classmethod
    def ok(cls, call_id: str, output: dict[str, Any]) -> HostResult:
        return cls(call_id, output, False)

    @classmethod
    def failed(cls, call_id: str, code: HostCode, message: str, **details: Any) -> HostResult:
        return cls(call_id, {}, True, HostCallError(code, message, details or None, code == "timeout"))


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    call_id: str
    name: str
    input: dict[str, Any]
    context: dict[str, Any] | None = None


class ToolResult(msgspec.Struct, frozen=True):
    call_id: str
    output: dict[str, Any]
    is_error: bool


class SlashCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    args: list[str] | None = None
    input: dict[str, Any] | None = None


class SlashResult(msgspec.Struct, frozen=True):
    output: dict[str, Any]
    is_error: bool


class EventHook(msgspec.Struct, frozen=True, omit_defaults=True):
    event: str
    data: dict[str, Any] | None = None


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    message: str
    details: dict[str, Any] | None = None


class Register(msgspec.Struct, frozen=True, omit_defaults=True):
    """The registrations of a loaded extension (§3)."""

    name: str
    version: str
    api_version: str
    capabilities: list[str] | None = None
    capability_manifest: CapabilityManifest | None = None
    tools: list[dict[str, Any]] | None = None
    slash_commands: list[dict[str, Any]] | None = None
    event_hooks: list[str] | None = None


class Message(msgspec.Struct, frozen=True):
    """The envelope of the wire format; `type` tells which of the structs above `payload` is."""

    id: str
    version: Literal["1.0"]
    type: MessageType
    payload: dict[str, Any]


class HostCalls(Protocol):
    """The only way out of an extension: derives the capability, decides, performs the call and records evidence."""

    def call(self, call: HostCall, extension: str) -> AsyncIterator[HostResult]:
        """Perform `call`; yield one result, or several with `chunk`, the last with `is_last`. Never raises."""

    async def answer(self, call: HostCall, extension: str) -> HostResult:
        """As `call`, for a call that does not stream; return its only result. Never raises."""

    def call_sync(self, call: HostCall, extension: str) -> HostResult:
        """As `call`, but block the extension's own thread; return one result without chunks. Never raises."""

    def is_quick(self, call: HostCall, extension: str) -> bool:
        """Whether `call_sync` may run on the event loop's own thread, because it is short and never blocks."""
        return False

    def cancel(self, call_id: str) -> None:
        """Stop the call if it still runs; a second or late cancel does nothing."""

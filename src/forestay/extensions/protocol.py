"""The extension protocol, v1, as typed data (Pi §3): what crosses between an extension and its host.

`HostCall` and `HostResult` are the payloads of `host_call` and `host_result`; `HostCalls` is the door they go
through. `Message` is the envelope of the wire format, for tiers that speak it literally.
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
    """A request for something privileged; the only kind there is (§3.2).

    `capability` is the caller's claim and never a reason to allow anything: the dispatcher derives the capability from
    `method` and `params` and refuses a claim that differs. An empty claim means that the caller made none.
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
    """An answer, or one part of a streamed answer; `error` is there exactly when `is_error` is."""

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
    """What an extension offers, once it has loaded (§3)."""

    name: str
    version: str
    api_version: str
    capabilities: list[str] | None = None
    capability_manifest: CapabilityManifest | None = None
    tools: list[dict[str, Any]] | None = None
    slash_commands: list[dict[str, Any]] | None = None
    event_hooks: list[str] | None = None


class Message(msgspec.Struct, frozen=True):
    """The envelope of the wire format; `payload` is one of the structs above, as `type` says."""

    id: str
    version: Literal["1.0"]
    type: MessageType
    payload: dict[str, Any]


class HostCalls(Protocol):
    """The only door out of an extension: derive the capability, decide, perform, leave evidence."""

    def call(self, call: HostCall, extension: str) -> AsyncIterator[HostResult]:
        """Perform `call`; one result, or several with `chunk` of which the last has `is_last`. Never raises."""

    async def answer(self, call: HostCall, extension: str) -> HostResult:
        """As `call`, for one that does not stream: its only result. Never raises."""

    def call_sync(self, call: HostCall, extension: str) -> HostResult:
        """As `call`, for the extension's own thread, which waits: one result, no chunks. Never raises."""

    def is_quick(self, call: HostCall, extension: str) -> bool:
        """Whether `call_sync` may answer on the event loop's own thread: it waits for nobody, and takes one look."""
        return False

    def cancel(self, call_id: str) -> None:
        """Stop the call if it still runs; a second cancel, or one that comes too late, does nothing."""

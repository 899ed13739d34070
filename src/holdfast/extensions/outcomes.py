"""What came of asking an extension: of a tool, of a handler, of something that throws."""

from __future__ import annotations

from typing import Any

import msgspec


class ToolOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """What a tool call gave: pi's result, whether it is an error, and the updates that it streamed.

    `hostcall` is the code of a host call whose refusal or failure the tool did not catch.
    """

    content: list[Any]
    details: Any = None
    is_error: bool = False
    updates: list[Any] = msgspec.field(default_factory=list)
    hostcall: str | None = None
    problem: dict[str, Any] | None = None


class HookOutcome(msgspec.Struct, frozen=True):
    """What one handler did: what it returned (`returned` tells null from nothing), and what it changed in place."""

    value: Any
    changed: Any
    returned: bool


def outcome_of(value: Any, updates: list[Any]) -> ToolOutcome:
    """A tool answers `{content, details}`; a plain string is taken as text, as the agent would show it.

    Only a tool that throws has failed: the real runtime takes no notice of an `isError` in the answer (P10).
    """
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return ToolOutcome(value["content"], value.get("details"), False, updates)
    if isinstance(value, str):
        return ToolOutcome([{"type": "text", "text": value}], None, False, updates)
    return ToolOutcome([], value, False, updates)


def described(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"name": "Error", "message": str(value)}


def lines_of(value: Any) -> list[str]:
    return [str(line) for line in value] if isinstance(value, list) else []

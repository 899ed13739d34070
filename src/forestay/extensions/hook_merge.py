"""Merges the answers of several handlers into one (P10).

A merge holds the event as the next handler sees it, takes what a handler did, and says whether that ends the event.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

from forestay.extensions.outcomes import HookOutcome

Event = dict[str, Any]


class Merge(Protocol):
    fails_closed: bool

    @property
    def only_tells(self) -> bool:
        """Whether no answer changes what the next handler sees, what the caller gets, or who is asked."""

    def event(self) -> Event:
        """What the next handler is given."""

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        """Take what a handler did; True ends the event."""

    def result(self) -> Any:
        """What the caller gets when all have spoken."""


class _Plain:
    """Handlers are told; what they return is dropped."""

    fails_closed = False

    @property
    def only_tells(self) -> bool:
        return type(self) is _Plain

    def __init__(self, event: Event) -> None:
        self._event = event

    def event(self) -> Event:
        return self._event

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        return False

    def result(self) -> Any:
        return None


class _Before(_Plain):
    """session_before_…: the last answer counts, and `cancel` ends it."""

    _result: Any = None

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        if isinstance(outcome.value, dict):
            self._result = outcome.value
            return bool(outcome.value.get("cancel"))
        return False

    def result(self) -> Any:
        return self._result


class _ToolCall(_Before):
    """May change the input in place, and may block; whoever fails blocks."""

    fails_closed = True

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        if isinstance(outcome.changed, dict):
            self._event = {**self._event, "input": outcome.changed}
        if isinstance(outcome.value, dict):
            self._result = outcome.value
            return bool(outcome.value.get("block"))
        return False

    def result(self) -> Any:
        answer = self._result or {}
        return {"block": bool(answer.get("block")), "reason": answer.get("reason"), "input": self._event.get("input")}


class _ToolResult(_Plain):
    """May replace content, details and isError, each by itself; the next handler sees the replaced ones."""

    _modified = False

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        if isinstance(outcome.value, dict):
            changes = {k: outcome.value[k] for k in ("content", "details", "isError") if k in outcome.value}
            if changes:
                self._event = {**self._event, **changes}
                self._modified = True
        return False

    def result(self) -> Any:
        return {k: self._event.get(k) for k in ("content", "details", "isError")} if self._modified else None


class _MessageEnd(_Plain):
    """May replace the message, but not its role."""

    _modified = False

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        message = _get(outcome.value, "message")
        if isinstance(message, dict):
            before = self._event.get("message")
            if isinstance(before, dict) and before.get("role") != message.get("role"):
                raise ValueError("message_end handlers must return a message with the same role")
            self._event = {**self._event, "message": message}
            self._modified = True
        return False

    def result(self) -> Any:
        return self._event.get("message") if self._modified else None


class _Context(_Plain):
    """May replace the messages, or change them in place."""

    def __init__(self, event: Event) -> None:
        super().__init__(copy.deepcopy(event))

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        messages = _get(outcome.value, "messages")
        if isinstance(messages, list):
            self._event = {**self._event, "messages": messages}
        elif isinstance(outcome.changed, list):
            self._event = {**self._event, "messages": outcome.changed}
        return False

    def result(self) -> Any:
        return self._event.get("messages")


class _ProviderRequest(_Plain):
    def take(self, extension: str, outcome: HookOutcome) -> bool:
        if outcome.returned:
            self._event = {**self._event, "payload": outcome.value}
        return False

    def result(self) -> Any:
        return self._event.get("payload")


class _AgentStart(_Plain):
    """Each may add one message; the system prompt is passed on from one to the next."""

    def __init__(self, event: Event) -> None:
        super().__init__(event)
        self._messages: list[Any] = []
        self._prompt_changed = False

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        if isinstance(outcome.value, dict):
            if outcome.value.get("message"):
                self._messages.append(outcome.value["message"])
            if isinstance(outcome.value.get("systemPrompt"), str):
                self._event = {**self._event, "systemPrompt": outcome.value["systemPrompt"]}
                self._prompt_changed = True
        return False

    def result(self) -> Any:
        if not self._messages and not self._prompt_changed:
            return None
        return {
            "messages": self._messages or None,
            "systemPrompt": self._event["systemPrompt"] if self._prompt_changed else None,
        }


class _Resources(_Plain):
    """Paths of everybody, each with who named it."""

    _KEYS = ("skillPaths", "promptPaths", "themePaths")

    def __init__(self, event: Event) -> None:
        super().__init__(event)
        self._found: dict[str, list[dict[str, str]]] = {key: [] for key in self._KEYS}

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        for key in self._KEYS:
            paths = _get(outcome.value, key)
            if isinstance(paths, list):
                self._found[key] += [{"path": str(path), "extensionPath": extension} for path in paths]
        return False

    def result(self) -> Any:
        return self._found


class _UserBash(_Before):
    """The first answer wins; where it says that the extension runs the command itself, it says which one."""

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        if isinstance(outcome.value, dict):
            runs = {"extension": extension} if outcome.value.get("operations") else {}
            self._result = {**outcome.value, **runs}
            return True
        return False


class _Boundary(_Plain):
    """Each may give the list of entries anew, and ask to go on; the next handler sees both."""

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        entries = _get(outcome.value, "entries")
        if isinstance(entries, list):
            self._event = {**self._event, "entries": [entry for entry in entries if isinstance(entry, dict)]}
        if isinstance(_get(outcome.value, "continue"), bool):
            self._event = {**self._event, "continue": outcome.value["continue"]}
        return False

    def result(self) -> Any:
        return {"entries": self._event["entries"], "continue": self._event["continue"]}


class _Input(_Plain):
    """Transformations chain; `handled` ends it."""

    _handled: Any = None
    _changed = False

    def take(self, extension: str, outcome: HookOutcome) -> bool:
        action = _get(outcome.value, "action")
        if action == "handled":
            self._handled = outcome.value
            return True
        if action == "transform" and isinstance(_get(outcome.value, "text"), str):
            images = outcome.value.get("images")
            self._event = {**self._event, "text": outcome.value["text"]}
            if images is not None:
                self._event["images"] = images
            self._changed = True
        return False

    def result(self) -> Any:
        if self._handled is not None:
            return self._handled
        if not self._changed:
            return {"action": "continue"}
        return {"action": "transform", "text": self._event["text"], "images": self._event.get("images")}


_MERGES: dict[str, Callable[[Event], Merge]] = {
    "session_before_switch": _Before,
    "session_before_fork": _Before,
    "session_before_compact": _Before,
    "session_before_tree": _Before,
    "session_directory": _Before,
    "tool_call": _ToolCall,
    "tool_result": _ToolResult,
    "message_end": _MessageEnd,
    "context": _Context,
    "context_with_system": _Context,
    "before_provider_request": _ProviderRequest,
    "before_agent_start": _AgentStart,
    "resources_discover": _Resources,
    "user_bash": _UserBash,
    "agent_before_settle": _Boundary,
    "input": _Input,
}


def merge_for(event: Event) -> Merge:
    """How the answers to this event are put together."""
    return _MERGES.get(str(event.get("type")), _Plain)(event)


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None

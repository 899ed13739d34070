"""Parses a component's answers as untrusted JSON: registrations and results."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.extensions.api_table import EVENTS, OLDER_EVENTS
from forestay.extensions.effects import MAX_ANSWER
from forestay.extensions.guests import tool_outcome
from forestay.extensions.outcomes import HookOutcome, ToolOutcome
from forestay.extensions.problems import HOSTCALL_PROBLEMS
from forestay.extensions.protocol import Register
from forestay.extensions.registry import Registrations
from forestay.kernel import Problem, canonical

_KNOWN = frozenset((*EVENTS, *OLDER_EVENTS))
# The member of the answer in which a handler puts its change of the event (JavaScript changes the event in place).
_CHANGED = {"tool_call": "input", "context": "messages"}


def registrations(name: str, answer: bytes) -> Registrations:
    """Parse the answer of `init`: the protocol's `register` payload (Pi §3)."""
    try:
        register = canonical.decode(answer, Register, limit=MAX_ANSWER)
    except Problem as problem:
        raise Problem("registration_invalid", problem.message, **problem.details, extension=name) from problem
    found = Registrations(name)
    for tool in register.tools or ():
        shown = {"label": tool.get("name"), "description": "", "parameters": {"type": "object"}}
        found.add("tool", {**shown, **tool})
    for command in register.slash_commands or ():
        found.add("command", command)
    for event in register.event_hooks or ():
        found.add("handler", {"event": event, "count": 1})
    return found


def undeclared(answer: bytes, declared: set[str]) -> list[str]:
    """Return capabilities that the registration names and the manifest does not (§3.3: the host reports them)."""
    register = canonical.decode(answer, Register, limit=MAX_ANSWER)
    named = set(register.capabilities or ())
    if register.capability_manifest is not None:
        named |= {item.capability for item in register.capability_manifest.capabilities}
    return sorted(named - declared)


def unknown_events(found: Registrations) -> list[str]:
    """Return the events with a handler that the host never emits."""
    return [event[:128] for event in found.handlers if event not in _KNOWN]


def tool_result(name: str, ok: bool, answer: bytes) -> ToolOutcome:
    """Parse the answer of `handle-tool`: a `tool_result` or only its output. An error becomes a tool error."""
    if not ok:
        problem = failure(name, answer)
        text = [{"type": "text", "text": problem.message}]
        return ToolOutcome(text, {}, True, [], problem.details.get("hostcall"), problem.as_lafs())
    value = read_json(name, answer)
    if isinstance(value, dict) and "output" in value and isinstance(value.get("is_error"), bool):
        outcome = tool_outcome(value["output"], [])
        return msgspec.structs.replace(outcome, is_error=True) if value["is_error"] else outcome
    return tool_outcome(value, [])


def command_result(name: str, ok: bool, answer: bytes) -> Any:
    """Parse the answer of `handle-slash`: a `slash_result` or only its output."""
    if not ok:
        raise failure(name, answer)
    value = read_json(name, answer)
    if not isinstance(value, dict) or "output" not in value or not isinstance(value.get("is_error"), bool):
        return value
    if value["is_error"]:
        raise failure(name, canonical.encode(value["output"]))
    return value["output"]


def event_result(name: str, event: str, ok: bool, answer: bytes) -> HookOutcome:
    """Parse the answer of `handle-event`; an empty text is no answer."""
    if not ok:
        raise failure(name, answer)
    if not answer.strip():
        return HookOutcome(None, None, False)
    value = read_json(name, answer)
    changed = value.get(_CHANGED.get(event, "")) if isinstance(value, dict) else None
    return HookOutcome(value, changed, value is not None)


def failure(name: str, answer: bytes) -> Problem:
    """Turn a component's error into a Problem; a host call error that it passes on keeps its code."""
    try:
        value = canonical.decode(answer, limit=MAX_ANSWER)
    except Problem:
        value = None
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        value = value["error"]
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        message, code = value["message"], value.get("code")
        if isinstance(code, str) and code in HOSTCALL_PROBLEMS:
            return Problem(HOSTCALL_PROBLEMS[code], message[:4096], extension=name, hostcall=code)
    else:
        message = value if isinstance(value, str) else answer.decode("utf-8", "replace")
    return Problem(
        "extension_failed", message[:4096] or "The component gave an error without a message.", extension=name
    )


def read_json(name: str, answer: bytes) -> Any:
    try:
        return canonical.decode(answer, limit=MAX_ANSWER)
    except Problem as problem:
        raise Problem(
            "extension_failed",
            f"{name} answered with something that is not JSON: {problem.message}",
            extension=name,
            reason=problem.key,
        ) from problem

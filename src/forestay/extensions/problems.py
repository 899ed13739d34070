"""Turns an extension's failure, a trap or a thrown error, into a Problem with its place in the source."""

from __future__ import annotations

from typing import Any

from forestay.extensions.effects import TOO_LARGE
from forestay.extensions.engine.limits import EngineTrap
from forestay.extensions.isolate import Program
from forestay.extensions.locations import location
from forestay.kernel import Problem

_TRAPS = {"timeout": "extension_timeout", "memory": "extension_memory"}
# The Problem of a refused or failed host call that JavaScript did not catch.
HOSTCALL_PROBLEMS = {
    "timeout": "timeout",
    "denied": "capability_denied",
    "io": "io_failed",
    "invalid_request": "invalid_request",
}


def trap_problem(trap: EngineTrap, extension: str) -> Problem:
    key = _TRAPS.get(trap.kind, "extension_trapped")
    problem = Problem(key, f"The sandbox stopped {extension}: {trap}.", extension=extension, trap=trap.kind)
    problem.details["hostcall"] = problem.as_pi()["code"]
    return problem


def thrown_problem(error: dict[str, Any], extension: str, program: Program) -> Problem:
    """Return a described JavaScript error as a Problem."""
    name, message = str(error.get("name") or "Error"), str(error.get("message") or "")
    where, stack = location(error, program.name, program.source_map)
    details: dict[str, Any] = {"extension": extension, "error": name}
    if where is not None:
        details.update(at=where, stack=stack)
    hostcall = error.get("hostcall")
    if name == "InternalError" and "out of memory" in message:
        return Problem("extension_memory", f"{extension} used more memory than it may.", **details)
    if error.get("code") == TOO_LARGE:
        fix = "Make the extension return less: a part, a summary, or the name of a file."
        return Problem("payload_too_large", f"{extension}: {message}", **details, fix=fix)
    if error.get("code") == "REGISTRATION_INVALID":
        return Problem("registration_invalid", message, **details)
    if isinstance(hostcall, dict):
        code = str(hostcall.get("code"))
        more = _plain(hostcall.get("details"), details)
        return Problem(HOSTCALL_PROBLEMS.get(code, "extension_failed"), message, **details, hostcall=code, **more)
    return Problem("extension_failed", f"{name}: {message}" if message else name, **details)


def _plain(more: Any, taken: dict[str, Any]) -> dict[str, Any]:
    """Return the host call's own details, except names that the error's details use."""
    if not isinstance(more, dict):
        return {}
    reserved = {*taken, "hostcall", "key", "message", "retry_after_ms", "self"}
    return {str(key): value for key, value in more.items() if key not in reserved}

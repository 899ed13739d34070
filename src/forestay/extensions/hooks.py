"""Events across extensions: in order, one handler after the other, each within its time.

H1  extensions are asked in the order in which they were loaded, and handlers in the order of their registration.
H2  a handler that throws, hangs or traps is recorded, and the others are asked all the same.
H3  `tool_call` fails closed: if a handler cannot answer, the tool does not run (P10).
H4  an extension has one time limit for all its handlers of an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from forestay.extensions.hook_merge import Event, merge_for
from forestay.extensions.outcomes import HookOutcome
from forestay.extensions.registry import Registrations
from forestay.kernel import Problem

# What older extensions were told, when a session starts for one of these reasons.
_OLDER_NAMES = {"new": ("session_switch",), "resume": ("session_switch",), "fork": ("session_fork", "session_branch")}
# Handlers of these are given a signal in the event itself.
_SIGNALLED = ("session_before_compact", "session_before_tree")


class Listener(Protocol):
    """An extension, as far as events are concerned."""

    name: str
    registrations: Registrations

    @property
    def waited(self) -> float:
        """Seconds that it waited for persons so far: they are not its own time (H4)."""

    async def hook(
        self, event: dict[str, Any], index: int, *, timeout: float | None = None, signal: bool = False
    ) -> HookOutcome: ...


Report = Callable[[str, str, Problem], None]


class Hooks:
    """Dispatches events to `listeners`; `report(extension, event, problem)` hears of each handler that failed."""

    def __init__(
        self, listeners: Sequence[Listener] = (), *, timeout: float = 10.0, report: Report | None = None
    ) -> None:
        self._listeners = list(listeners)
        self._timeout = timeout
        self._report = report or (lambda _extension, _event, _problem: None)

    def set(self, listeners: Iterable[Listener]) -> None:
        self._listeners = list(listeners)

    def listening(self, event: str) -> bool:
        """Whether anybody handles this event: the caller can spare itself building it."""
        return any(listener.registrations.handlers.get(event) for listener in self._listeners)

    async def emit(self, event: Event) -> Any:
        """Let everybody answer; the merged answer, in the shape that pi gives for this event."""
        result = await self._emit(event)
        if event.get("type") == "session_start":
            for name in _OLDER_NAMES.get(str(event.get("reason")), ()):
                if self.listening(name):
                    await self._emit({**event, "type": name})
        return result

    async def _emit(self, event: Event) -> Any:
        name = str(event.get("type"))
        merge = merge_for(event)
        signal = name in _SIGNALLED
        now = asyncio.get_running_loop().time
        for listener in list(self._listeners):
            until, waited = now() + self._timeout, listener.waited
            for index in range(listener.registrations.handlers.get(name, 0)):
                try:
                    left = max(0.001, until - now() + listener.waited - waited)
                    outcome = await listener.hook(merge.event(), index, timeout=left, signal=signal)
                    if merge.take(listener.name, outcome):
                        return merge.result()
                except (Problem, ValueError) as error:
                    problem = error if isinstance(error, Problem) else _refused(listener.name, name, error)
                    self._report(listener.name, name, problem)
                    if merge.fails_closed:
                        return _blocked(event, listener.name, problem)
        return merge.result()


def _blocked(event: Event, extension: str, problem: Problem) -> dict[str, Any]:
    return {
        "block": True,
        "reason": f"Extension failed, blocking execution: {_said(problem)}",
        "input": event.get("input"),
        "failed": extension,
    }


def _said(problem: Problem) -> str:
    """The error's own words, without its class in front."""
    return problem.message.removeprefix(f"{problem.details.get('error')}: ")


def _refused(extension: str, event: str, error: ValueError) -> Problem:
    return Problem("extension_failed", str(error), extension=extension, event=event)

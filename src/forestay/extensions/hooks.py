"""Events across extensions: in order, one handler after the other, each within its time.

H1  extensions are asked in the order in which they were loaded, and handlers in the order of their registration.
H2  a handler that throws, hangs or traps is recorded, and the others are asked all the same.
H3  `tool_call` fails closed: if a handler cannot answer, the tool does not run (P10).
H4  an extension has one time limit for all its handlers of an event.
H5  handlers whose answers change nothing are asked in rounds, which differ in speed only (`rounds.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from forestay.extensions.hook_merge import Event, Merge, merge_for
from forestay.extensions.outcomes import HookOutcome
from forestay.extensions.registry import Registrations
from forestay.extensions.rounds import MOST, Place, Rounds
from forestay.kernel import Problem

_encode = msgspec.json.Encoder().encode
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

    def place(self, body: bytes, timeout: float) -> Place | None:
        """A place in a round (`rounds.py`) in which its only handler of an event is asked; None when it takes none."""

    async def placed(self, place: Place) -> HookOutcome:
        """What the handler did there."""


class _Ended(msgspec.Struct, frozen=True):
    """An event that ends before everybody was asked."""

    result: Any


Report = Callable[[str, str, Problem], None]


class Hooks:
    """Dispatches events to `listeners`; `report(extension, event, problem)` hears of each handler that failed."""

    def __init__(
        self, listeners: Sequence[Listener] = (), *, timeout: float = 10.0, report: Report | None = None
    ) -> None:
        self.listeners = list(listeners)
        self._timeout = timeout
        self._report = report or (lambda _extension, _event, _problem: None)

    def set(self, listeners: Iterable[Listener]) -> None:
        self.listeners = list(listeners)

    def listening(self, event: str) -> bool:
        """Whether anybody handles this event: the caller can spare itself building it."""
        return any(listener.registrations.handlers.get(event) for listener in self.listeners)

    async def emit(self, event: Event) -> Any:
        """Let everybody answer; the merged answer, in the shape that pi gives for this event."""
        result = await self._emit(event)
        if event.get("type") == "session_start":
            for name in _OLDER_NAMES.get(str(event.get("reason")), ()):
                if self.listening(name):
                    await self._emit({**event, "type": name})
        return result

    async def _emit(self, event: Event) -> Any:
        merge, waiting = merge_for(event), deque(self.listeners)
        if not waiting:
            return merge.result()
        rounds = Rounds()
        try:
            while waiting:
                if merge.only_tells and await self._together(rounds, merge, waiting):
                    continue
                if (ended := await self._alone(waiting.popleft(), merge)) is not None:
                    return ended.result
        finally:
            rounds.close()
        return merge.result()

    async def _alone(self, listener: Listener, merge: Merge) -> _Ended | None:
        """Ask one extension; how the event ends, when it ends here."""
        name, now = str(merge.event().get("type")), asyncio.get_running_loop().time
        until, waited = now() + self._timeout, listener.waited
        for index in range(listener.registrations.handlers.get(name, 0)):
            try:
                left = max(0.001, until - now() + listener.waited - waited)
                outcome = await listener.hook(merge.event(), index, timeout=left, signal=name in _SIGNALLED)
                if merge.take(listener.name, outcome):
                    return _Ended(merge.result())
            except (Problem, ValueError) as error:
                problem = self._failed(listener, name, error)
                if merge.fails_closed:
                    return _Ended(_blocked(merge.event(), listener.name, problem))
        return None

    async def _together(self, rounds: Rounds, merge: Merge, waiting: deque[Listener]) -> bool:
        """Ask the first of those who wait in a round; False when the next one has to be asked by itself."""
        name = str(merge.event().get("type"))
        taken = self._places(merge.event(), name, waiting)
        if len(taken) < 2:
            for _, place in taken:
                place.leave()
            return False
        entered = await rounds.enter([place for _, place in taken])
        for listener, place in taken[:entered]:
            while waiting.popleft() is not listener:
                pass  # it has no handler
            try:
                merge.take(listener.name, await listener.placed(place))
            except (Problem, ValueError) as error:
                self._failed(listener, name, error)
        return entered > 0

    def _places(self, event: Event, name: str, waiting: deque[Listener]) -> list[tuple[Listener, Place]]:
        """Places of the first listeners that take one."""
        taken: list[tuple[Listener, Place]] = []
        body = b""
        for listener in waiting:
            handlers = listener.registrations.handlers.get(name, 0)
            if handlers == 0:
                continue
            body = body or _encode({"event": event, "index": 0, "signal": name in _SIGNALLED})
            place = listener.place(body, self._timeout) if handlers == 1 else None
            if place is None:
                break
            taken.append((listener, place))
            if len(taken) == MOST:
                break
        return taken

    def _failed(self, listener: Listener, event: str, error: Problem | ValueError) -> Problem:
        problem = error if isinstance(error, Problem) else _refused(listener.name, event, error)
        self._report(listener.name, event, problem)
        return problem


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

"""Events across extensions: in order, one handler after the other, each within its time.

H1  extensions are asked in the order in which they were loaded, and handlers in the order of their registration.
H2  a handler that throws, hangs or traps is recorded, and the others are asked all the same.
H3  `tool_call` fails closed: if a handler cannot answer, the tool does not run (P10).
H4  an extension has one time limit for all its handlers of an event.
H5  handlers whose answers change nothing are asked in rounds, which differ in speed only (`rounds.py`).
H6  a merge makes one answer of several handlers' (P10): it holds the event as the next handler sees it, takes what a
    handler did, and says whether that ends the event.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from forestay.extensions.outcomes import HookOutcome
from forestay.extensions.registry import Registrations
from forestay.extensions.rounds import MOST, Place, Rounds
from forestay.kernel import Problem

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
    """May change the input in place, and may block; a handler that fails blocks."""

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
        """Ask the first waiting listeners in one round; False when the next one must be asked alone."""
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

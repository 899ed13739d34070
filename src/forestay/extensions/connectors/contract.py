"""What a connector is given and what it gives back.

A connector works on a thread (`Connector.run`) or waits on the event loop (`Waiting.wait`); the dispatcher puts
each where it belongs, so that a synchronous and an asynchronous call take the same path through it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from forestay.extensions.connectors.paths import Roots
from forestay.kernel import Problem

Output = dict[str, Any]
_cancelling = threading.Lock()  # over who was cancelled, and what is done then: held for a moment, and seldom


class Cancelled:
    """Whether a call was cancelled. Few calls wait for that, so only those get an event to wait on."""

    _set = False
    _waited: threading.Event | None = None

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait until it is, at most that long; returns whether it is."""
        with _cancelling:
            if self._waited is None:
                self._waited = threading.Event()
                if self._set:
                    self._waited.set()
        return self._waited.wait(seconds)

    def set(self) -> None:
        """With the lock held."""
        self._set = True
        if self._waited is not None:
            self._waited.set()


class CallPolicy(Protocol):
    """Policy, for what a connector finds while it performs one call."""

    def permit(self, capability: str, resource: str | None) -> None:
        """Return when policy allows that resource; else raise the Problem that says why not."""

    def granted(self, capability: str, resource: str) -> bool:
        """Whether a grant names exactly that resource."""

    def refused(self, capability: str, resource: str) -> bool:
        """Whether a rule denies exactly that."""

    def scopes(self, capability: str) -> Sequence[str]:
        """The patterns that are granted, when nothing of that capability is denied."""


class Parts(Protocol):
    """Where the parts of a streamed result go."""

    def emit(self, output: Output) -> None: ...
    async def room(self) -> None: ...


class Call:
    """One host call as its connector sees it: the extension, its folders, the deadline, and how to ask policy again."""

    wrote = 0
    """Bytes that the connector put on the disk."""
    _cancel: tuple[Callable[[], None], ...] = ()

    def __init__(
        self,
        extension: str,
        call_id: str,
        roots: Roots,
        policy: CallPolicy,
        *,
        parts: Parts | None = None,
        deadline: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        self.extension = extension
        self.call_id = call_id
        self.roots = roots
        self.policy = policy
        self.deadline = deadline
        self._monotonic = monotonic
        self.context = context or {}
        self.place: str | None = None
        """The name of a change of the session; the same when the work begins again after a crash."""
        self.facts: dict[str, Any] = {}
        """What the connector adds to the evidence of the call's end; never a parameter."""
        self._parts = parts
        self.cancelled = Cancelled()

    @property
    def streaming(self) -> bool:
        return self._parts is not None

    def emit(self, output: Output) -> None:
        """Hand over a part of a streamed result; waits while the reader has no room for it."""
        self.check()
        if self._parts is not None:
            self._parts.emit(output)

    async def room(self) -> None:
        """For a connector on the event loop, which may not wait in `emit`: until the reader has room for a part."""
        if self._parts is not None:
            await self._parts.room()

    def check(self) -> None:
        if self.cancelled.is_set():
            raise Problem("cancelled", "The call was cancelled.")
        if self.deadline is not None and self._monotonic() >= self.deadline:
            raise Problem("timeout", "The call took longer than it may.")

    def remaining(self, most: float) -> float:
        """Seconds until the deadline, at most `most`."""
        if self.deadline is None:
            return most
        return max(0.0, min(most, self.deadline - self._monotonic()))

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Run `action` when the call is cancelled, at once when it is already."""
        with _cancelling:
            if not self.cancelled.is_set():
                self._cancel = (*self._cancel, action)
                return
        action()

    def cancel(self) -> None:
        with _cancelling:
            if self.cancelled.is_set():
                return
            self.cancelled.set()
            actions, self._cancel = self._cancel, ()
        for action in actions:
            action()


@runtime_checkable
class Connector(Protocol):
    """Does its work on the calling thread."""

    method: str

    def run(self, call: Call, params: Mapping[str, Any]) -> Output: ...


@runtime_checkable
class Waiting(Protocol):
    """Waits for somebody: a person, a model, the session. Runs on the host's event loop."""

    method: str

    async def wait(self, call: Call, params: Mapping[str, Any]) -> Output: ...


def text(params: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """A string parameter, or a Problem that names it."""
    value = params.get(key, default)
    if not isinstance(value, str):
        raise Problem("schema_mismatch", f"`{key}` must be a string.", at=f"$.params.{key}")
    if "\0" in value:
        raise Problem("invalid_text", f"`{key}` holds the character U+0000.", at=f"$.params.{key}")
    return value


def number(params: Mapping[str, Any], key: str, default: int, *, least: int = 0, most: int = 2**53) -> int:
    """A whole number parameter within bounds."""
    value = params.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise Problem("schema_mismatch", f"`{key}` must be a number.", at=f"$.params.{key}")
    if not least <= value <= most:
        raise Problem("out_of_range", f"`{key}` must lie between {least} and {most}.", at=f"$.params.{key}")
    return int(value)


def io_problem(error: OSError, path: str | None = None) -> Problem:
    """What an operating-system error is to an extension: the errno's name, never the host's own path."""
    import errno

    name = errno.errorcode.get(error.errno or 0, "EIO")
    return Problem(
        "io_failed", f"{name}: {(error.strerror or 'input or output failed').lower()}", errno=name, path=path
    )

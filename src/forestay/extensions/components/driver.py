"""Runs one instance on a thread: one call after the other, each with a deadline. Host calls go to the dispatcher.

E1  Calls run in the order in which they arrive, one at a time: a component cannot be entered twice.
E2  Every call ends: with its answer, a trap, or a Problem at its deadline. Waiting for a person does not count.
E3  After a trap, or a call that did not end in time, the instance is not entered again (P13).
E4  A call begins on the event loop's own thread when earlier calls like it were short. It moves to the instance's
    thread when an epoch tick finds it there after `AT_ONCE`, or when it makes a host call that is not quick
    (`HostCalls.is_quick`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from forestay.extensions.components import fibers
from forestay.extensions.components.host_calls import Asked, answer_of, read_request, refused
from forestay.extensions.components.instance import Instance
from forestay.extensions.components.pace import Pace
from forestay.extensions.components.traced import Traced
from forestay.extensions.components.values import Answer, Argument
from forestay.extensions.engine.owner import Owner
from forestay.extensions.protocol import HostCalls
from forestay.kernel import Problem, outside_work

MAX_WORDS = 1_000  # characters of standard error that the Problem of a trap quotes
_NAMED = ("handle-tool", "handle-slash")  # exports whose first argument is the name of a tool or command
AT_ONCE = 1e-3  # seconds that a call with host calls may stay on the event loop's thread
GRACE = 1.0  # seconds that a component has to answer after its deadline, when its host call is cancelled
_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode


class ComponentDriver:
    """Owns the thread and the deadlines of one instance; `begin` makes the instance on that thread."""

    def __init__(self, name: str, dispatcher: HostCalls, generation: int) -> None:
        self.instance: Instance | None = None
        self.traced: Traced | None = None
        self.last_words = ""
        """The last text that it wrote to standard error."""
        self.waited = 0.0
        self._paces: dict[tuple[str, Argument | None], Pace] = {}
        self._name = name
        self._dispatcher = dispatcher
        self._generation = generation
        self._loop = asyncio.get_running_loop()
        self._owner = Owner(self._loop)
        self._held: float | None = None
        self._calls = 0
        self._call_id: str | None = None  # of the current host call
        self._peeked: Asked | None = None  # a host call that `_look` has parsed and `sync` performs
        self._left: Callable[[], float] = lambda: 0.0  # seconds that the current work has left
        self._until = 0.0  # when a call must leave the event loop's thread
        self._ending: asyncio.Task[None] | None = None
        self.gone = False  # abandoned, even if its thread still runs

    async def begin(self, make: Callable[[], Instance], timeout: float) -> None:
        self.instance = await self.do(make, timeout)

    async def call(self, export: str, arguments: tuple[Argument, ...], timeout: float) -> Answer:
        """Call an export: on the event loop's thread when such calls are short (E4), else on the instance's thread."""
        if self.gone or self._owner.hurried():
            await self._turn()
        pace = self._pace_of(export, arguments)
        if not (pace.is_short and fibers.SUPPORTED and self.traced is None and self._owner.idle):
            return await self._do(lambda: self._perform(pace, export, arguments), timeout)
        answer = self._attempt(export, arguments, timeout)
        if answer is None:
            pace.moved()
            return await self._do(self._go_on, timeout)
        pace.ended()
        self._owner.attended()
        if self.instance is not None and self.instance.wrote:
            await self._do(self._flush, timeout)
        return answer

    def _attempt(self, export: str, arguments: tuple[Argument, ...], timeout: float) -> Answer | None:
        """Begin a call on the event loop's thread; return None when it must continue on the instance's thread (E4)."""
        instance = self.instance
        if instance is None:
            raise self._late()
        self._until = time.perf_counter() + min(timeout, AT_ONCE)
        return instance.attempt(export, arguments, self._look, self._until)

    def _look(self, name: bytes, given: bytes) -> Answer | None:
        """Perform a quick host call on this thread; return None when the instance's thread must perform it (E4)."""
        if b"\n" in name:  # no method has such a name: a newline separates name and input in `sync`
            return None
        try:
            asked = self._read(name, given)
            if self._dispatcher.is_quick(asked.call, self._name) and time.perf_counter() < self._until:
                return answer_of(self._dispatcher.call_sync(asked.call, self._name), asked.guest_id)
        except Problem as problem:
            return refused(problem)
        except Exception as error:  # noqa: BLE001 - nothing may be raised into the VM
            return refused(Problem.unexpected(error))
        self._peeked = asked
        return None

    async def do(self, work: Callable[[], _T], timeout: float) -> _T:
        """Do `work` on the instance's thread; raise EngineTrap when the instance is lost, a Problem at the deadline."""
        if self.gone or self._owner.hurried():
            await self._turn()
        return await self._do(work, timeout)

    async def _turn(self) -> None:
        """Let the other tasks of the event loop run first."""
        if self.gone:
            raise Problem("state_conflict", f"{self._name} is closed.", extension=self._name)
        await asyncio.sleep(0)

    async def _do(self, work: Callable[[], _T], timeout: float) -> _T:
        future: asyncio.Future[Any] = self._loop.create_future()
        began, before = self._loop.time(), self.waited

        def left() -> float:
            return timeout - (self._loop.time() - began) + self._waited() - before

        def timed() -> _T:
            self._left = left
            return work()

        if not self._owner.exchange(timed, lambda result: _settle(future, result)):
            try:
                with outside_work(self._loop):
                    await self._ended(future, left)
            except asyncio.CancelledError:
                if self._left is left:
                    self._cancel()
                raise
        result: _T = future.result()
        return result

    async def _ended(self, future: asyncio.Future[Any], left: Callable[[], float]) -> None:
        """Wait for the work; at the deadline cancel its host call, and `GRACE` later abandon the instance."""
        while not future.done():
            remaining = left()
            if remaining <= -GRACE:
                self.abandon()
                raise self._late()
            if remaining <= 0 and self._left is left:
                self._cancel()
            await asyncio.wait({future}, timeout=remaining if remaining > 0 else GRACE / 4)

    def _cancel(self) -> None:
        if self._call_id is not None:
            self._dispatcher.cancel(self._call_id)

    def _late(self) -> Problem:
        return Problem(
            "extension_timeout", f"{self._name} did not answer in time.", extension=self._name, hostcall="timeout"
        )

    # Persons

    def hold(self, held: bool) -> None:
        """Stop the clock while a person is asked (True), and start it again after the answer (False) (E2)."""
        now = self._loop.time()
        if held:
            self._held = self._held or now
        elif self._held is not None:
            self.waited += now - self._held
            self._held = None

    def _waited(self) -> float:
        held = self._held
        return self.waited + (self._loop.time() - held if held is not None else 0.0)

    # Calls, on the instance's thread

    def _perform(self, pace: Pace, export: str, arguments: tuple[Argument, ...]) -> Answer:
        """Perform one call, recorded when there is a recorder; then log its output."""
        used = time.thread_time()
        try:
            if self.traced is None:
                return self._enter(export, *arguments)
            return self.traced.call(self._enter, export, arguments)
        finally:
            self._flush()
            pace.took(time.thread_time() - used)

    def _enter(self, export: str, *arguments: Argument) -> Answer:
        instance, left = self._live()
        return instance.call(export, *arguments, seconds=left)

    def _go_on(self) -> Answer:
        """Finish a call that began on the event loop's thread."""
        instance, left = self._live()
        try:
            return instance.finish(left)
        finally:
            self._flush()

    def _live(self) -> tuple[Instance, float]:
        """Return the instance and the seconds that the current work has left."""
        left = self._left()
        if left <= 0 or self.instance is None:
            raise self._late()
        return self.instance, left

    def _flush(self) -> None:
        """Move its standard output and error to the extension's log."""
        instance = self.instance
        for error, data in instance.output.items() if instance is not None else ():
            if data:
                text = data.decode("utf-8", "replace")
                data.clear()
                self.log(error, text)
                if error:
                    self.last_words = text[-MAX_WORDS:]

    def _pace_of(self, export: str, arguments: tuple[Argument, ...]) -> Pace:
        """Return the pace of an export, or of one registered tool or command."""
        key = (export, arguments[0] if export in _NAMED else None)
        found = self._paces.get(key)
        if found is None:
            found = self._paces[key] = Pace()
        return found

    # Host calls, on the instance's thread

    def sync(self, request: bytes) -> bytes:
        """Perform a host call. It never raises: the component gets the error, and stops when its time is over."""
        if self.gone or self._left() <= 0:
            if self.instance is not None:
                self.instance.expire()
            return _signed(refused(Problem("timeout", "The call that makes this host call has run out of time.")))
        try:
            asked, self._peeked = self._peeked or self._read(*request.split(b"\n", 1)), None
            self._call_id = asked.call.call_id
            return _signed(answer_of(self._dispatcher.call_sync(asked.call, self._name), asked.guest_id))
        except Problem as problem:
            return _signed(refused(problem))
        except Exception as error:  # noqa: BLE001 - nothing may be raised into the VM
            return _signed(refused(Problem.unexpected(error)))
        finally:
            self._call_id = None

    def _read(self, name: bytes, given: bytes) -> Asked:
        self._calls += 1
        return read_request(name, given, f"{self._name}/{self._generation}.{self._calls}")

    def log(self, error: bool, text: str) -> None:
        """Write standard output or error to the extension's log, as one entry."""
        level = "warn" if error else "info"
        event = "stderr" if error else "stdout"
        self.sync(b"log\n" + _encode({"level": level, "event": event, "message": text}))

    # The end

    def abandon(self) -> None:
        """Give up the instance even if it still runs; its memory is freed when its thread returns (E3)."""
        self.gone = True
        if self._ending is None:
            self._cancel()
            self._owner.submit(self._close, lambda _: None)
            self._ending = self._loop.create_task(self._owner.join())

    async def close(self) -> None:
        """Abandon the instance and wait until its thread has ended."""
        self.abandon()
        if self._ending is not None:
            await self._ending

    def _close(self) -> None:
        if self.instance is not None:
            self.instance.close()


def _signed(answer: Answer) -> bytes:
    """Mark an answer with `+` (ok) or `-` (error), as traces do."""
    ok, said = answer
    return (b"+" if ok else b"-") + said


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)

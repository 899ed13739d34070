"""Runs one instance: on a thread, one call after the other, each within its time; its host calls through the door.

E1  Calls are done in the order in which they were asked, one at a time: a component cannot be entered twice.
E2  A call ends: with its answer, a trap, or a Problem when its time is over. How long a person takes is not its time.
E3  After a trap, or a call that could not be ended in time, the instance is not entered again (P13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from forestay.extensions.components.host_calls import read_request, refused, write_answer
from forestay.extensions.components.instance import Instance
from forestay.extensions.components.values import Answer, Argument
from forestay.extensions.engine.owner import Owner
from forestay.extensions.protocol import HostCalls
from forestay.kernel import Problem, outside_work

GRACE = 1.0  # seconds for a component to answer, once its time is over and its host call is cancelled
_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode


class ComponentDriver:
    """The thread and the time of one instance; `begin` makes the instance on that thread."""

    def __init__(self, name: str, dispatcher: HostCalls, generation: int) -> None:
        self.instance: Instance | None = None
        self.waited = 0.0
        self._name = name
        self._dispatcher = dispatcher
        self._generation = generation
        self._loop = asyncio.get_running_loop()
        self._owner = Owner(self._loop)
        self._held: float | None = None
        self._calls = 0
        self._call_id: str | None = None  # of the host call under way
        self._left: Callable[[], float] = lambda: 0.0  # seconds that the work under way has left
        self._ending: asyncio.Task[None] | None = None
        self.gone = False  # let go, whatever it does

    async def begin(self, make: Callable[[], Instance], timeout: float) -> None:
        self.instance = await self.do(make, timeout)

    def enter(self, export: str, *arguments: Argument) -> Answer:
        """Call an export, on the instance's thread, for as long as the work under way may take."""
        left = self._left()
        if left <= 0 or self.instance is None:
            raise self._late()
        return self.instance.call(export, *arguments, seconds=left)

    async def do(self, work: Callable[[], _T], timeout: float) -> _T:
        """Do `work` on the instance's thread; EngineTrap when the instance is lost, a Problem when time is over."""
        if self.gone:
            raise Problem("state_conflict", f"{self._name} is closed.", extension=self._name)
        if self._owner.hurried():
            await asyncio.sleep(0)
        future: asyncio.Future[Any] = self._loop.create_future()
        began, before = self._loop.time(), self.waited

        def left() -> float:
            return timeout - (self._loop.time() - began) + self._waited() - before

        def timed() -> _T:
            self._left = left
            return work()

        self._owner.exchange(timed, lambda result: _settle(future, result))
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
        """Until the work is done; when its time is over, its host call is cancelled, and soon after it is let go."""
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
        """A person is asked (True), or has answered (False): that is not the extension's time (E2)."""
        now = self._loop.time()
        if held:
            self._held = self._held or now
        elif self._held is not None:
            self.waited += now - self._held
            self._held = None

    def _waited(self) -> float:
        held = self._held
        return self.waited + (self._loop.time() - held if held is not None else 0.0)

    # Host calls, on the instance's thread

    def sync(self, request: bytes) -> bytes:
        """Perform a host call. It never raises: the component gets the error, and is stopped when its time is over."""
        if self.gone or self._left() <= 0:
            if self.instance is not None:
                self.instance.expire()
            return refused(Problem("timeout", "The time of the call that asks for this is over."))
        self._calls += 1
        call_id = f"{self._name}/{self._generation}.{self._calls}"
        try:
            asked = read_request(request, call_id)
            self._call_id = call_id
            return write_answer(self._dispatcher.call_sync(asked.call, self._name), asked.guest_id)
        except Problem as problem:
            return refused(problem)
        except Exception as error:  # noqa: BLE001 - nothing may be raised into the VM
            return refused(Problem.unexpected(error))
        finally:
            self._call_id = None

    def log(self, error: bool, text: str) -> None:
        """What was written to standard output or error, as one line of the extension's log."""
        level = "warn" if error else "info"
        event = "stderr" if error else "stdout"
        self.sync(b"log\n" + _encode({"level": level, "event": event, "message": text}))

    # The end

    def abandon(self) -> None:
        """Let the instance go, whatever it does; its memory is given back when it lets go of its thread (E3)."""
        self.gone = True
        if self._ending is None:
            self._cancel()
            self._owner.submit(self._close, lambda _: None)
            self._ending = self._loop.create_task(self._owner.join())

    async def close(self) -> None:
        """Let it go, and wait until its thread is free."""
        self.abandon()
        if self._ending is not None:
            await self._ending

    def _close(self) -> None:
        if self.instance is not None:
            self.instance.close()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)

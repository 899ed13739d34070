"""Asks many VMs about one event, one after the other, on one thread.

Giving a thread to each VM, and waiting for it, costs more than a handler that only looks at the event. So VMs that are
at rest take places in a round: one thread enters them in turn, and the event loop hears of all of them together.

N1  VMs are entered one at a time, in the order of their places.
N2  A VM is entered when the one before it has answered and has done nothing else: the event loop has nothing to do for
    it that could come before the next one.
N3  A place that was not entered leaves nothing behind; its VM is asked later.
N4  A VM that holds the thread holds back no other: who wants one of the others breaks the round off.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from forestay.extensions import effects as said

if TYPE_CHECKING:  # the engine is loaded with the first VM
    from forestay.extensions.engine.owner import Owner
    from forestay.extensions.isolate import Arrival, Batch, Isolate

MOST = 8  # places of one round: with ordinary handlers it ends while the event loop still watches
SLICE = 150e-6  # seconds after which no further VM is entered


class Waiter(msgspec.Struct, eq=False):
    """A caller that waits for the extension's answer."""

    future: asyncio.Future[said.Reply]
    expires: float | None
    progress: Callable[[Any], None] | None


class Resident(Protocol):
    """What has a VM in a round (`VmDriver`)."""

    def enter(self, place: Place) -> bool: ...
    def leave(self, place: Place) -> None: ...
    def slow(self) -> None: ...
    def give_up(self, number: int) -> None: ...
    async def reply(self, number: int, waiter: Waiter) -> said.Reply: ...


class Place:
    """One VM in a round: what it is asked, and what came of it."""

    __slots__ = (
        "_arrival",
        "_left",
        "_resident",
        "batch",
        "generation",
        "isolate",
        "number",
        "timeout",
        "waiter",
        "wanted",
    )

    def __init__(
        self, resident: Resident, isolate: Isolate, generation: int, arrival: Arrival, waiter: Waiter, timeout: float
    ) -> None:
        self._resident = resident
        self._arrival = arrival
        self._left = False
        self.isolate = isolate
        self.generation = generation
        self.number = arrival[1]
        self.waiter = waiter
        self.timeout = timeout
        self.batch: Batch | BaseException | None = None
        """None as long as it has not been entered, or has not come back."""
        self.wanted: Callable[[], None] = self.leave
        """On the event loop: somebody else needs the VM (N4)."""

    def run(self) -> bool:
        """On the round's thread: ask the VM; whether the next one may be asked at once (N2)."""
        if not self._resident.enter(self):
            return False
        try:
            batch = self.batch = self.isolate.run([self._arrival])
        except BaseException as error:  # noqa: BLE001 - the event loop gets it, as from a thread of its own
            self.batch = error
            return False
        if len(batch.effects) != 1 or batch.more or batch.deadline_ms is not None or batch.trap is not None:
            return False
        effect = batch.effects[0]
        return type(effect) is said.Reply and bool(effect.ok) and effect.number == self.number

    def leave(self) -> None:
        """On the event loop: the VM is its driver's again. Leaving twice is leaving once."""
        if not self._left:
            self._left = True
            self._resident.leave(self)

    def slow(self) -> None:
        self._resident.slow()

    def give_up(self) -> None:
        self._resident.give_up(self.number)

    async def reply(self) -> said.Reply:
        """What the VM answered; one that was entered may still be at it."""
        return await self._resident.reply(self.number, self.waiter)


class Rounds:
    """The rounds of one event."""

    def __init__(self) -> None:
        self._owner: Owner | None = None

    async def enter(self, places: Sequence[Place]) -> int:
        """Ask the VMs of these places; how many were entered. The last of them may have something left to do."""
        from forestay.extensions.engine.owner import Owner

        course, loop = _Course(places), asyncio.get_running_loop()
        owner = self._owner = self._owner or Owner(loop)
        if owner.hurried():
            await course.kept(asyncio.sleep(0))
        if not owner.exchange(course.run, course.end):
            if not owner.patient:
                course.slow()
            await course.kept(course.ended(loop.create_future()))
        return course.entered

    def close(self) -> None:
        if self._owner is not None:
            self._owner.leave()


class _Course:
    """One round: the thread goes from place to place, until the end or until the event loop breaks it off."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._lock = threading.Lock()  # over these two
        self._at = 0  # places that the thread has begun with
        self._broken = False
        self._end: asyncio.Future[None] | None = None
        for place in places:
            place.wanted = self.break_off

    @property
    def entered(self) -> int:
        return sum(place.batch is not None for place in self._places)

    def run(self) -> None:
        """The thread's side (N1)."""
        until = time.monotonic() + SLICE
        for number, place in enumerate(self._places):
            with self._lock:
                if self._broken:
                    return
                self._at = number + 1
            if not place.run() or time.monotonic() > until:
                return

    def end(self, result: Any) -> None:
        """On the event loop, when the thread has ended."""
        for place in self._places:
            place.leave()
        if self._end is not None and not self._end.done():
            self._end.set_result(None)
        if isinstance(result, BaseException):
            raise result

    async def ended(self, end: asyncio.Future[None]) -> None:
        self._end = end
        await end

    async def kept(self, waiting: Awaitable[None]) -> None:
        """Wait; who is cancelled meanwhile gives the round up."""
        try:
            await waiting
        except asyncio.CancelledError:
            self.break_off()
            if self._at:
                self._places[self._at - 1].give_up()
            raise

    def break_off(self) -> None:
        """Take what there is, and leave the places that were not entered (N4)."""
        with self._lock:
            self._broken, at = True, self._at
        for number, place in enumerate(self._places):
            if number != at - 1:  # that one is with the thread
                place.leave()

    def slow(self) -> None:
        """The event loop waited in vain for the VM that the thread is at."""
        if self._at:
            self._places[self._at - 1].slow()

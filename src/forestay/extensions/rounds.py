"""Delivers one event to many VMs, one after the other, on one thread.

Waking a thread for each VM costs more than a handler that only reads the event. So idle VMs take places in a round:
one thread enters them in turn, and the event loop gets all results together.

N1  VMs are entered one at a time, in the order of their places.
N2  The next VM is entered only if the previous one has answered and done nothing else, so that the event loop has no
    work for it first.
N3  A place that was not entered has no effect; its VM gets the event later.
N4  A VM that occupies the thread delays no other VM: a caller that needs one of the others breaks the round off.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from forestay.extensions import effects as said

if TYPE_CHECKING:  # loaded only with the first VM
    from forestay.extensions.engine.owner import Owner
    from forestay.extensions.isolate import Arrival, Batch, Isolate

MOST = 8  # places of one round: with normal handlers it ends while the event loop still polls for it
SLICE = 150e-6  # seconds after which no further VM is entered


class Waiter(msgspec.Struct, eq=False):
    """A caller that awaits the extension's answer."""

    future: asyncio.Future[said.Reply]
    expires: float | None
    progress: Callable[[Any], None] | None


class Resident(Protocol):
    """The owner of a VM in a round (`VmDriver`)."""

    def enter(self, place: Place) -> bool: ...
    def leave(self, place: Place) -> None: ...
    def slow(self) -> None: ...
    def give_up(self, number: int) -> None: ...
    async def reply(self, number: int, waiter: Waiter) -> said.Reply: ...


class Place:
    """One VM in a round: its input and its result."""

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
        """The result; None before the VM was entered and has returned."""
        self.wanted: Callable[[], None] = self.leave
        """Called on the event loop when another caller needs the VM (N4)."""

    def run(self) -> bool:
        """Enter the VM, on the round's thread; return whether the next VM may follow at once (N2)."""
        if not self._resident.enter(self):
            return False
        try:
            batch = self.batch = self.isolate.run([self._arrival])
        except BaseException as error:  # noqa: BLE001 - the event loop gets it, as from the VM's own thread
            self.batch = error
            return False
        if len(batch.effects) != 1 or batch.more or batch.deadline_ms is not None or batch.trap is not None:
            return False
        effect = batch.effects[0]
        return type(effect) is said.Reply and bool(effect.ok) and effect.number == self.number

    def leave(self) -> None:
        """Give the VM back to its driver, on the event loop. A second call does nothing."""
        if not self._left:
            self._left = True
            self._resident.leave(self)

    def slow(self) -> None:
        self._resident.slow()

    def give_up(self) -> None:
        self._resident.give_up(self.number)

    async def reply(self) -> said.Reply:
        """Return the VM's answer; a VM that was entered may still be working on it."""
        return await self._resident.reply(self.number, self.waiter)


class Rounds:
    """The rounds of one event."""

    def __init__(self) -> None:
        self._owner: Owner | None = None

    async def enter(self, places: Sequence[Place]) -> int:
        """Deliver to the VMs of these places; return how many were entered. The last one may have work left."""
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
    """One round: the thread goes from place to place until the end, or until the event loop breaks it off."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._lock = threading.Lock()  # guards the next two
        self._at = 0  # the number of places that the thread has begun
        self._broken = False
        self._end: asyncio.Future[None] | None = None
        for place in places:
            place.wanted = self.break_off

    @property
    def entered(self) -> int:
        return sum(place.batch is not None for place in self._places)

    def run(self) -> None:
        """Enter the places, on the round's thread (N1)."""
        until = time.monotonic() + SLICE
        for number, place in enumerate(self._places):
            with self._lock:
                if self._broken:
                    return
                self._at = number + 1
            if not place.run() or time.monotonic() > until:
                return

    def end(self, result: Any) -> None:
        """Finish the round, on the event loop, after the thread has ended."""
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
        """Wait; if the caller is cancelled, give the round up."""
        try:
            await waiting
        except asyncio.CancelledError:
            self.break_off()
            if self._at:
                self._places[self._at - 1].give_up()
            raise

    def break_off(self) -> None:
        """Keep the results so far, and leave the places that were not entered (N4)."""
        with self._lock:
            self._broken, at = True, self._at
        for number, place in enumerate(self._places):
            if number != at - 1:  # the thread is still in that one
                place.leave()

    def slow(self) -> None:
        """Mark the VM that the thread is in as slow: the event loop polled for it without success."""
        if self._at:
            self._places[self._at - 1].slow()

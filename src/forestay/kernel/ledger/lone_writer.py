"""A writing thread that a caller can do without.

Waking a thread and being woken by it takes longer than a commit on a fast disk. So a caller that has been alone for a
while, on a loop with nothing else to do meanwhile, writes by itself:

- A1  One writes at a time: the thread, or the loop that has the turn.
- A2  Whoever writes, what was asked for first is written first (L7).
- A3  A loop writes only what is small, while the disk is fast, never a checkpoint, and waits for no other process.
      After a few writes everybody else goes first who is ready.
- A4  Now and then the thread writes all the same: what the loop does meanwhile shows whether it is still idle.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence

from forestay.kernel.ledger.delivery import Deliveries, Ticket
from forestay.kernel.ledger.projections import Projection
from forestay.kernel.ledger.records import Record
from forestay.kernel.ledger.writer import Writer
from forestay.kernel.problems import Problem

_ALONE = 8  # groups of one, each on disk in time while the loop was idle, before a loop writes by itself
_AFTER_A_SLOW_ONE = 64  # of them, when the disk was slow under a loop
_FAST_SECONDS = 0.002
_BUSY = 0.5  # of the time in which the thread writes: a loop that works so much gains by going on
_IN_A_ROW = 8  # writes of a loop before everybody else who is ready goes first
_LOOK_AGAIN = 256  # writes of a loop before it leaves one to the thread (A4)
_SMALL_BYTES = 64 * 1024


class HeldError(Exception):
    """Another process writes just now."""


class LoneWriter(Writer):
    """Writes on its thread, or on the loop of a caller who is alone."""

    def __init__(
        self,
        projections: Sequence[Projection],
        announced: Callable[[list[Record]], Deliveries],
        group_tickets: int,
    ) -> None:
        super().__init__(projections, announced, group_tickets)
        self._turn = threading.Lock()  # of the database and of what is remembered of it (A1)
        self._patient = True  # whether it waits for other processes, who has the turn
        # What follows is changed by who has `_closing`.
        self._queued = 0  # tickets that the thread has yet to finish
        self._alone = 0  # groups of one in a row
        self._own = 0  # writes of a loop since the thread wrote
        self._waits = False  # whether a ticket waits for its loop to have let the others go first

    @property
    @abstractmethod
    def _is_tidy(self) -> bool:
        """Whether nothing is due that only the thread does."""

    def put(self, ticket: Ticket, *, later: bool = False) -> None:
        loop = ticket.loop
        with self._closing:
            self._check_open()
            if self._queued and not self._later and not later:  # the thread is at work: the usual way of many callers
                self._queued += 1
                self._queue.put(ticket)
                return
            self._later.append(ticket)
            if later:
                return
            if loop is None or self._alone < _ALONE or not self._is_for_a_loop(ticket):
                self._release_later()
                return
            if self._own % _IN_A_ROW == 0:
                self._waits = True
                loop.call_soon(self._others_went)
                return
            if not self._take_turn():
                return
        self._write_here(ticket, loop)

    def _is_for_a_loop(self, ticket: Ticket) -> bool:
        """A3 and A4. Who comes while another one waits is not alone, and neither is that one."""
        if self._waits:
            self._alone = 0
        return len(self._later) == 1 and self._own < _LOOK_AGAIN and ticket.size <= _SMALL_BYTES

    def _release_later(self) -> None:
        if not self._queued and self._later:
            self._later[-1].asked = (time.perf_counter(), time.thread_time())
        self._queued += len(self._later)
        self._waits = False
        super()._release_later()

    def _take_turn(self) -> bool:
        """Take the one ticket that is there and the turn with it; else leave it to the thread."""
        if self._queued or not self._is_tidy or not self._turn.acquire(blocking=False):
            self._release_later()
            return False
        self._later.clear()
        self._waits = False
        return True

    def _others_went(self) -> None:
        """On the loop of a caller who was alone: write, unless others came meanwhile."""
        with self._closing:
            if not self._waits:
                return
            ticket = self._later[0]
            if len(self._later) > 1:
                self._release_later()
                return
            if not self._take_turn():
                return
        assert ticket.loop is not None
        try:
            self._write_here(ticket, ticket.loop)
        except BaseException as error:
            ticket.error = Problem.unexpected(error)
            ticket.settle()
            raise

    def _write_here(self, ticket: Ticket, loop: asyncio.AbstractEventLoop) -> None:
        """Write on the loop that this runs on, which has the turn."""
        self._patient = False
        try:
            group = [ticket]
            records, seconds = self._timed(group)
            self._own += 1
            if seconds > _FAST_SECONDS:
                self._alone = _ALONE - _AFTER_A_SLOW_ONE
            self._tell(group, records, seconds, here=loop)
        except HeldError:
            with self._closing:
                self._alone = 0
                self._later.insert(0, ticket)
                self._release_later()
        finally:
            self._patient = True
            self._turn.release()

    def _write_group(self, group: list[Ticket]) -> None:
        with self._turn:
            records, seconds = self._timed(group)
            with self._closing:  # before the answers: the one who gets it may come again at once
                self._queued -= len(group)
                self._own = 0
                alone = not self._queued and group[0].asked is not None and seconds < _FAST_SECONDS and len(group) == 1
                if not alone:
                    self._alone = min(self._alone, 0)
            self._tell(group, records, seconds, heard=self._heard if alone else None)
            self._tidy()

    def _heard(self, ticket: Ticket) -> None:
        """On the loop that asked: see whether it was idle while the thread wrote (A4)."""
        assert ticket.asked is not None
        asked, own = ticket.asked
        idle = time.thread_time() - own < _BUSY * (time.perf_counter() - asked)
        with self._closing:
            self._alone = self._alone + 1 if idle else min(self._alone, 0)

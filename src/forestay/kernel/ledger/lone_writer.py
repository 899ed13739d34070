"""A writing thread that a caller can do without.

Waking a thread and being woken by it takes longer than a commit on a fast disk. So a caller that has been alone for a
while, on a loop with nothing else to do, writes by itself:

- A1  One writes at a time: the thread, or the loop that has the turn.
- A2  Whoever writes, what was asked for first is written first (L7).
- A3  A loop writes only what is small, while the disk is fast, never a checkpoint, and waits for no other process.
- A4  After a few writes everybody else goes first who is ready, those included whose bytes wait in a socket. Whoever
      appends meanwhile is written together with the one who waited. The thread writes for both, and from then on, until
      it has written for one caller at a time again and again; so it does when the loop was found to have other work.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence

from forestay.kernel.ledger.projections import Projection
from forestay.kernel.ledger.records import Record
from forestay.kernel.ledger.writer import Deliveries, Ticket, Writer
from forestay.kernel.problems import Problem

_ALONE = 16  # groups for one caller in a row, each on disk in time, before a loop writes by itself
_AFTER_A_SLOW_ONE = 64  # of them, when the disk was slow under a loop
_FAST_SECONDS = 0.002
_BUSY_SECONDS = 0.0001  # that others take who go first: a loop with so much work gains by going on
_IN_A_ROW = 8  # writes of a loop before everybody else who is ready goes first
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
        self._alone = 0  # groups for one caller in a row
        self._own = 0  # writes of a loop since others went first
        self._waits_since: float | None = None  # when a ticket began to wait for the others to go first

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
                self._queue.put([ticket])
                return
            self._later.append(ticket)
            if later:
                ticket.rides = True
                return
            if self._waits_since is not None:  # then neither of the two is alone
                self._alone = 0
            if self._alone < _ALONE or loop is None or not self._is_small():
                self._release_later()
                return
            if self._own >= _IN_A_ROW:
                self._waits_since = time.perf_counter()
                loop.call_soon(loop.call_soon, self._others_went)  # a loop looks at its sockets between the two
                return
            group = self._take_turn()
        if group:
            self._write_here(group, loop)

    def _is_small(self) -> bool:
        return sum(ticket.size for ticket in self._later if ticket is not None) <= _SMALL_BYTES

    def _release_later(self) -> None:
        self._queued += len(self._later)
        self._waits_since = None
        super()._release_later()

    def _take_turn(self) -> list[Ticket]:
        """Take the ticket that is there, with those that ride, and the turn with it; else leave it to the thread."""
        if self._queued or not self._is_tidy or not self._turn.acquire(blocking=False):
            self._release_later()
            return []
        group = [ticket for ticket in self._later if ticket is not None]
        self._later = []
        return group

    def _others_went(self) -> None:
        """On the loop of a caller who was alone: write, unless others came meanwhile or took their time."""
        with self._closing:
            since, self._waits_since = self._waits_since, None
            if since is None:
                return
            self._own = 0
            asking = [ticket.loop for ticket in self._later if ticket is not None and not ticket.rides]
            if len(asking) > 1 or time.perf_counter() - since > _BUSY_SECONDS or not self._is_small():
                self._alone = 0
                self._release_later()
                return
            group = self._take_turn()
        if not group:
            return
        assert asking[0] is not None
        try:
            self._write_here(group, asking[0])
        except BaseException as error:
            for ticket in group:
                ticket.error = ticket.error or Problem.unexpected(error)
                ticket.settle()
            raise

    def _write_here(self, group: list[Ticket], loop: asyncio.AbstractEventLoop) -> None:
        """Write on the loop that this runs on, which has the turn."""
        self._patient = False
        try:
            started = time.perf_counter()
            records = self._write(group)
            seconds = time.perf_counter() - started
            self._own += 1
            if seconds > _FAST_SECONDS:
                self._alone = _ALONE - _AFTER_A_SLOW_ONE
            self._tell(group, records, seconds, here=loop)
        except HeldError:
            with self._closing:
                self._alone = 0
                self._later[:0] = group
                self._release_later()
        finally:
            self._patient = True
            self._turn.release()

    def _write_group(self, group: list[Ticket]) -> None:
        with self._turn:
            records, seconds = self._timed(group)
            with self._closing:  # before the answers: the one who gets it may come again at once
                self._queued -= len(group)
                asking = [ticket.loop for ticket in group if not ticket.rides]
                alone = not self._queued and len(asking) == 1 and asking[0] is not None and seconds < _FAST_SECONDS
                self._alone = self._alone + 1 if alone else min(self._alone, 0)
                self._own = _IN_A_ROW  # whoever writes by itself begins by letting the others go first
            self._tell(group, records, seconds)
            self._tidy()

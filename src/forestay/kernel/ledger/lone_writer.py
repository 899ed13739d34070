"""A writing thread, and a short way past it for a caller who is alone.

To wake a thread and to be woken by it takes longer than a commit on a fast disk. So a caller that has been alone for a
while, on a loop with nothing else to do, writes on its own loop:

- A1  One writes at a time: the thread, or the loop that holds the turn.
- A2  Requests are written in the order in which they came, on either way (L7).
- A3  A loop writes only small requests, only while the disk is fast, never a checkpoint, and never waits for another
      process.
- A4  After a few writes the loop lets every other ready task run first, also those whose bytes wait in a socket. A
      second caller that appends meanwhile ends the short way: the thread writes for both, and keeps writing until
      it has served one caller at a time many times in a row. It also takes over when the loop has other work.
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

_ALONE = 16  # fast groups for one caller in a row, before a loop writes on its own
_AFTER_A_SLOW_ONE = 64  # the same, after a loop met a slow disk
_FAST_SECONDS = 0.002
_BUSY_SECONDS = 0.0001  # other tasks' time: a loop with more work than this gains by handing over
_IN_A_ROW = 8  # writes of a loop before every other ready task runs
_SMALL_BYTES = 64 * 1024


class HeldError(Exception):
    """Another process is writing."""


class LoneWriter(Writer):
    """Writes on its thread, or on the loop of a lone caller."""

    def __init__(
        self,
        projections: Sequence[Projection],
        announced: Callable[[list[Record]], Deliveries],
        group_tickets: int,
    ) -> None:
        super().__init__(projections, announced, group_tickets)
        self._turn = threading.Lock()  # guards the database and what is remembered of it (A1)
        self._patient = True  # whether the holder of the turn waits for other processes
        # The rest changes only under `_closing`.
        self._queued = 0  # tickets that the thread has yet to finish
        self._alone = 0  # groups for one caller in a row
        self._own = 0  # writes of a loop since others went first
        self._waits_since: float | None = None  # since when a ticket waits for other tasks to run

    @property
    @abstractmethod
    def _is_tidy(self) -> bool:
        """Whether no work is due that only the thread does."""

    def put(self, ticket: Ticket, *, later: bool = False) -> None:
        loop = ticket.loop
        with self._closing:
            self._check_open()
            if self._queued and not self._later and not later:  # the thread is busy: the usual case with many callers
                self._queued += 1
                self._queue.put([ticket])
                return
            self._later.append(ticket)
            if later:
                ticket.rides = True
                return
            if self._waits_since is not None:  # then neither caller is alone
                self._alone = 0
            if self._alone < _ALONE or loop is None or not self._is_small():
                self._release_later()
                return
            if self._own >= _IN_A_ROW:
                self._waits_since = time.perf_counter()
                loop.call_soon(loop.call_soon, self._others_went)  # the loop polls its sockets between the two
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
        """Take the turn and the waiting tickets; when the turn is not free, leave them to the thread."""
        if self._queued or not self._is_tidy or not self._turn.acquire(blocking=False):
            self._release_later()
            return []
        group = [ticket for ticket in self._later if ticket is not None]
        self._later = []
        return group

    def _others_went(self) -> None:
        """Runs on the lone caller's loop: write, unless another caller came or the other tasks took long."""
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
        """Write on the current loop, which holds the turn."""
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
            with self._closing:  # before the answers: a caller may append again at once
                self._queued -= len(group)
                asking = [ticket.loop for ticket in group if not ticket.rides]
                alone = not self._queued and len(asking) == 1 and asking[0] is not None and seconds < _FAST_SECONDS
                self._alone = self._alone + 1 if alone else min(self._alone, 0)
                self._own = _IN_A_ROW  # a loop that starts to write lets the others run first
            self._tell(group, records, seconds)
            self._tidy()

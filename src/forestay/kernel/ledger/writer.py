"""A ledger's writing thread: takes what is waiting, has it written in one transaction, answers when it is on disk.

It is a thread, so that an event loop never waits for a disk. What a transaction is, the backend says.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from forestay.kernel.ledger.delivery import Deliveries, Ticket, settle
from forestay.kernel.ledger.projections import Projection
from forestay.kernel.ledger.records import Record
from forestay.kernel.problems import Problem

_log = logging.getLogger("forestay.ledger")
_GROUP_BYTES = 8 * 1024 * 1024


class Writer(ABC):
    """Writes groups of tickets. `announced` is called after each commit with what became durable."""

    def __init__(
        self,
        projections: Sequence[Projection],
        announced: Callable[[list[Record]], Deliveries],
        group_tickets: int,
    ) -> None:
        self.projections = projections
        self.observe: Callable[[list[Record], float], None] | None = None
        self._announced = announced
        self._group_tickets = group_tickets
        self._queue: queue.SimpleQueue[list[Ticket | None]] = queue.SimpleQueue()  # each wakes the thread once
        self._from_queue: deque[Ticket | None] = deque()  # from the queue
        self._closing = threading.Lock()  # nothing comes behind the end of the queue
        self._later: list[Ticket | None] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="forestay-ledger", daemon=True)

    @abstractmethod
    def _write(self, group: list[Ticket]) -> list[Record]:
        """Write the group and give back its records; a ticket that cannot go in gets its error, alone."""

    @abstractmethod
    def _tidy(self) -> None:
        """What is due after the answers of a group are out."""

    @abstractmethod
    def _release(self) -> None:
        """Let the database go."""

    def start(self) -> None:
        """Write from now on, on a thread."""
        self._thread.start()

    def put(self, ticket: Ticket, *, later: bool = False) -> None:
        """Have `ticket` written, `later` with the next one or alone; its caller is told."""
        with self._closing:
            self._check_open()
            self._later.append(ticket)
            if not later:
                self._release_later()

    def _check_open(self) -> None:
        if self._closed:
            raise Problem("ledger_closed", "The ledger is closed.")

    def write_now(self) -> None:
        """Have what waits for the next ticket written."""
        with self._closing:
            self._release_later()

    def _release_later(self) -> None:
        if self._later:
            self._queue.put(self._later)
            self._later = []

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._later.append(None)
            self._release_later()
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            group, stopping = self._next_group()
            if group:
                self._write_group(group)
        self._release()

    def _write_group(self, group: list[Ticket]) -> None:
        """Write a group, tell followers and callers what is on disk, then tidy up."""
        self._tell(group, *self._timed(group))
        self._tidy()

    def _timed(self, group: list[Ticket]) -> tuple[list[Record], float]:
        started = time.perf_counter()
        records = self._write(group)
        return records, time.perf_counter() - started

    def _tell(
        self,
        group: list[Ticket],
        records: list[Record],
        seconds: float,
        *,
        here: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Tell who watches, followers and callers what is on disk; `here` is the loop that this runs on, if it is
        one."""
        deliveries: Deliveries = {}
        if records:
            self._observed(records, seconds)
            deliveries = self._announced(records)
        settle(group, deliveries, here)

    def _observed(self, records: list[Record], seconds: float) -> None:
        """Tell who watches. Those who watch are no part of the writing: one that fails is not told again."""
        if self.observe is None:
            return
        try:
            self.observe(records, seconds)
        except Exception:  # noqa: BLE001 - else every caller would wait for a thread that has ended
            _log.exception("What watches the ledger has failed, and is not told of commits any more.")
            self.observe = None

    def _next_group(self) -> tuple[list[Ticket], bool]:
        """Wait for one ticket, then take those that came meanwhile. A job is a group of its own."""
        first = self._take(wait=True)
        if first is None:
            return [], True
        group, size = [first], first.size
        while first.job is None and len(group) < self._group_tickets and size < _GROUP_BYTES:
            try:
                ticket = self._take(wait=False)
            except queue.Empty:
                break
            if ticket is None:
                return group, True
            if ticket.job is not None:
                self._write_group(group)
                return [ticket], False
            group.append(ticket)
            size += ticket.size
        return group, False

    def _take(self, *, wait: bool) -> Ticket | None:
        if not self._from_queue:
            self._from_queue.extend(self._queue.get(wait))
        return self._from_queue.popleft()


def refuse(group: list[Ticket], problem: Problem) -> None:
    """Give `problem` to every caller of a group that has no error of its own."""
    for ticket in group:
        ticket.error = ticket.error or problem


def check_expected(stream: str, expected: int | None, actual: int) -> None:
    """L4: a Problem when the stream does not stand where the caller expects it."""
    if expected is not None and expected != actual:
        raise Problem(
            "ledger_conflict",
            f"The stream {stream} stands at {actual}, not at {expected}.",
            stream=stream,
            expected=expected,
            actual=actual,
        )

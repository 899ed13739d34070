"""A ledger's writing thread: takes what is waiting, has it written in one transaction, answers when it is on disk.

It is a thread, so that an event loop never waits for a disk. The backend says what a transaction is. A commit owes
answers to callers and records to followers: `settle` brings each event loop all of them in one wake-up.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

from forestay.kernel.ledger.follow import Feed
from forestay.kernel.ledger.projections import Database, Projection
from forestay.kernel.ledger.records import Append, Encoded, Record, encode_appends
from forestay.kernel.problems import Problem

_log = logging.getLogger("forestay.ledger")
_GROUP_BYTES = 8 * 1024 * 1024
Job = Callable[[Database], Any]
Deliveries = dict[asyncio.AbstractEventLoop, list[tuple[Feed, list[Record]]]]


class Ticket:
    """One caller's request: appends that go in together, or a job that needs the writing connection."""

    __slots__ = ("appends", "count", "drafts", "error", "future", "job", "loop", "result", "rides", "size", "waiter")

    def __init__(self, appends: Sequence[Append], drafts: Sequence[Sequence[Encoded]], job: Job | None = None) -> None:
        self.appends = appends
        self.drafts = drafts
        self.job = job
        self.count = self.size = 0  # records, and bytes of their payloads
        for group in drafts:
            for item in group:
                self.count += 1
                self.size += len(item.payload)
        self.rides = False  # with the next one: its caller does not wait for it
        self.result: Any = None
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.waiter: asyncio.Future[Any] | None = None  # for a caller on an event loop
        self.future: Future[Any] | None = None  # for a caller on a thread

    def settle(self) -> None:
        target: Any = self.waiter if self.waiter is not None else self.future
        if target is None or target.done():
            return
        if self.error is not None:
            target.set_exception(self.error)
        else:
            target.set_result(self.result)


def ticket_of(appends: Sequence[Append]) -> Ticket:
    """A ticket with everything checked and encoded: the caller's thread pays for that, not the writer."""
    return Ticket(appends, encode_appends(appends))


class Feeds:
    """All followers of one ledger. `announced` is called by whoever wrote."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_stream: dict[str, list[Feed]] = {}
        self._by_prefix: dict[str, list[Feed]] = {}

    def open(self, name: str, *, prefix: bool) -> Feed:
        feed = Feed(asyncio.get_running_loop())
        with self._lock:
            table = self._by_prefix if prefix else self._by_stream
            table[name] = [*table.get(name, []), feed]
        return feed

    def close(self, name: str, feed: Feed, *, prefix: bool) -> None:
        with self._lock:
            table = self._by_prefix if prefix else self._by_stream
            rest = [item for item in table.get(name, []) if item is not feed]
            if rest:
                table[name] = rest
            else:
                table.pop(name, None)

    def announced(self, records: list[Record]) -> Deliveries:
        """Who gets which of `records`, by event loop: the writer brings them together with its answers."""
        if not self._by_stream and not self._by_prefix:
            return {}
        deliveries: dict[Feed, list[Record]] = {}
        with self._lock:
            for record in records:
                for feed in self._by_stream.get(record.stream, ()):
                    deliveries.setdefault(feed, []).append(record)
                for prefix, feeds in self._by_prefix.items():
                    if record.stream.startswith(prefix):
                        for feed in feeds:
                            deliveries.setdefault(feed, []).append(record)
        by_loop: Deliveries = {}
        for feed, items in deliveries.items():
            by_loop.setdefault(feed.loop, []).append((feed, items))
        return by_loop

    def stale(self, streams: Collection[str] | None) -> None:
        """Have those who follow one of `streams` read from disk: another process wrote to it. None: to any stream."""
        with self._lock:
            names = self._by_stream if streams is None else streams
            found = [feed for name in names for feed in self._by_stream.get(name, ())]
            for prefix, feeds in self._by_prefix.items():
                if streams is None or any(name.startswith(prefix) for name in streams):
                    found += feeds
        by_loop: dict[asyncio.AbstractEventLoop, list[Feed]] = {}
        for feed in found:
            by_loop.setdefault(feed.loop, []).append(feed)
        for loop, feeds in by_loop.items():
            try:
                loop.call_soon_threadsafe(_nudge, feeds)
            except RuntimeError:
                pass  # the loop was closed: no follower is left


def _nudge(feeds: list[Feed]) -> None:
    for feed in feeds:
        feed.nudge()


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


def settle(group: list[Ticket], deliveries: Deliveries, here: asyncio.AbstractEventLoop | None = None) -> None:
    """Bring followers their records and callers their answers: one wake-up per event loop, because waking a thread
    that sleeps costs more than everything else that is done here, and none of the loop that this runs on."""
    if here is not None and not deliveries:
        for ticket in group:
            ticket.settle()
        return
    waiting: dict[asyncio.AbstractEventLoop, list[Ticket]] = {loop: [] for loop in deliveries}
    for ticket in group:
        if ticket.loop is None:
            ticket.settle()
        else:
            waiting.setdefault(ticket.loop, []).append(ticket)
    for loop, tickets in waiting.items():
        batch = deliveries.get(loop, ())
        if loop is here:
            _arrive(batch, tickets)
            continue
        try:
            loop.call_soon_threadsafe(_arrive, batch, tickets)
        except RuntimeError:
            pass  # the loop was closed while the group was written: no caller is left


def _arrive(batch: Sequence[tuple[Feed, list[Record]]], tickets: list[Ticket]) -> None:
    for feed, records in batch:
        feed.push(records)
    for ticket in tickets:
        ticket.settle()

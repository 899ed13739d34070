"""How what is on disk reaches event loops: callers get their answers, followers their records (L8).

A ledger's writer works on a thread of its own, or on the loop of a caller who is alone. `settle` brings all that a
commit owes to one loop in one wake-up.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from forestay.kernel.ledger.projections import Database
from forestay.kernel.ledger.records import Append, Encoded, Record, encode_appends

if TYPE_CHECKING:
    from forestay.kernel.ledger.ledger import Ledger

_PENDING = 1024
_PAGE = 1000
_SOON = 0.02  # seconds
Job = Callable[[Database], Any]


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


class Feed:
    """One follower's mailbox. When it overflows it forgets, and the follower reads from disk instead."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._pending: deque[Record] = deque()
        self._signal = asyncio.Event()
        self._lost = False

    def push(self, records: Iterable[Record]) -> None:
        """Called on the follower's loop."""
        for record in records:
            if len(self._pending) >= _PENDING:
                self._pending.clear()
                self._lost = True
            self._pending.append(record)
        self._signal.set()

    def nudge(self) -> None:
        """Called on the follower's loop: another process wrote, so the follower reads from disk."""
        self._lost = True
        self._signal.set()

    async def wait(self, timeout: float | None) -> None:
        if timeout is None:
            await self._signal.wait()
            return
        try:
            async with asyncio.timeout(timeout):
                await self._signal.wait()
        except TimeoutError:
            pass

    def take(self) -> tuple[list[Record], bool]:
        """What came since the last call, and whether something before it was lost."""
        records, lost = list(self._pending), self._lost
        self._pending.clear()
        self._lost = False
        self._signal.clear()
        return records, lost


Deliveries = dict[asyncio.AbstractEventLoop, list[tuple[Feed, list[Record]]]]


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


async def follow(
    ledger: Ledger, feeds: Feeds, stream: str, start: int, poll: float | None
) -> AsyncGenerator[Record, None]:
    """What is on disk from `start` on, then what the feed brings; the disk again when the feed lost something."""
    feed = feeds.open(stream, prefix=False)
    try:
        behind = True
        while True:
            while behind:
                page = await ledger.read(stream, start, _PAGE)
                for record in page:
                    start = record.seq + 1
                    yield record
                behind = len(page) == _PAGE
            await feed.wait(poll)
            records, behind = feed.take()
            behind = behind or poll is not None
            for record in records:
                if record.seq > start:
                    behind = True
                    break
                if record.seq == start:
                    start += 1
                    yield record
    finally:
        feeds.close(stream, feed, prefix=False)


async def follow_all(
    ledger: Ledger,
    feeds: Feeds,
    prefix: str,
    after: int | None,
    poll: float | None,
    hidden: Callable[[str, int], Awaitable[bool]],
) -> AsyncGenerator[tuple[int, Record], None]:
    """Records of every stream under `prefix`: read from disk each time that the feed says there is something.

    `hidden` tells whether something under a prefix behind a position is written and may not be shown yet.
    """
    feed = feeds.open(prefix, prefix=True)
    try:
        position = await ledger.position() if after is None else after
        while True:
            page = await ledger.read_all(prefix, position, _PAGE)
            for position, record in page:
                yield position, record
            if len(page) < _PAGE:
                await feed.wait(_SOON if await hidden(prefix, position) else poll)
                feed.take()
    finally:
        feeds.close(prefix, feed, prefix=True)

"""Following streams: what is on disk first, then what the writer puts into the follower's mailbox (L8)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from forestay.kernel.ledger.records import Record

if TYPE_CHECKING:
    from forestay.kernel.ledger.ledger import Ledger
    from forestay.kernel.ledger.writer import Feeds

_PENDING = 1024
_PAGE = 1000
_SOON = 0.02  # seconds


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

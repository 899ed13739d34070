"""Live delivery of a run's events to any number of followers.

- S1  A follower gets every event from its start on, once, in order, and then the end; also one that starts beyond it.
- S2  A run's events are read and shaped once, however many follow it.
- S3  A follower that is slow falls back to the log; it holds up neither the engine nor the others.
- S4  When the log cannot be read any more, whoever follows is told why instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from forestay.kernel import Ledger, Problem
from forestay.runs.log import stream_of, to_wire
from forestay.runs.types import TERMINAL_EVENTS, RunEvent

_PENDING = 1024
_PAGE = 1000


class _Follower:
    """One follower's mailbox."""

    __slots__ = ("lost", "pending", "waiter")

    def __init__(self) -> None:
        self.pending: deque[RunEvent] = deque()
        self.waiter: asyncio.Future[None] | None = None
        self.lost = False

    def push(self, event: RunEvent) -> None:
        if len(self.pending) >= _PENDING:
            self.pending.clear()
            self.lost = True  # it reads the log instead (S3)
        self.pending.append(event)
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self, hub: _Hub) -> None:
        """Until there is something to read; a Problem when nothing will come any more (S4)."""
        if not self.pending and hub.problem is None:
            self.waiter = asyncio.get_running_loop().create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
        if not self.pending and hub.problem is not None:
            raise hub.problem


class _Hub:
    """All followers of one run, fed by one task."""

    def __init__(self) -> None:
        self.followers: set[_Follower] = set()
        self.task: asyncio.Task[None] | None = None
        self.problem: Problem | None = None


class Feeds:
    """The live runs of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._hubs: dict[str, _Hub] = {}

    def close(self) -> None:
        for hub in self._hubs.values():
            if hub.task is not None:
                hub.task.cancel()
        self._hubs.clear()

    async def follow(self, run_id: str, start: int) -> AsyncIterator[RunEvent]:
        """Events from `start` on; ends after the terminal one (S1)."""
        stream = stream_of(run_id)
        head = await self._ledger.head(stream)
        follower = _Follower()
        hub = self._join(run_id, follower, head.seq + 1)
        try:
            if start > head.seq:  # asked now that we are told of what comes: the run may have ended meanwhile
                last = await self._ledger.read(stream, 0, 1, reverse=True)
                if last and last[0].type in TERMINAL_EVENTS and last[0].seq < start:
                    return
            behind = True
            while True:
                while behind:
                    page = await self._ledger.read(stream, start, _PAGE)
                    for record in page:
                        start = record.seq + 1
                        yield to_wire(record)
                        if record.type in TERMINAL_EVENTS:
                            return
                    behind = len(page) == _PAGE
                await follower.wait(hub)
                behind, follower.lost = follower.lost, False
                while follower.pending and not behind:
                    event = follower.pending.popleft()
                    if event.sequence > start:
                        behind = True
                    elif event.sequence == start:
                        start += 1
                        yield event
                    if event.type in TERMINAL_EVENTS and event.sequence < start:
                        return
        finally:
            self._leave(run_id, hub, follower)

    def _join(self, run_id: str, follower: _Follower, start: int) -> _Hub:
        """Be told of every event from `start` on; what came before is read by the follower itself."""
        hub = self._hubs.get(run_id)
        if hub is None:
            hub = self._hubs[run_id] = _Hub()
            hub.task = asyncio.get_running_loop().create_task(self._feed(run_id, hub, start))
        hub.followers.add(follower)
        return hub

    def _leave(self, run_id: str, hub: _Hub, follower: _Follower) -> None:
        hub.followers.discard(follower)
        if not hub.followers and hub.task is not None:
            hub.task.cancel()
            if self._hubs.get(run_id) is hub:
                del self._hubs[run_id]

    async def _feed(self, run_id: str, hub: _Hub, start: int) -> None:
        try:
            async for record in self._ledger.follow(stream_of(run_id), start):
                event = to_wire(record)
                for follower in hub.followers:
                    follower.push(event)
        except Problem as problem:
            hub.problem = problem
            if self._hubs.get(run_id) is hub:
                del self._hubs[run_id]  # whoever comes next tries again
            for follower in hub.followers:
                follower.wake()

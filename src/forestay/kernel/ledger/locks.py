"""Locks on what several processes write: one of them at a time has a key.

- U1  The tasks of one process share its lock: what keeps them apart is their own affair.
- U2  A lock is no permission to write (K5). A process that stood still and comes back may find that another one had the
      key; what it then writes with `expect` is refused.
- U2a Who takes a key from other processes reads what they wrote before any task of this process goes on with it.
- U3  Where one process has the ledger, every lock is its own, and asking costs nothing.
- U4  What the tasks of a process ask while the database is asked already goes out together, as its next question.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from forestay.kernel.ambient import outside_work
from forestay.kernel.ledger.workers import Workers
from forestay.kernel.problems import Problem

T = TypeVar("T")
CatchUp = Callable[[], Awaitable[object]]
_FIRST_LOOK_SECONDS = 0.02
_LAST_LOOK_SECONDS = 0.3


class Locks:
    """The locks of one process; without `workers` it is alone (U3)."""

    def __init__(self, workers: Workers | None = None) -> None:
        self._workers = workers
        self._taking = None if workers is None else _Gathered(workers.hold)
        self._leaving = None if workers is None else _Gathered(workers.let_go)
        self._users: Counter[str] = Counter()
        self._asking: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @property
    def shared(self) -> bool:
        """Whether other processes take locks too."""
        return self._workers is not None

    def has(self, key: str) -> bool:
        """Whether a block of this process has the key now."""
        return self._users[key] > 0

    @asynccontextmanager
    async def at(self, key: str, catch_up: CatchUp | None = None) -> AsyncIterator[None]:
        """Have the key while the block runs; waits for it. `catch_up` reads what other processes wrote (U2a)."""
        if self._workers is None:
            yield
            return
        pause = _FIRST_LOOK_SECONDS
        while not await self._begin(key, catch_up):
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_SECONDS)
        try:
            yield
        finally:
            await asyncio.shield(asyncio.ensure_future(self._end(key)))

    @asynccontextmanager
    async def attempt(self, key: str, catch_up: CatchUp | None = None) -> AsyncIterator[bool]:
        """As `at`, without waiting: False when another process has the key."""
        if self._workers is None:
            yield True
            return
        has = await self._begin(key, catch_up)
        try:
            yield has
        finally:
            if has:
                await asyncio.shield(asyncio.ensure_future(self._end(key)))

    async def take(self, keys: Collection[str]) -> frozenset[str]:
        """Those of `keys` that this process has now, without waiting for others."""
        if self._taking is None or not keys:
            return frozenset(keys)
        return frozenset(keys) & frozenset(await self._taking.ask(keys) or ())

    async def leave(self, keys: Collection[str]) -> None:
        """Give up what `take` took."""
        if self._leaving is not None and keys:
            with contextlib.suppress(Problem):  # the database is away: it is told with the next beat
                await self._leaving.ask(keys)

    async def _begin(self, key: str, catch_up: CatchUp | None) -> bool:
        async with self._changing(key):
            if not self._users[key] and not await self._take_and_read(key, catch_up):
                return False
            self._users[key] += 1
            return True

    async def _take_and_read(self, key: str, catch_up: CatchUp | None) -> bool:
        """Take a key that no task of this process has. When the task ends here, the key is not kept."""
        taking = asyncio.ensure_future(self.take([key]))
        try:
            if not await asyncio.shield(taking):
                return False
            if catch_up is not None:
                await catch_up()
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self._give_back(key, taking)))
            raise
        return True

    async def _give_back(self, key: str, taking: asyncio.Future[frozenset[str]]) -> None:
        with contextlib.suppress(Problem):  # the database is away: nothing was taken
            if await taking:
                await self.leave([key])

    async def _end(self, key: str) -> None:
        async with self._changing(key):
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                await self.leave([key])

    def _changing(self, key: str) -> asyncio.Lock:
        """Taking and leaving come one after the other: else one task gives up what another has just got."""
        return self._asking.setdefault(key, asyncio.Lock())


class _Gathered(Generic[T]):
    """A question about keys that is asked for many tasks at once (U4)."""

    def __init__(self, question: Callable[[Collection[str]], T]) -> None:
        self._question = question
        self._next: list[tuple[Collection[str], asyncio.Future[T]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, keys: Collection[str]) -> T:
        """What the database says of `keys`, and of those that others asked for beside them."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._next.append((keys, answer))
        with outside_work(loop):
            if self._asking is None:
                self._asking = loop.create_task(self._ask_on())
            return await answer

    async def _ask_on(self) -> None:
        try:
            while self._next:
                group, self._next = self._next, []
                keys = {key for some, _ in group for key in some}
                asked = asyncio.ensure_future(asyncio.to_thread(self._question, keys))
                await asyncio.wait([asked])
                for _, answer in group:
                    _settle(answer, asked)
        finally:
            self._asking = None


def _settle(answer: asyncio.Future[T], asked: asyncio.Future[T]) -> None:
    if answer.done():
        return  # its task was cancelled
    if (error := asked.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(asked.result())

"""One thread, one clock, many processes: an event loop that never waits, and processes that die between two steps.

- S1  Nothing depends on real time, threads or addresses: the same seed takes the same steps.
- S2  Each callback belongs to the process whose code asked for it. A process dies between two callbacks, that is at
      any of its awaits, and not one of its callbacks runs after that.
- S3  When nothing can happen now, the clock jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import socket
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
START_MS = 1_767_225_600_000
MOST_STEPS = 60_000
_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Stuck(Exception):
    """Nothing can happen any more, or it never comes to an end."""


class WorldClock:
    """The true time, which no process sees."""

    elapsed = 0.0

    def now_ms(self) -> int:
        return START_MS + round(self.elapsed * 1000)

    def monotonic(self) -> float:
        return self.elapsed


class ProcessClock:
    """The clock of one machine: its wall time may be set, its monotonic time never."""

    def __init__(self, world: WorldClock) -> None:
        self._world = world
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._world.now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return self._world.monotonic()


class Process:
    """The callbacks of one process, until it dies."""

    def __init__(self, name: str, loop: SimulatedLoop, dies_after: int | None = None) -> None:
        self.name = name
        self.alive = True
        self.died: asyncio.Future[None] = loop.create_future()
        self.steps = 0
        self.dies_after = dies_after
        self.stalled = False
        self.at_death: list[Callable[[], None]] = []
        self._loop = loop
        self._buried = False
        self._parked: list[tuple[Any, Any, contextvars.Context]] = []
        self._context = contextvars.copy_context()
        self._context.run(_PROCESS.set, self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of this process."""
        return self._loop.create_task(work, context=self._context.copy())

    def step(self, callback: Callable[..., Any], arguments: tuple[Any, ...], context: contextvars.Context) -> None:
        self.steps += 1
        if self.alive and self.dies_after is not None and self.steps > self.dies_after:
            self.die()
        if (self.alive and not self.stalled) or self._buried:
            callback(*arguments)
        else:
            self._parked.append((callback, arguments, context))

    def go_on(self) -> None:
        """Do what came up while the process was stalled."""
        self.stalled = False
        parked, self._parked = self._parked, []
        for callback, arguments, context in parked:
            self._loop.call_soon(callback, *arguments, context=context)

    def die(self) -> None:
        """From now on this process does nothing (S2)."""
        if self.alive:
            self.alive = False
            for tell in self.at_death:
                tell()
            if not self.died.done():
                self.died.set_result(None)

    async def bury(self, main: asyncio.Task[Any]) -> None:
        """Let a dead process's coroutines unwind, when nothing that they do can be seen any more."""
        self._buried = True
        self.go_on()
        while not main.done():
            main.cancel()
            await asyncio.wait([main], timeout=0.05)


def this_process() -> Process | None:
    return _PROCESS.get()


class _NoSelector(selectors.SelectSelector):
    """Waits for nothing outside: when the loop would wait, the clock jumps (S3)."""

    def __init__(self, clock: WorldClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise Stuck("nothing can happen any more")
        self._clock.elapsed += max(timeout, 0.0)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: WorldClock, chance: Random, most_steps: int = MOST_STEPS) -> None:
        super().__init__(_NoSelector(clock))
        self.steps = 0
        self._most_steps = most_steps
        self._clock = clock
        self._chance = chance

    def time(self) -> float:
        return self._clock.elapsed

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return super().call_soon(*self._owned(callback, args, context), context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return super().call_at(when, *self._owned(callback, args, context), context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_soon(callback, *args, context=context)

    def _owned(self, callback: Any, args: tuple[Any, ...], context: contextvars.Context | None) -> tuple[Any, ...]:
        self.steps += 1
        if self.steps > self._most_steps:
            raise Stuck("it never comes to an end")
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is None:
            return (callback, *args)
        return (process.step, callback, args, context or contextvars.copy_context())

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """What a thread would do is done here, in one step, a little later."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._chance.choice((0.0, 0.0, 0.0001, 0.002)), work)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", port))]

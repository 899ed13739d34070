"""A computer with a host on it, which starts again whenever it has gone."""

from __future__ import annotations

import asyncio

from forestay.host import Options
from forestay.kernel import Problem
from forestay.surface import InnerTransport, serve_here
from tests.simulation.machine import Process, SimulatedLoop

Serving = tuple[Process, InnerTransport]


class Owner:
    """What a world decides about its computers, and hears of them."""

    def options(self, process: Process) -> Options:
        raise NotImplementedError

    def fate(self) -> int | None:
        """After how many steps the next life ends, if it does."""
        return None

    def pause(self) -> float:
        """Seconds between two lives."""
        return 0.5

    def excuses(self, problem: Problem) -> bool:
        """Whether a host may have failed to start for this reason."""
        return False

    def died(self) -> None:
        """A process has died; its files are as they are."""

    def tell(self, what: str) -> None:
        """Something happened that a reader of a failing seed wants to know."""

    def complain(self, fault: str) -> None:
        """Something is wrong."""


class Computer:
    def __init__(self, name: str, loop: SimulatedLoop, owner: Owner) -> None:
        self.name = name
        self.lives = 0
        self.process: Process | None = None
        self.serving: Serving | None = None
        self._loop = loop
        self._owner = owner
        self._off = asyncio.Event()
        self._asked = asyncio.Event()
        self._graves: list[tuple[Process, asyncio.Task[None]]] = []

    async def run(self) -> None:
        """Start the host, again and again, until the computer is turned off."""
        while not self._off.is_set():
            self.lives += 1
            self._asked.clear()
            process = self.process = Process(f"{self.name}{self.lives}", self._loop, self._owner.fate())
            process.at_death.append(self._died)
            main = process.spawn(self._live(process))
            await asyncio.wait({main, process.died}, return_when=asyncio.FIRST_COMPLETED)
            self.serving = None
            if process.alive:
                self._judge(main)
            else:
                self._graves.append((process, main))
            await asyncio.sleep(self._owner.pause())

    def restart(self) -> None:
        """Ask the host to end; it starts again."""
        self._asked.set()

    def turn_off(self) -> None:
        """Ask the host to end for good."""
        self._off.set()
        self._asked.set()

    async def bury(self) -> None:
        """Let go of what the dead still hold."""
        graves, self._graves = self._graves, []
        for process, main in graves:
            await process.bury(main)

    async def _live(self, process: Process) -> None:
        async with serve_here(self._owner.options(process)) as serving:
            self.serving = (process, InnerTransport(serving.door))
            self._owner.tell(f"{process.name} serves")
            await self._asked.wait()
            self.serving = None

    def _died(self) -> None:
        self.serving = None
        self._owner.died()

    def _judge(self, main: asyncio.Task[None]) -> None:
        """A host ends when it is asked to, or when its disk fails while it opens; in no other way."""
        error = main.exception() if not main.cancelled() else asyncio.CancelledError()
        if isinstance(error, Problem) and self._owner.excuses(error):
            self._owner.tell(f"the host did not start: {error.key}")
        elif error is not None:
            self._owner.complain(f"V3 the host ended with {type(error).__name__}: {error}")

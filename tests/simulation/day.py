"""A day in minutes: one host under a mixed load over simulated hours, restarted and killed meanwhile.

Nothing is added to what seeds live through, but it goes on: timers run out, schedules fire, notes expire, webhooks are
delivered, and all that was ever made is still there. So this finds what grows with time. An operation's cost is the
processor time of everything that happened between its beginning and its end.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
from benchmarks.soak.verdict import Done, Restart, Sample, Soak

from forestay.host import Options
from forestay.kernel import Problem, SeededRandomness
from tests.kernel.ledger.simulated_disk import Disk, simulated_ledgers
from tests.simulation import day_check
from tests.simulation.computer import Computer, Owner
from tests.simulation.day_load import MIX, DayClient
from tests.simulation.machine import Process, ProcessClock, SimulatedLoop, WorldClock
from tests.simulation.network import ToHost, ToOutside, Weather
from tests.simulation.outside import Outside, SimulatedModel
from tests.simulation.workload import TENANTS
from tests.simulation.world import CONFIG, RETRY, first_folder

QUARTER = 900.0
EVERY = 6.0  # seconds between two operations
_SET_OFF = 10  # one of so many is followed by a timer and an event
_LIFE = 1_500.0  # seconds between two restarts
_EARLIER = 2.0  # seconds before the end of a quarter: what a sample costs must not fall into an operation
_QUIET = 2_400.0  # seconds after the day in which everything must end
_SLOPE_MIB = 0.02  # a minute: 14 MiB in twelve hours
_MIB = 1024 * 1024


class Day(Owner):
    def __init__(self, folder: Path, hours: float, every: float = EVERY, seed: int = 1) -> None:
        self.clock = WorldClock()
        self.loop = SimulatedLoop(self.clock, Random(f"loop {seed}"), most_steps=100_000_000)
        self.disk = Disk(folder, Random(f"disk {seed}"))
        self.outside = Notebook(folder.parent / "outside.txt", Random(f"outside {seed}"), self.complain)
        self.faults: list[str] = []
        self.done: list[Done] = []
        self.samples: list[Sample] = []
        self.restarts: list[Restart] = []
        self.computer = Computer("life ", self.loop, self)
        self.seconds = hours * 3600
        self._every = every
        self._seed = seed
        self._chance = Random(seed)
        self._weather = Weather(Random(f"weather {seed}"))
        self._weather.calm()
        self._model = SimulatedModel(Random(f"model {seed}"))
        self._machine = ProcessClock(self.clock)

    async def run(self, say: Callable[[str], None] = lambda words: None) -> None:
        power = asyncio.ensure_future(self.computer.run())
        clients = [DayClient(tenant, ToHost(self._weather, lambda: self.computer.serving)) for tenant in TENANTS]
        for client in clients:
            await client.prepare()
        beside = [asyncio.ensure_future(self._watch(say)), asyncio.ensure_future(self._disturb())]
        began = self.clock.elapsed
        for number in range(int(self.seconds / self._every)):
            await asyncio.sleep(max(0.0, began + number * self._every - self.clock.elapsed))
            await self._operate(clients[number % len(clients)], number)
        await asyncio.sleep(max(0.0, began + self.seconds - self.clock.elapsed))
        for task in beside:
            task.cancel()
        await asyncio.sleep(_QUIET)
        for client in clients:
            await client.close()
        self.computer.turn_off()
        await power
        await self.computer.bury()

    async def _operate(self, client: DayClient, number: int) -> None:
        kind, due, repeats, error = MIX[number % len(MIX)], self.clock.elapsed, client.repeats, None
        spent = time.process_time()
        try:
            await client.operate(kind, number)
        except Problem as problem:
            error = f"{kind}: {problem.key}: {problem.message}"
        spent = time.process_time() - spent
        repeats = client.repeats - repeats
        self.done.append(Done(kind, due, spent, error, repeats, self.clock.elapsed - due))
        if number % _SET_OFF == 0:
            await client.set_off(number)

    async def _watch(self, say: Callable[[str], None]) -> None:
        await asyncio.sleep(QUARTER - _EARLIER)
        while True:
            gc.collect()
            self.samples.append(self._sample())
            say(f"{self.clock.elapsed / 3600:.2f} h: {len(self.done):,} operations, {self.samples[-1]}")
            await asyncio.sleep(QUARTER)

    def _sample(self) -> Sample:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        resident, private = (int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
        sizes = {file.name: file.stat().st_size / _MIB for file in self.disk.folder.iterdir() if file.is_file()}
        ledger, log = sizes.pop("ledger.db"), sizes.pop("ledger.db-wal", 0.0)
        files = sum(1 for _ in Path("/proc/self/fd").iterdir())
        return Sample(self.clock.elapsed, resident, private, files, 0, ledger, log, sum(sizes.values()))

    async def _disturb(self) -> None:
        """By turns the host is asked to go, dies between two steps, and loses its power inside a commit."""
        for number in range(1_000_000):
            await asyncio.sleep(_LIFE)
            process, folder = self.computer.process, self.disk.folder
            assert process is not None
            how = ("asked", "killed", "power cut")[number % 3]
            if how == "asked":
                self.computer.restart()
            elif how == "killed":
                process.dies_after = process.steps + self._chance.randrange(1, 300)
            else:
                self.disk.tears_after = self._chance.randrange(1, 30)
            while self.computer.process is process and self.computer.serving is not None:
                await asyncio.sleep(0.01)
            at = self.clock.elapsed
            while self.computer.process is process or self.computer.serving is None:
                await asyncio.sleep(0.01)
            self.restarts.append(Restart(at, how, self.clock.elapsed - at))
            await self.computer.bury()
            if self.disk.folder != folder:
                shutil.rmtree(folder)

    # What the computer asks

    def options(self, process: Process) -> Options:
        return Options(
            config=CONFIG,
            root=self.disk.folder,
            data=self.disk.folder,
            clock=self._machine,
            randomness=SeededRandomness(f"{self._seed} {self.computer.lives}"),
            models={"simulated": self._model},
            retry=RETRY,
            transport=ToOutside(self._weather, self.outside, process),
        )

    def fate(self) -> int | None:
        self.disk.tears_after = None
        return None

    def pause(self) -> float:
        return self._chance.choice((0.5, 5.0, 60.0))

    def died(self) -> None:
        self.disk.lose_power()

    def complain(self, fault: str) -> None:
        self.faults.append(fault)


class Notebook(Outside):
    """An outside that writes down what reaches it, and keeps nothing in memory: a day is long."""

    def __init__(self, path: Path, chance: Random, complain: Callable[[str], None]) -> None:
        super().__init__(chance, lambda identity: False, complain)
        self._file = path.open("w", encoding="utf-8")
        self.path = path

    def arrived(self, request: httpx.Request, body: bytes) -> tuple[int, Any]:
        status, answer = super().arrived(request, body)
        for delivered in self.webhooks:
            self._file.write(f"hook {delivered.tenant} {delivered.event['runId']} {delivered.event['sequence']}\n")
        for identity in self.receipts:
            self._file.write(f"effect {identity} {self.bodies[identity]}\n")
        for kept in (self.webhooks, self.receipts, self.bodies, self.identities):
            kept.clear()
        return status, answer

    def close(self) -> None:
        self._file.close()


def live(
    hours: float, say: Callable[[str], None] = lambda words: None, *, every: float = EVERY
) -> tuple[Soak, day_check.Found]:
    """A day with an operation `every` so many seconds, as a soak, and what was found in the files that it left."""
    with first_folder() as folder:
        day = Day(folder, hours, every)
        with simulated_ledgers(day.disk), asyncio.Runner(loop_factory=lambda: day.loop) as runner:
            runner.run(day.run(say))
        day.outside.close()
        found = day_check.check(day.disk.folder / "ledger.db", day.outside.path, day.restarts)
    ok = not found.faults and not day.faults
    rate = 1 / every
    soak = Soak(0.0, day.seconds, rate, rate, day.done, day.samples, 0, ok, found.records, day.restarts)
    soak = soak._replace(slope_mib=_SLOPE_MIB, measured="processor time")
    return soak, found._replace(faults=[*day.faults, *found.faults])

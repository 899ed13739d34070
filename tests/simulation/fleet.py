"""A world with several hosts on one ledger: any of them takes a request, one of them carries a run.

They die one by one, and they stall: a process that does nothing for a while loses its lease, others take over what it
carried, and then it goes on as if nothing had happened. Messages about what others wrote come late or not at all. The
disk is shared, so nobody's power is cut; what a power cut leaves is tried where there is one host.

An effect that is on record may be sent again here: a process that stalled before it sent does not know. It is sent
under the same identity, so the receiver can tell, and its result is on record once.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

import msgspec

from forestay.host import Options
from forestay.kernel import HOST_SECRET, Problem, SeededRandomness
from tests.kernel.ledger.simulated_fleet import Fleet, simulated_fleet
from tests.simulation.computer import Computer, Owner, Serving
from tests.simulation.machine import Process
from tests.simulation.network import ToOutside
from tests.simulation.outside import Outside
from tests.simulation.world import CONFIG, RETRY, Outcome, World, first_folder, live

_MOST_LIVES = 4
_FOR_GOOD = 5_000.0  # seconds: what a host carried that does not come back is another's to end


class FleetWorld(World):
    most_steps = 400_000  # each of the hosts says all the time that it lives

    def __init__(self, seed: int, folder: Path, *, small: bool = False) -> None:
        super().__init__(seed, folder, small=small)
        self.outside = Outside(Random(f"outside {seed}"), lambda identity: False, self.complain)
        self.fleet = Fleet(self.clock, self.disk, Random(f"fleet {seed}"))
        members = [Member(self, number) for number in range(2 if small else self._chance.choice((2, 3)))]
        self.computers = [member.computer for member in members]

    def ledgers(self) -> AbstractContextManager[None]:
        return simulated_fleet(self.fleet)

    def serving(self) -> Serving | None:
        return self._chance.choice([computer.serving for computer in self.computers])

    def troubles(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return (self._full, self._failing, self._slow, self._outage, self._stall, self._stall, self._stall)

    async def _stall(self) -> None:
        process = self._chance.choice(self.computers).process
        if process is not None:
            self.tell(f"{process.name} stalls")
            process.stalled = True
            await asyncio.sleep(self._chance.random() * 8)
            process.go_on()

    def is_calm(self) -> bool:
        return self._calm


class Member(Owner):
    """One host of the fleet: its data folder, and its computer."""

    def __init__(self, world: FleetWorld, number: int) -> None:
        self.computer = Computer(f"host {number} life ", world.loop, self)
        self._world = world
        self._number = number
        self._chance = Random(f"host {number} {world.seed}")
        self._folder = world.disk.folder.with_name(f"host{number}")
        self._folder.mkdir()
        shutil.copyfile(world.disk.folder / HOST_SECRET, self._folder / HOST_SECRET)

    def options(self, process: Process) -> Options:
        world = self._world
        data = msgspec.structs.replace(CONFIG.data, ledger=str(world.disk.folder / "ledger.db"))
        return Options(
            config=msgspec.structs.replace(CONFIG, data=data),
            root=self._folder,
            data=self._folder,
            clock=world.clock,
            randomness=SeededRandomness(f"{world.seed} {self._number} {self.computer.lives}"),
            models={"simulated": world.model},
            retry=RETRY,
            transport=ToOutside(world.weather, world.outside, process),
        )

    def fate(self) -> int | None:
        if self._world.is_calm() or self.computer.lives > _MOST_LIVES or self._chance.random() < 0.3:
            return None
        return self._chance.randrange(20, 1500 if self._world.small else 5000)

    def pause(self) -> float:
        if self._number and not self._world.is_calm() and self._chance.random() < 0.3:
            return _FOR_GOOD
        return 0.01 + self._chance.random() ** 2 * (0.1 if self._world.is_calm() else 8.0)

    def excuses(self, problem: Problem) -> bool:
        return not self._world.is_calm() and problem.key.startswith("ledger_")

    def died(self) -> None:
        self.tell(f"host {self._number} dies")
        (self._folder / "host.lock").unlink(missing_ok=True)  # the system would end the lock with the process
        process = self.computer.process
        ledgers = self._world.fleet.ledgers
        ledgers[:] = [ledger for ledger in ledgers if ledger.process is not process]

    def tell(self, what: str) -> None:
        self._world.tell(what)

    def complain(self, fault: str) -> None:
        self._world.complain(fault)


def simulate_fleet(seed: int, *, small: bool = False) -> Outcome:
    """Live through a seed with several hosts."""
    with first_folder() as folder:
        return live(FleetWorld(seed, folder, small=small))

"""One seed, one world: a machine with a host on it, its clients, the faults that befall them, and what is left.

A world has two times. While it storms, the machine loses power, its disk fills up or fails, its clock is set, and the
networks lose and repeat what they carry. Then it is calm for good, and everything that was begun must come to its end.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from pathlib import Path
from random import Random

import msgspec

from forestay.host import Options, host_tables
from forestay.kernel import Config, ManualClock, Models, Problem, Record, SeededRandomness
from forestay.runs import RetryPolicy
from forestay.surface import KeyTable, serve_here
from tests.kernel.ledger.simulated_disk import Disk, simulated_ledgers
from tests.simulation import checker
from tests.simulation.clients import Client
from tests.simulation.computer import Computer, Owner, Serving
from tests.simulation.machine import MOST_STEPS, Process, ProcessClock, SimulatedLoop, Stuck, WorldClock
from tests.simulation.network import ToHost, ToOutside, Weather
from tests.simulation.outside import Outside, SimulatedModel
from tests.simulation.workload import TENANTS, WANTED, documents, key_of

_STORM_SECONDS = 20.0
_CALM_SECONDS, _SMALL_CALM_SECONDS = 1200.0, 500.0  # in which everything must end
RETRY = RetryPolicy(max_attempts=200, first_ms=500, most_ms=5_000)
CONFIG = Config(models=Models(default="simulated"))
PROJECTIONS = (*host_tables(), KeyTable())


class Outcome(msgspec.Struct, frozen=True):
    """What a seed led to. `digest` is over everything that was written: the same seed has the same one."""

    seed: int
    faults: list[str]
    digest: str
    records: int
    lives: int
    steps: int
    told: list[str]


class World(Owner):
    most_steps = MOST_STEPS

    def __init__(self, seed: int, folder: Path, *, small: bool = False) -> None:
        self.seed = seed
        self.small = small
        self.clock = WorldClock()
        self._chance = Random(seed)
        self.loop = SimulatedLoop(self.clock, Random(f"loop {seed}"), self.most_steps)
        self.disk = Disk(folder, Random(f"disk {seed}"))
        self.disk.written = self._written
        self.weather = Weather(Random(f"weather {seed}"))
        self.outside = Outside(Random(f"outside {seed}"), lambda identity: identity in self._recorded, self.complain)
        self.model = SimulatedModel(Random(f"model {seed}"))
        self.faults: list[str] = []
        self.told: list[str] = []
        self.clients: list[Client] = []
        self._recorded: set[str] = set()
        self._machine = ProcessClock(self.clock)
        self.computers = [Computer("life ", self.loop, self)]
        self._calm = False
        self._limit: asyncio.Timeout | None = None

    def complain(self, fault: str) -> None:
        """A fault ends the world: what comes after it says nothing more."""
        self.faults.append(fault)
        if self._limit is not None:
            self._limit.reschedule(self.loop.time())

    def tell(self, what: str) -> None:
        self.told.append(f"{self.clock.elapsed:10.4f}  {what}")

    # The whole

    async def run(self) -> None:
        calm = _SMALL_CALM_SECONDS if self.small else _CALM_SECONDS
        power = [asyncio.ensure_future(computer.run()) for computer in self.computers]
        storm = asyncio.ensure_future(self._storm())
        for number in range(2 if self.small else self._chance.choice((2, 2, 3))):
            transport = ToHost(self.weather, self.serving)
            tenant = TENANTS[number % len(TENANTS)]
            chance = Random(f"client {number} {self.seed}")
            self.clients.append(Client(f"c{number}", tenant, transport, chance, self.complain))
        try:
            async with asyncio.timeout(_STORM_SECONDS + calm) as self._limit:
                counts = [1 if self.small else self._chance.choice((1, 1, 2)) for _ in self.clients]
                await asyncio.gather(*map(Client.work, self.clients, counts))
                await storm
                await self._settled()
        except TimeoutError:
            self._limit = None
            if not self.faults:
                self.complain(f"V3 in {calm:.0f} calm seconds not everything has ended: {self._open()}")
        storm.cancel()
        for computer in self.computers:
            computer.turn_off()
        await asyncio.gather(*power)
        for computer in self.computers:
            await computer.bury()

    def serving(self) -> Serving | None:
        """Where a request of a client arrives."""
        return self.computers[0].serving

    def ledgers(self) -> AbstractContextManager[None]:
        """Hosts that are opened inside have the world's disk."""
        return simulated_ledgers(self.disk)

    async def _settled(self) -> None:
        """Wait until every run has ended and every webhook is delivered, as the file says."""
        while self._open():
            await asyncio.sleep(5.0)

    def _open(self) -> list[str]:
        with closing(sqlite3.connect(self.disk.folder / "ledger.db")) as db:
            runs = db.execute("SELECT run_id || ' is ' || status FROM runs WHERE ended IS NULL")
            owed = db.execute("SELECT delivery_id || ' is ' || state FROM webhook_outbox")
            events = db.execute("SELECT delivery_id || ' is due' FROM trigger_deliveries WHERE state = 'due'")
            return [text for (text,) in (*runs, *owed, *events)]

    # The machine

    def options(self, process: Process) -> Options:
        self._remember()
        return Options(
            config=CONFIG,
            root=self.disk.folder,
            data=self.disk.folder,
            clock=self._machine,
            randomness=SeededRandomness(f"{self.seed} {self.computers[0].lives}"),
            models={"simulated": self.model},
            retry=RETRY,
            transport=ToOutside(self.weather, self.outside, process),
        )

    def pause(self) -> float:
        return 0.01 + self._chance.random() ** 2 * (0.1 if self._calm else 5.0)

    def excuses(self, problem: Problem) -> bool:
        return not self._calm and problem.key.startswith("ledger_")

    def fate(self) -> int | None:
        self.disk.tears_after = None
        if self._calm or self.computers[0].lives > 4:
            return None
        kind = self._chance.choice(("none", "step", "step", "torn"))
        if kind == "torn":
            self.disk.tears_after = self._chance.randrange(1, 15 if self.small else 40)
        return self._chance.randrange(20, 1000 if self.small else 4000) if kind == "step" else None

    def died(self) -> None:
        self.tell("the machine dies")
        self.disk.lose_power()

    def _remember(self) -> None:
        """Which effects are on record, as the disk has it after a crash."""
        with closing(sqlite3.connect(self.disk.folder / "ledger.db")) as db:
            rows = db.execute(
                "SELECT json_extract(payload, '$.invocationId') FROM records WHERE type = 'forestay.effect.recorded'"
            )
            self._recorded = {identity for (identity,) in rows}

    def _written(self, records: list[Record]) -> None:
        for record in records:
            if record.type == "forestay.effect.recorded":
                self._recorded.add(record.payload["invocationId"])

    # The storm

    async def _storm(self) -> None:
        end = self._chance.random() * (_STORM_SECONDS / 4 if self.small else _STORM_SECONDS)
        while self.clock.elapsed < end:
            await asyncio.sleep(self._chance.random() * 3)
            fault = self._chance.choice(self.troubles())
            self.tell(fault.__name__)
            await fault()
        self._calm = True
        self.weather.calm()
        self.outside.fails = self.model.fails = 0.0
        self.disk.tears_after = None
        for computer in self.computers:
            if computer.process is not None:
                computer.process.dies_after = None
        self.tell("calm")

    def troubles(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return (self._full, self._failing, self._slow, self._set_clock, self._outage)

    async def _full(self) -> None:
        self.disk.full = True
        await asyncio.sleep(self._chance.random() * 3)
        self.disk.full = False

    async def _failing(self) -> None:
        self.disk.failing = True
        await asyncio.sleep(self._chance.random() * 2)
        self.disk.failing = False

    async def _slow(self) -> None:
        self.disk.slow = self._chance.choice((0.05, 1.0))
        await asyncio.sleep(self._chance.random() * 3)
        self.disk.slow = 0.0

    async def _set_clock(self) -> None:
        self._machine.ahead_ms += self._chance.choice((-90_000, -5_000, -40, 40, 5_000, 600_000))

    async def _outage(self) -> None:
        self.outside.fails = self.model.fails = self._chance.choice((0.2, 1.0))
        await asyncio.sleep(self._chance.random() * 4)
        self.outside.fails = self.model.fails = 0.0


def simulate(seed: int, *, small: bool = False) -> Outcome:
    """Live through a seed, and check what is left. A `small` world has fewer clients and a shorter storm."""
    with first_folder() as folder:
        return live(World(seed, folder, small=small))


def live(world: World) -> Outcome:
    """Live through a world, and check what is left."""
    try:
        with world.ledgers(), asyncio.Runner(loop_factory=lambda: world.loop) as runner:
            runner.run(world.run())
    except Stuck as stuck:
        world.complain(f"V3 {stuck}")
    path = world.disk.folder / "ledger.db"
    if not world.faults:
        # Building the tables again takes longer than the rest.
        tables = () if world.small and world.seed % 4 else PROJECTIONS
        world.faults.extend(checker.check(path, world.clients, world.outside, tables))
    digest, records = ("", 0) if world.faults else _digest(path)
    lives = sum(computer.lives for computer in world.computers)
    return Outcome(world.seed, world.faults, digest, records, lives, world.loop.steps, world.told)


def _digest(path: Path) -> tuple[str, int]:
    with closing(sqlite3.connect(path)) as db:
        hashes = [row[0] for row in db.execute("SELECT hash FROM records ORDER BY pos")]
    return hashlib.sha256(b"".join(hashes)).hexdigest()[:16], len(hashes)


@contextmanager
def first_folder() -> Iterator[Path]:
    """A data folder with keys, workflows and webhooks: what every world begins with."""
    first = _first_folder()
    with tempfile.TemporaryDirectory(prefix="forestay-world-", dir=_memory(), ignore_cleanup_errors=True) as name:
        folder = Path(name) / "data"
        shutil.copytree(first.name, folder)
        yield folder


def _memory() -> str | None:
    """Memory in place of a disk, where there is some: what a disk loses is the simulation's affair."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@cache
def _first_folder() -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory(prefix="forestay-first-", dir=_memory())
    clock = ManualClock()

    async def prepare() -> None:
        options = Options(
            config=CONFIG,
            root=Path(made.name),
            data=Path(made.name),
            clock=clock,
            randomness=SeededRandomness(0),
            models={"simulated": SimulatedModel(Random(0))},
            retry=RETRY,
        )
        async with serve_here(options) as serving:
            for document in documents():
                await serving.host.runs.put_workflow(document, tenant=None)
            for tenant in TENANTS:
                await serving.services.keys.create(tenant, tenant=tenant, text=key_of(tenant))
                await serving.host.triggers.subscriptions.subscribe(
                    tenant, "queue", "later", subscription_id=f"sub_{tenant}"
                )
                await serving.host.webhooks.register(tenant, f"https://{tenant}.hooks.example/", WANTED)

    clock.run(prepare())
    return made

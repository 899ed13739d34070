"""U1 to U4: what several processes write one after the other, and what the tasks of one of them know of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator
from typing import ClassVar

import pytest

from forestay.kernel.ledger import Ledger, Locks, Queue
from forestay.kernel.ledger.postgres_server import PgServer
from forestay.kernel.ledger.postgres_workers import PgWorkers
from tests.postgres import new_ledger

KEY = "schedule/one"
QUEUE = Queue("nothing", "id", "family", "worker", "tenant", "q.due <= ?", "q.due < 9")


class Slow(PgWorkers):
    """A process whose question for a key can be held up."""

    asked = threading.Event()
    goes_on = threading.Event()
    asked_for: ClassVar[list[set[str]]] = []

    def hold(self, keys: Collection[str]) -> set[str]:
        self.asked_for.append(set(keys))
        self.asked.set()
        assert self.goes_on.wait(60)
        return super().hold(keys)


@pytest.fixture
def address() -> Iterator[str]:
    address = new_ledger()
    ledger = Ledger.open(address)
    yield address
    ledger.close()


@pytest.fixture
def pair(address: str) -> Iterator[tuple[PgWorkers, PgWorkers]]:
    made = tuple(kind(PgServer(address, lock_timeout=5), name, QUEUE) for kind, name in ((Slow, "a"), (PgWorkers, "b")))
    for worker in made:
        worker.start(lambda beat: None)
    yield made[0], made[1]
    for worker in made:
        worker.close()


@pytest.fixture(autouse=True)
def events() -> None:
    Slow.asked.clear()
    Slow.asked_for.clear()
    Slow.goes_on.set()


async def test_u2a_no_task_goes_on_before_the_process_has_read_what_others_wrote(
    pair: tuple[PgWorkers, PgWorkers],
) -> None:
    locks, reading, read, written = Locks(pair[0]), asyncio.Event(), asyncio.Event(), 0

    async def catch_up() -> None:
        nonlocal written
        reading.set()
        await read.wait()
        written = 7

    async def write() -> int:
        async with locks.at(KEY, catch_up):
            return written

    tasks = [asyncio.create_task(write()) for _ in range(3)]
    await reading.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    read.set()
    assert await asyncio.gather(*tasks) == [7, 7, 7]


async def test_u2a_what_cannot_be_read_leaves_the_key_to_others(pair: tuple[PgWorkers, PgWorkers]) -> None:
    async def broken() -> None:
        raise OSError("the disk is away")

    with pytest.raises(OSError, match="the disk is away"):
        async with Locks(pair[0]).at(KEY, broken):
            raise AssertionError("nothing was read")
    async with Locks(pair[1]).attempt(KEY) as is_ours:
        assert is_ours


async def test_a_task_that_ends_while_it_asks_for_a_key_leaves_it_to_others(pair: tuple[PgWorkers, PgWorkers]) -> None:
    Slow.goes_on.clear()

    async def write() -> None:
        async with Locks(pair[0]).at(KEY):
            raise AssertionError("it was cancelled before")

    task = asyncio.create_task(write())
    await asyncio.to_thread(Slow.asked.wait, 60)
    task.cancel()
    asyncio.get_running_loop().call_soon(Slow.goes_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    async with Locks(pair[1]).attempt(KEY) as is_ours:
        assert is_ours


async def test_one_process_at_a_time_has_a_key(pair: tuple[PgWorkers, PgWorkers]) -> None:
    async with Locks(pair[0]).at(KEY), Locks(pair[1]).attempt(KEY) as is_ours:
        assert not is_ours
    async with Locks(pair[1]).attempt(KEY) as is_ours:
        assert is_ours


async def test_u4_what_is_asked_meanwhile_goes_out_together(pair: tuple[PgWorkers, PgWorkers]) -> None:
    locks, keys = Locks(pair[0]), [f"relay/{number}" for number in range(5)]
    assert await Locks(pair[1]).take([keys[3]])
    Slow.goes_on.clear()
    first = asyncio.create_task(locks.take([KEY]))
    await asyncio.to_thread(Slow.asked.wait, 60)
    others = [asyncio.create_task(locks.take([key])) for key in keys]
    await asyncio.sleep(0)
    others[4].cancel()
    Slow.goes_on.set()
    assert await first == {KEY}
    assert [await task for task in others[:4]] == [{keys[0]}, {keys[1]}, {keys[2]}, frozenset()]
    assert Slow.asked_for == [{KEY}, set(keys)]


async def test_u4_who_asks_a_database_that_is_away_hears_of_it(pair: tuple[PgWorkers, PgWorkers]) -> None:
    locks = Locks(pair[0])
    pair[0].close()
    found = await asyncio.gather(*(locks.take([f"relay/{number}"]) for number in range(3)), return_exceptions=True)
    assert [getattr(item, "key", None) for item in found] == ["state_conflict"] * 3
    await locks.leave([KEY])


async def test_u3_a_process_alone_has_every_key() -> None:
    async with Locks().attempt(KEY) as is_ours:
        assert is_ours

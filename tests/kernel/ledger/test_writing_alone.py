"""A caller that is alone writes by itself, and nothing else changes (A1 to A3)."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from forestay.kernel.ledger import Append, Draft, Ledger, Record, writer
from forestay.kernel.problems import Problem

HERE = threading.get_ident()


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(writer, "_FAST_SECONDS", math.inf)
    monkeypatch.setattr(writer, "_BUSY", math.inf)  # how busy a loop is, is the machine's business
    yield


class Watch:
    """Which thread wrote what."""

    def __init__(self, ledger: Ledger) -> None:
        self.here: list[bool] = []
        ledger.observe(self.saw)

    def saw(self, records: list[Record], seconds: float) -> None:
        self.here.extend([threading.get_ident() == HERE] * len(records))


def one(number: int = 0, text: str = "") -> list[Draft]:
    return [Draft("t", {"n": number, "text": text})]


async def alone(ledger: Ledger) -> None:
    """Append until the ledger has found its caller alone."""
    while ledger._writer._alone < writer._ALONE:
        await ledger.append("run/before", one())


async def until_here(ledger: Ledger, watch: Watch) -> None:
    """Append until the caller writes by itself: the thread may still be about to rest."""
    while not watch.here or not watch.here[-1]:
        await ledger.append("run/before", one())


async def test_a_lone_caller_writes_on_its_own_loop(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        watch = Watch(ledger)
        await alone(ledger)
        assert not any(watch.here[: writer._ALONE])
        await until_here(ledger, watch)
        for number in range(20):
            await ledger.append("run/a", one(number))
        assert all(watch.here[-20:])
        assert [record.payload["n"] for record in await ledger.read("run/a")] == list(range(20))
        assert (await ledger.verify()).ok


async def test_a3_a_slow_disk_a_large_record_and_a_checkpoint_are_for_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        watch = Watch(ledger)
        await alone(ledger)
        await ledger.append("run/a", one(text="x" * 100_000))
        assert watch.here[-1] is False
        await until_here(ledger, watch)
        monkeypatch.setattr(writer, "_FAST_SECONDS", 0.0)
        await ledger.append("run/a", one())  # found slow while it is written
        for _ in range(20):
            await ledger.append("run/a", one())
        assert not any(watch.here[-20:])


async def test_a4_a_loop_that_has_other_work_leaves_writing_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        watch = Watch(ledger)
        await until_here(ledger, watch)
        monkeypatch.setattr(writer, "_BUSY", 0.0)  # whatever it does is too much
        for _ in range(writer._LOOK_AGAIN * 2):
            await ledger.append("run/a", one())
        assert False in watch.here[-writer._LOOK_AGAIN * 2 :]
        watch.here.clear()
        for _ in range(20):
            await ledger.append("run/a", one())
        assert not any(watch.here)


async def test_a3_a_loop_does_not_wait_for_another_process(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        watch = Watch(ledger)
        await until_here(ledger, watch)
        with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            asking = asyncio.ensure_future(ledger.append("run/a", one()))
            for _ in range(5):
                await asyncio.sleep(0)  # the loop goes on
            assert not asking.done()
            other.execute("ROLLBACK")
        assert (await asking)[0].seq == 0
        assert watch.here[-1] is False
        await until_here(ledger, watch)


async def test_a3_the_log_of_sqlite_does_not_grow_without_end(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        watch = Watch(ledger)
        for _ in range(writer._CHECKPOINT_COMMITS * 4):
            await ledger.append("run/a", one(text="x" * 2000))
        assert sum(watch.here) > writer._CHECKPOINT_COMMITS * 3
        size = (tmp_path / "l.db-wal").stat().st_size
        assert size < writer._CHECKPOINT_COMMITS * 2 * 8 * 4096


@pytest.mark.parametrize("seed", range(8))
async def test_a2_what_is_asked_for_first_is_written_first_whoever_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Commits that are awaited, commits that run on, and submissions of this thread, mixed."""
    monkeypatch.setattr(writer, "_ALONE", 1)
    choose = Random(seed)
    async with Ledger.open(tmp_path / "l.db") as ledger:
        watch, asked, running = Watch(ledger), 0, []
        while asked < 400 or not {True, False} <= set(watch.here):  # a busy machine takes longer to be alone
            turn = choose.random()
            if turn < 0.7:
                await ledger.append("run/a", one(asked))
            elif turn < 0.85:
                running.append(asyncio.ensure_future(ledger.append("run/a", one(asked))))
                await asyncio.sleep(0)
            else:
                running.append(asyncio.wrap_future(ledger.submit(Append("run/a", one(asked)))))
            asked += 1
        await asyncio.gather(*running)
        assert [record.payload["n"] for record in await ledger.read("run/a")] == list(range(asked))


async def test_a1_threads_and_a_loop_write_side_by_side(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:

        def press() -> None:
            for number in range(100):
                ledger.submit(Append("run/thread", one(number), number - 1)).result()

        async def ask() -> None:
            for number in range(300):
                await ledger.append("run/loop", one(number), expect=number - 1)

        await asyncio.gather(asyncio.to_thread(press), ask())
        found = await ledger.verify()
        assert found.ok and found.records == 400


async def test_a_refusal_and_a_failing_disk_are_told_as_ever(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        await alone(ledger)
        with pytest.raises(Problem) as caught:
            await ledger.append("run/a", one(), expect=5)
        assert caught.value.key == "ledger_conflict"
        await ledger.append("run/a", one(), expect=-1)
        connection = ledger._writer._connection
        assert connection is not None
        connection.close()
        with pytest.raises(Problem):
            await ledger.append("run/a", one())
        assert (await ledger.append("run/a", one()))[0].seq == 1


async def test_an_interrupt_leaves_nothing_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        await until_here(ledger, Watch(ledger))
        writing = ledger._writer

        def interrupted(*_: object) -> list[Record]:
            raise KeyboardInterrupt

        asking = ledger.append("run/a", one())
        asking.send(None)  # it has asked; what the loop would do next is done here
        with monkeypatch.context() as patch:
            patch.setattr(writing, "_append_all", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writing._write_here()
        asking.close()
        assert (await ledger.append("run/a", one()))[0].seq == 0


async def test_what_waits_for_its_loop_is_written_when_the_ledger_closes(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "l.db")
    await until_here(ledger, Watch(ledger))
    waiting = asyncio.ensure_future(ledger.append("run/a", one()))
    await asyncio.sleep(0)  # it has asked, and its turn on the loop is yet to come
    ledger.close()
    assert (await waiting)[0].seq == 0
    with pytest.raises(Problem) as caught:
        await ledger.append("run/a", one())
    assert caught.value.key == "ledger_closed"


async def test_a_follower_on_the_same_loop_sees_it_live(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        await alone(ledger)
        seen = []

        async def follow() -> None:
            async for record in ledger.follow("run/a"):
                seen.append(record.payload["n"])
                if len(seen) == 10:
                    return

        following = asyncio.ensure_future(follow())
        for number in range(10):
            await ledger.append("run/a", one(number))
        await following
        assert seen == list(range(10))

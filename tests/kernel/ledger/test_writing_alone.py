"""A caller that is alone writes by itself, and nothing else changes (A1 to A4)."""

from __future__ import annotations

import asyncio
import math
import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from forestay.kernel.ledger import Append, Record, lone_writer
from forestay.kernel.ledger.sqlite import SqliteLedger
from forestay.kernel.ledger.sqlite_writer import SqliteWriter
from forestay.kernel.problems import Problem
from tests.kernel.ledger.writing import one, write_side_by_side

HERE = threading.get_ident()


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast the disk and how busy the machine is, must not decide who writes."""
    monkeypatch.setattr(lone_writer, "_FAST_SECONDS", math.inf)
    monkeypatch.setattr(lone_writer, "_BUSY_SECONDS", math.inf)


class Watch:
    """Which thread wrote what."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.here: list[bool] = []
        ledger.observe(self.saw)

    def saw(self, records: list[Record], _seconds: float) -> None:
        self.here.extend([threading.get_ident() == HERE] * len(records))


async def until_here(ledger: SqliteLedger, watch: Watch) -> None:
    """Append until the caller writes by itself, and would do so at once: the thread may still be about to rest."""
    while not watch.here or not watch.here[-1] or ledger._writer._own >= lone_writer._IN_A_ROW:
        await ledger.append("run/before", one())


async def test_a_lone_caller_writes_on_its_own_loop(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        watch = Watch(ledger)
        for _ in range(lone_writer._ALONE):
            await ledger.append("run/before", one())
        assert not any(watch.here)
        await until_here(ledger, watch)
        for number in range(20):
            await ledger.append("run/a", one(number))
        assert all(watch.here[-20:])
        assert [record.payload["n"] for record in await ledger.read("run/a")] == list(range(20))
        assert (await ledger.verify()).ok


async def test_a3_a_large_record_and_what_comes_after_a_slow_one_are_for_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        watch = Watch(ledger)
        await until_here(ledger, watch)
        await ledger.append("run/a", one(text="x" * 100_000))
        assert watch.here[-1] is False
        await until_here(ledger, watch)
        monkeypatch.setattr(lone_writer, "_FAST_SECONDS", 0.0)
        await ledger.append("run/a", one())  # found slow while it is written
        monkeypatch.setattr(lone_writer, "_FAST_SECONDS", math.inf)
        for _ in range(lone_writer._AFTER_A_SLOW_ONE):
            await ledger.append("run/a", one())
        assert not any(watch.here[-lone_writer._AFTER_A_SLOW_ONE :])


async def test_a3_others_go_first_after_a_few_writes(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        await until_here(ledger, Watch(ledger))
        turns = []

        async def other() -> None:
            while len(turns) < 2:
                turns.append(ledger._writer._own)
                await asyncio.sleep(0)

        running = asyncio.ensure_future(other())
        asked = 0
        while not running.done():
            await ledger.append("run/a", one())
            asked += 1
        assert asked <= 2 * lone_writer._IN_A_ROW + 1


async def test_a3_a_loop_does_not_wait_for_another_process(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
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


async def test_a3_checkpoints_are_for_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_here: list[bool] = []
    real = SqliteWriter._checkpoint

    def checkpoint(self: SqliteWriter) -> None:
        made_here.append(threading.get_ident() == HERE)
        real(self)

    monkeypatch.setattr(SqliteWriter, "_checkpoint", checkpoint)
    monkeypatch.setattr(SqliteWriter, "checkpoint_commits", 16)
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        watch = Watch(ledger)
        for _ in range(400):
            await ledger.append("run/a", one(text="x" * 2000))
        assert any(watch.here)
    assert len(made_here) >= 400 // (16 + lone_writer._IN_A_ROW) and not any(made_here)


async def test_a4_a_loop_that_has_other_work_leaves_writing_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        watch = Watch(ledger)
        await until_here(ledger, watch)
        monkeypatch.setattr(lone_writer, "_BUSY_SECONDS", 0.0)  # whatever it does is too much
        for _ in range(lone_writer._IN_A_ROW + 1):
            await ledger.append("run/a", one())
        watch.here.clear()
        for _ in range(2 * lone_writer._ALONE):
            await ledger.append("run/a", one())
        assert not any(watch.here)


async def test_a4_bytes_that_wait_in_a_socket_go_first(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        watch, found = Watch(ledger), []
        await until_here(ledger, watch)
        ledger._writer._own = lone_writer._IN_A_ROW
        near, far = socket.socketpair()
        with near, far:
            loop = asyncio.get_running_loop()
            loop.add_reader(near, lambda: found.append(near.recv(1)) or found.append(len(watch.here)))
            far.send(b"x")
            before = len(watch.here)
            await ledger.append("run/a", one())
            loop.remove_reader(near)
        assert found == [b"x", before] and watch.here[-1]


async def test_a4_who_comes_while_another_waits_is_written_with_it_and_by_the_thread_from_then_on(
    tmp_path: Path,
) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        watch, commits = Watch(ledger), []
        await until_here(ledger, watch)
        ledger._writer._own = lone_writer._IN_A_ROW
        ledger.observe(lambda records, _: commits.append((len(records), threading.get_ident() == HERE)))
        await asyncio.gather(ledger.append("run/a", one()), ledger.append("run/b", one()))
        for _ in range(lone_writer._ALONE):
            await ledger.append("run/a", one())
        assert sum(count for count, _ in commits) == lone_writer._ALONE + 2
        assert not any(here for _, here in commits)


async def test_who_comes_in_the_same_turn_shares_the_commit(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        watch, commits = Watch(ledger), []
        await until_here(ledger, watch)
        ledger.observe(lambda records, _: commits.append(len(records)))
        await asyncio.gather(*(ledger.append(f"run/{number}", one()) for number in range(50)))
        assert sum(commits) == 50 and len(commits) <= lone_writer._IN_A_ROW + 2


@pytest.mark.parametrize("seed", range(8))
async def test_a2_what_is_asked_for_first_is_written_first_whoever_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Commits that are awaited, commits that run on, and submissions of this thread, at once and for later, mixed."""
    monkeypatch.setattr(lone_writer, "_ALONE", 1)
    monkeypatch.setattr(lone_writer, "_IN_A_ROW", 2)
    choose = Random(seed)
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        watch, asked, running = Watch(ledger), 0, []
        while asked < 400 or not {True, False} <= set(watch.here):  # a busy machine takes longer to be alone
            turn = choose.random()
            if turn < 0.7:
                await ledger.append("run/a", one(asked))
            elif turn < 0.85:
                running.append(asyncio.ensure_future(ledger.append("run/a", one(asked))))
                await asyncio.sleep(0)
            else:
                later = ledger.submit(Append("run/a", one(asked)), later=turn > 0.95)
                running.append(asyncio.wrap_future(later))
            asked += 1
        ledger.write_now()
        await asyncio.gather(*running)
        assert [record.payload["n"] for record in await ledger.read("run/a")] == list(range(asked))


async def test_a1_threads_and_a_loop_write_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lone_writer, "_ALONE", 1)
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        await write_side_by_side(ledger)


async def test_a_refusal_and_a_failing_disk_are_told_as_ever(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        await until_here(ledger, Watch(ledger))
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


@pytest.mark.parametrize("row", [1, 2])
async def test_an_interrupt_leaves_nothing_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: int) -> None:
    """In the caller itself, and where the others went first."""
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        await until_here(ledger, Watch(ledger))
        writer = ledger._writer
        writer._own = row
        monkeypatch.setattr(lone_writer, "_IN_A_ROW", 2)

        def interrupted(*_: object) -> list[Record]:
            raise KeyboardInterrupt

        asking = ledger.append("run/a", one())
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_append_all", interrupted)
            with pytest.raises(KeyboardInterrupt):
                asking.send(None)
                writer._others_went()  # what the loop would do next
        asking.close()
        assert (await ledger.append("run/a", one()))[0].seq == 0


async def test_what_waits_for_its_loop_is_written_when_the_ledger_closes(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(tmp_path / "l.db")
    await until_here(ledger, Watch(ledger))
    ledger._writer._own = lone_writer._IN_A_ROW
    waiting = asyncio.ensure_future(ledger.append("run/a", one()))
    await asyncio.sleep(0)  # it has asked, and its turn on the loop is yet to come
    ledger.close()
    assert (await waiting)[0].seq == 0
    with pytest.raises(Problem) as caught:
        await ledger.append("run/a", one())
    assert caught.value.key == "ledger_closed"


async def test_who_is_cancelled_while_the_others_go_first_takes_nothing_back(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        await until_here(ledger, Watch(ledger))
        ledger._writer._own = lone_writer._IN_A_ROW
        asking = asyncio.ensure_future(ledger.append("run/a", one()))
        await asyncio.sleep(0)
        asking.cancel()
        assert (await ledger.append("run/a", one()))[0].seq == 1
        assert asking.cancelled()


async def test_l8_a_follower_on_the_same_loop_sees_it_live(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        await until_here(ledger, Watch(ledger))
        seen = []

        async def follow() -> None:
            async for record in ledger.follow("run/a"):
                seen.append(record.payload["n"])
                if len(seen) == 20:
                    return

        following = asyncio.ensure_future(follow())
        for number in range(20):
            await ledger.append("run/a", one(number))
        await following
        assert seen == list(range(20))

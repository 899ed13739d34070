"""The one writer: order, answers and the size of SQLite's log, for callers on loops and on threads."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from forestay.kernel.ledger import Append, Ledger
from forestay.kernel.ledger.records import Record
from forestay.kernel.ledger.sqlite import SqliteLedger
from forestay.kernel.ledger.sqlite_writer import SqliteWriter
from forestay.kernel.problems import Problem
from tests.kernel.ledger.conftest import Address
from tests.kernel.ledger.writing import one, write_side_by_side


async def test_a_loop_goes_on_while_another_process_writes(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            asking = asyncio.ensure_future(ledger.append("run/a", one()))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not asking.done()
            other.execute("ROLLBACK")
        assert (await asking)[0].seq == 0


async def test_the_log_of_sqlite_does_not_grow_without_end(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        for _ in range(SqliteWriter.checkpoint_commits * 4):
            await ledger.append("run/a", one(text="x" * 2000))
        size = (tmp_path / "l.db-wal").stat().st_size
        assert size < SqliteWriter.checkpoint_commits * 2 * 8 * 4096


async def test_a_ledger_that_was_closed_is_whole_in_its_file(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        await ledger.append("run/a", one())
        await ledger.position()  # a reader is open when the writer goes
    (tmp_path / "copy.db").write_bytes((tmp_path / "l.db").read_bytes())  # without the write-ahead log
    async with SqliteLedger.open(tmp_path / "copy.db") as copy:
        assert (await copy.head("run/a")).seq == 0


@pytest.mark.parametrize("seed", range(4))
async def test_l7_what_is_asked_for_first_is_written_first(address: Address, seed: int) -> None:
    """Commits that are awaited, commits that run on, and submissions of this thread, mixed."""
    choose = Random(seed)
    async with Ledger.open(address("l")) as ledger:
        running = []
        for number in range(300):
            turn = choose.random()
            if turn < 0.4:
                await ledger.append("run/a", one(number))
            elif turn < 0.7:
                running.append(asyncio.ensure_future(ledger.append("run/a", one(number))))
                await asyncio.sleep(0)
            else:
                running.append(asyncio.wrap_future(ledger.submit(Append("run/a", one(number)))))
        await asyncio.gather(*running)
        assert [record.payload["n"] for record in await ledger.read("run/a")] == list(range(300))


async def test_threads_and_a_loop_write_side_by_side(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        await write_side_by_side(ledger)


async def test_l9_a_connection_that_failed_is_replaced(tmp_path: Path) -> None:
    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        await ledger.append("run/a", one())
        connection = ledger._writer._connection
        assert connection is not None
        ledger._writer._connection = Failing(connection)  # type: ignore[assignment]
        with pytest.raises(Problem) as caught:
            await ledger.append("run/a", one())
        assert caught.value.key == "ledger_io"
        assert (await ledger.append("run/a", one()))[0].seq == 1


class Failing:
    """A connection whose disk fails when a transaction ends."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.cursor, self.close, self._execute = connection.cursor, connection.close, connection.execute

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return self._execute(sql, *values)


async def test_what_is_waiting_is_written_when_the_ledger_closes(address: Address) -> None:
    ledger = Ledger.open(address("l"))
    waiting = [asyncio.ensure_future(ledger.append("run/a", one(number))) for number in range(20)]
    await asyncio.sleep(0)
    ledger.close()
    assert [records[0].seq for records in await asyncio.gather(*waiting)] == list(range(20))
    with pytest.raises(Problem) as caught:
        await ledger.append("run/a", one())
    assert caught.value.key == "ledger_closed"


@pytest.mark.parametrize("end", ["commit", "write_now", "close"])
async def test_what_is_submitted_for_later_is_written_in_front_of_what_comes_next(tmp_path: Path, end: str) -> None:
    ledger = Ledger.open(tmp_path / "l.db")
    waiting = ledger.submit(Append("run/a", one(1)), later=True)
    assert await ledger.read("run/a") == [], "nothing was written yet"
    if end == "commit":
        await ledger.append("run/b", one(2))
        assert waiting.done(), "it came first"
    elif end == "write_now":
        ledger.write_now()
    else:
        await asyncio.to_thread(ledger.close)
    (written,) = await asyncio.to_thread(waiting.result, 60)
    assert (written.stream, written.seq) == ("run/a", 0)
    ledger.close()


async def test_who_watches_and_fails_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []

    def watch(records: list[Record], _seconds: float) -> None:
        told.append(len(records))
        raise ValueError("no")

    async with SqliteLedger.open(tmp_path / "l.db") as ledger:
        ledger.observe(watch)
        assert [(await ledger.append("run/a", one()))[0].seq for _ in range(3)] == [0, 1, 2]
    assert told == [1]
    assert "it is not called again" in caplog.text

"""Measures the parts of one task's append, without a disk: `python -m benchmarks.append_parts`.

The files are in memory (/dev/shm), so that only the processor's work remains. The parts run in short stretches that
take turns, and the best stretch of each counts. The wait of a commit for the disk is not in it; it is the same for all.
"""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.kernel import PAYLOAD
from benchmarks.measure import duration
from forestay.kernel import Draft
from forestay.kernel.ledger import lone_writer, tables
from forestay.kernel.ledger.records import GENESIS
from forestay.kernel.ledger.sqlite import SqliteLedger
from forestay.kernel.ledger.sqlite_file import SqliteFile

_STRETCHES, _EACH = 100, 40
_CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
Work = Callable[[], Awaitable[object]]


class Nothing:
    """A connection and a cursor that do nothing."""

    def execute(self, *_: object) -> Nothing:
        return self

    def executemany(self, *_: object) -> Nothing:
        return self

    def cursor(self) -> Nothing:
        return self

    def fetchall(self) -> list[Any]:
        return []

    def fetchone(self) -> tuple[int]:
        return (1,)


async def parts(folder: Path) -> dict[str, float]:
    """Return the seconds of each way to append."""
    lone_writer._FAST_SECONDS = lone_writer._BUSY_SECONDS = math.inf  # a busy machine must not decide the way
    plain = _plain(folder / "plain.db")
    ours = SqliteFile(folder / "statements.db", lock_timeout=5)
    ours.create()
    with closing(plain), closing(ours.writer()) as connection:
        async with (
            SqliteLedger.open(folder / "thread.db") as thread,
            SqliteLedger.open(folder / "alone.db") as alone,
            SqliteLedger.open(folder / "nothing.db") as nothing,
        ):
            for ledger in (alone, nothing):
                await _appended(ledger, 2 * lone_writer._ALONE)
            real, nothing._writer._connection = nothing._writer._connection, Nothing()  # type: ignore[assignment]
            nothing._writer._data_version = 1
            thread._writer._alone = -(1 << 62)
            found = await _turns(
                {
                    "plain sqlite3: one insert a commit": _each(lambda: _insert(plain)),
                    "the ledger's statements alone": _each(_statements(connection)),
                    "the ledger without its statements": lambda: _appended(nothing),
                    "a turn of the event loop": _loop_turns,
                    "an append by a lone caller": lambda: _appended(alone),
                    "an append through the thread": lambda: _appended(thread),
                },
                lambda: [item.execute(_CHECKPOINT).fetchall() for item in (plain, connection)],
            )
            nothing._writer._connection = real
    return found


async def _turns(works: dict[str, Work], between: Callable[[], object]) -> dict[str, float]:
    best = dict.fromkeys(works, math.inf)
    for _ in range(_STRETCHES):
        for name, work in works.items():
            between()
            started = time.perf_counter()
            await work()
            best[name] = min(best[name], (time.perf_counter() - started) / _EACH)
    return best


def _each(work: Callable[[], object]) -> Work:
    async def stretch() -> None:
        for _ in range(_EACH):
            work()

    return stretch


async def _loop_turns() -> None:
    for _ in range(_EACH):
        await asyncio.sleep(0)


async def _appended(ledger: SqliteLedger, count: int = _EACH) -> None:
    for _ in range(count):
        await ledger.append("run/a", [Draft("bench.event", PAYLOAD)])


def _plain(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, stream TEXT, payload TEXT)")
    return connection


def _insert(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO t (stream, payload) VALUES (?, ?)", ("run/a", json.dumps(PAYLOAD)))
    connection.execute("COMMIT")


def _statements(connection: sqlite3.Connection) -> Callable[[], None]:
    stream, seq, payload = tables.make_stream(connection, "run/a"), 0, json.dumps(PAYLOAD).encode()

    def once() -> None:
        nonlocal seq
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("PRAGMA data_version").fetchone()
        tables.insert_records(connection, [(stream, seq, "0" * 26, "bench.event", 1, payload, None, GENESIS)])
        tables.move_heads(connection, [(seq, GENESIS, stream)])
        connection.execute("COMMIT")
        seq += 1

    return once


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for name, seconds in asyncio.run(parts(Path(folder))).items():
            print(f"{name}: {duration(seconds)}")


if __name__ == "__main__":
    main()

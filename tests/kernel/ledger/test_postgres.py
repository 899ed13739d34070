"""What only a database of many processes can do wrong (P1 to P3): gaps, lost hints, dead connections, locks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from forestay.kernel.ledger import Append, Draft, Ledger, Record, Transaction, postgres_batch, postgres_writer
from forestay.kernel.ledger.postgres import PgLedger
from forestay.kernel.ledger.postgres_dialect import Connection
from forestay.kernel.ledger.postgres_hints import Hints
from forestay.kernel.ledger.postgres_server import PgServer
from forestay.kernel.problems import Problem
from tests.postgres import new_ledger, server_address


@pytest.fixture
def address() -> str:
    return new_ledger()


@contextmanager
def beside(address: str) -> Iterator[Connection]:
    """Another connection to the ledger's tables."""
    with PgServer(address, lock_timeout=1).connect() as connection:
        yield connection


def one(number: int = 0) -> list[Draft]:
    return [Draft("t", {"n": number})]


def end_connections(address: str) -> int:
    """Have the server end every connection of ledgers but the one that asks, as an administrator would."""
    with beside(address) as other:
        rows = other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND application_name = 'forestay' AND datname = current_database()"
        ).fetchall()
    return len(rows)


WRITER = """
import asyncio, random, sys
from forestay.kernel.ledger import Append, Draft, Ledger

async def main(address, seed):
    chance = random.Random(seed)
    async with Ledger.open(address) as ledger:
        async def write(task):
            for number in range(40):
                streams = chance.sample(range(6), chance.choice([1, 1, 2, 3]))
                await ledger.commit(*(Append(f"run/{s}", [Draft("t", [seed, task, number])]) for s in streams))
        await asyncio.gather(*(write(task) for task in range(4)))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_l8_who_follows_everything_misses_nothing_of_four_processes(address: str) -> None:
    async with Ledger.open(address) as ledger:
        writers = [subprocess.Popen([sys.executable, "-c", WRITER, address, str(seed)]) for seed in range(4)]
        seen: dict[str, list[int]] = {}
        count, following = 0, ledger.follow_all("run/", 0)
        waiting = asyncio.ensure_future(asyncio.to_thread(lambda: [writer.wait() for writer in writers]))
        while not waiting.done():
            (_, record) = await anext(following)
            seen.setdefault(record.stream, []).append(record.seq)
            count += 1
            if count >= 640 and (await ledger.verify()).records == count:
                break
        assert await waiting == [0, 0, 0, 0]
        total = (await ledger.verify()).records
        while count < total:
            (_, record) = await anext(following)
            seen.setdefault(record.stream, []).append(record.seq)
            count += 1
        await following.aclose()
        heads = await ledger.streams("run/")
        assert seen == {stream: list(range(head.seq + 1)) for stream, head in heads.items()}
        assert (await ledger.verify()).ok


async def test_p2_nothing_is_shown_behind_a_transaction_that_still_runs(address: str) -> None:
    async with Ledger.open(address) as ledger:
        await ledger.append("run/a", one(0))
        with beside(address) as slow, slow.transaction():
            slow.execute("SELECT pg_current_xact_id()")
            await ledger.append("run/a", one(1))
            assert [record.payload["n"] for _, record in await ledger.read_all()] == [0]
            assert [record.payload["n"] for record in await ledger.read("run/a")] == [0, 1]
            following = ledger.follow_all("run/", await ledger.position())
            waiting = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0.2)
            assert not waiting.done()
        assert (await waiting)[1].payload == {"n": 1}
        await following.aclose()


async def test_another_process_is_followed_without_polling(address: str) -> None:
    async with Ledger.open(address) as ours, Ledger.open(address) as theirs:
        stream, everything = ours.follow("run/a"), ours.follow_all("run/", 0)
        for seq, writer in enumerate([theirs, ours, theirs, theirs, ours]):
            await writer.append("run/a", one())
            assert (await anext(stream)).seq == seq
            assert (await anext(everything))[1].seq == seq
        await stream.aclose()
        await everything.aclose()


async def test_a_lost_hint_is_made_good_by_the_look(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hints, "tell", lambda *_: None)
    async with Ledger.open(address) as ours, Ledger.open(address) as theirs:
        following = ours.follow("run/a")
        waiting = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0.1)
        await theirs.append("run/a", one())
        assert (await waiting).seq == 0
        await following.aclose()


async def test_l9_a_server_that_ends_its_connections_is_found_again(address: str) -> None:
    async with Ledger.open(address) as ledger:
        await ledger.append("run/a", one(0))
        following = ledger.follow("run/a")
        await anext(following)
        assert end_connections(address) >= 3
        assert (await ledger.append("run/a", one(1)))[0].seq == 1  # nothing was under way: no caller notices
        assert len(await ledger.read("run/a")) == 2
        assert (await anext(following)).seq == 1
        await following.aclose()


async def test_l2_what_was_acknowledged_outlives_connections_that_are_cut_at_any_moment(address: str) -> None:
    async with Ledger.open(address) as ledger:
        acknowledged: set[tuple[str, int, str]] = set()
        refused: list[Problem] = []
        done = threading.Event()

        def cut() -> None:
            while not done.wait(0.03):
                end_connections(address)

        async def write(task: int) -> None:
            for number in range(60):
                try:
                    records = await ledger.commit(Append(f"run/{task}", one(number)), Append("audit", one(number)))
                except Problem as problem:
                    refused.append(problem)
                else:
                    acknowledged.update((record.stream, record.seq, record.hash) for record in records)

        cutting = asyncio.ensure_future(asyncio.to_thread(cut))
        await asyncio.gather(*(write(task) for task in range(8)))
        done.set()
        await cutting
        assert {problem.key for problem in refused} <= {"ledger_unreachable", "ledger_io"}
        assert acknowledged
        found = await ledger.verify()
        assert found.ok, found.faults
        present = {(r.stream, r.seq, r.hash) for stream in await ledger.streams() for r in await ledger.read(stream)}
        assert acknowledged <= present


async def test_an_import_whose_connection_was_cut_is_refused_and_not_tried_again_with_no_lines(address: str) -> None:
    async with Ledger.open(new_ledger()) as source:
        await source.append("run/a", one() * 3)
        lines = [line async for line in source.export()]

    def cut() -> Iterator[bytes]:
        yield lines[0]
        end_connections(address)
        yield from lines[1:]

    async with Ledger.open(address) as ledger:
        await ledger.append("run/b", one())
        with pytest.raises(Problem) as caught:
            await ledger.import_lines(cut())
        assert caught.value.key == "ledger_unreachable"
        assert await ledger.read("run/a") == []
        assert await ledger.import_lines(lines) == 3


async def test_a_stream_that_another_holds_is_a_problem_and_then_works_again(address: str) -> None:
    async with PgLedger.open(address, lock_timeout=0.05) as ledger:
        with beside(address) as other, other.transaction():
            other.execute("SELECT pg_advisory_xact_lock(%s)", (ledger._server.lock("run/a"),))
            with pytest.raises(Problem) as caught:
                await ledger.append("run/a", one())
            assert (caught.value.key, caught.value.row.retryable) == ("ledger_locked", True)
            await ledger.append("run/b", one())  # other streams go on
        assert (await ledger.append("run/a", one()))[0].seq == 0


async def test_a_writer_that_stands_still_with_locks_is_ended_by_the_server(address: str) -> None:
    """As a process that was stopped between the locks and the commit."""
    async with PgLedger.open(address) as ledger:
        stopped = ledger._server.writer()
        stopped.execute("SELECT pg_advisory_xact_lock(%s)", (ledger._server.lock("run/a"),))
        assert (await ledger.append("run/a", one()))[0].seq == 0  # after two seconds, before the lock's five
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            stopped.execute("SELECT 1")
        stopped.close()


class Crossing:
    """A projection whose rows two processes write in opposite order."""

    name, version, prefix = "crossing", 1, "run/"
    schema = "CREATE TABLE crossing (name TEXT PRIMARY KEY, total BIGINT NOT NULL)"

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        names = ["x", "y"] if records[0].stream == "run/a" else ["y", "x"]
        sql = "INSERT INTO crossing VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET total = crossing.total + 1"
        tx.executemany(sql, [(name,) for _ in records for name in names])


async def test_l6_a_deadlock_between_processes_is_tried_again(address: str) -> None:
    quick = f"{address}&options=-cdeadlock_timeout%3D10ms"
    async with (
        Ledger.open(quick, projections=[Crossing()]) as ours,
        Ledger.open(quick, projections=[Crossing()]) as theirs,
    ):

        async def write(ledger: Ledger, stream: str) -> None:
            for number in range(40):
                await ledger.append(stream, one(number), expect=number - 1)

        await asyncio.gather(write(ours, "run/a"), write(theirs, "run/b"))
        assert await ours.query("SELECT name, total FROM crossing ORDER BY name") == [("x", 80), ("y", 80)]


async def test_positions_go_on_rising_after_a_restore(address: str) -> None:
    """A restored ledger lies on a server whose transactions have lower numbers."""
    async with Ledger.open(address) as ledger:
        await ledger.append("run/a", one(0))
    with beside(address) as other:
        other.execute("DROP TRIGGER records_stay ON records")  # a restore writes them anew
        other.execute("UPDATE records SET pos = pos + (CAST(1 AS BIGINT) << 45)")
    async with Ledger.open(address) as ledger:
        await ledger.append("run/a", one(1))
        await ledger.append("run/b", one(2))
        assert [record.payload["n"] for _, record in await ledger.read_all()] == [0, 1, 2]
        assert await ledger.position() > 1 << 45


async def test_processes_that_open_a_new_ledger_at_once_do_not_race(address: str) -> None:
    opened = await asyncio.gather(
        *(asyncio.to_thread(Ledger.open, address, projections=[Crossing()]) for _ in range(4)), return_exceptions=True
    )
    ledgers = [item for item in opened if not isinstance(item, BaseException)]
    for number, ledger in enumerate(ledgers):
        await ledger.append(f"run/{number}", one())
    for ledger in ledgers:
        await asyncio.to_thread(ledger.close)
    assert len(ledgers) == 4, opened


async def test_a_database_that_may_not_be_written_is_read(address: str) -> None:
    async with Ledger.open(address) as ledger:
        await ledger.append("run/a", one())
    async with Ledger.open(f"{address}&options=-cdefault_transaction_read_only%3Don") as ledger:
        assert ledger.read_only
        with pytest.raises(Problem) as caught:
            await ledger.append("run/a", one())
        assert caught.value.key == "ledger_read_only"
        assert len(await ledger.read("run/a")) == 1


async def test_more_streams_than_the_server_has_locks_for(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_writer, "_MOST_LOCKS", 5)
    async with Ledger.open(address) as ledger:
        await ledger.commit(*(Append(f"run/{number}", one()) for number in range(8)))
        await ledger.append("run/0", one())
        assert (await ledger.verify()).records == 9


async def test_a_transaction_with_too_many_records_is_refused_whole(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_batch, "PLACES", 2)
    async with Ledger.open(address) as ledger:
        with pytest.raises(Problem) as caught:
            await ledger.append("run/a", one() * 5)
        assert (caught.value.key, caught.value.details["limit"]) == ("payload_too_large", 4)
        assert await ledger.read("run/a") == []


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("postgresql://someone:hush@127.0.0.1:1/none", "ledger_unreachable"),
        ("postgresql://127.0.0.1:1/none?schema=Not+a+Name", "config_invalid"),
    ],
)
def test_a_wrong_address_is_a_problem_that_keeps_the_password(wrong: str, key: str) -> None:
    with pytest.raises(Problem) as caught:
        Ledger.open(wrong)
    details: dict[str, Any] = caught.value.details
    assert caught.value.key == key
    assert "hush" not in f"{caught.value.message} {details}"


async def test_a_schema_of_a_newer_version_is_refused(address: str) -> None:
    Ledger.open(address).close()
    with beside(address) as other:
        other.execute("INSERT INTO migrations VALUES (999, 998)")
    with pytest.raises(Problem) as caught:
        Ledger.open(address)
    assert caught.value.key == "migration_unsupported"


async def test_a_follower_of_some_streams_rests_while_only_others_are_written(address: str) -> None:
    """What is behind its position is not its own: it must not take it for something that is about to be shown."""
    async with Ledger.open(address) as ledger:
        await ledger.append("run/r", [Draft("run.started")])
        following = ledger.follow_all("run/", 0)
        position, _ = await anext(following)
        await ledger.append("engine/host", [Draft("engine.beat")])
        assert isinstance(ledger, PgLedger)
        assert not await ledger._hidden("run/", position)
        assert await ledger._hidden("", position)
        await following.aclose()


def cut_all() -> None:
    """End every connection of every ledger, as a server that is started again does."""
    with psycopg.connect(server_address()) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'forestay'"
        )


async def test_who_lost_its_connection_is_not_the_only_one_any_more(address: str) -> None:
    """Its appends went through the connection that held the ledger: another host has it now, so it writes nothing."""
    async with PgLedger.open(address, sole=True, lock_timeout=0.2) as first:
        await first.append("a", [Draft("one")])
        with pytest.raises(Problem) as refused:
            PgLedger.open(address, sole=True, lock_timeout=0.2)
        assert refused.value.key == "state_conflict"
        cut_all()
        async with PgLedger.open(address, sole=True, lock_timeout=0.2) as second:
            await second.append("a", [Draft("two")])
            with pytest.raises(Problem) as late:
                await first.append("a", [Draft("three")])
            assert late.value.key == "state_conflict"
            assert len(await first.read("a")) == 2, "it may still read"
        await first.append("a", [Draft("four")])  # the other one is gone
        assert [record.type for record in await first.read("a")] == ["one", "two", "four"]

"""What a writer on PostgreSQL does with what it remembers of streams that others write to as well (P3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from forestay.kernel.ledger import Append, Draft, Ledger, Record, Transaction
from forestay.kernel.ledger.postgres_pipe import Pipe, Statement
from forestay.kernel.problems import Problem
from tests.postgres import new_ledger, server_address


@pytest.fixture
def address() -> str:
    return new_ledger()


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each round trip of a writer: how many statements it carried."""
    found: list[int] = []
    run = Pipe.run

    def counted(pipe: Pipe, statements: Sequence[Statement]) -> list[list[bytes]]:
        if not any("pg_notify" in statement.text for statement in statements):
            found.append(len(statements))
        return run(pipe, statements)

    monkeypatch.setattr(Pipe, "run", counted)
    return found


def one(number: int = 0) -> list[Draft]:
    return [Draft("t", {"n": number})]


async def test_p3_a_known_stream_is_one_round_trip_and_an_unknown_one_two(address: str, trips: list[int]) -> None:
    async with Ledger.open(address) as ledger:
        await ledger.append("run/a", one(0))
        assert len(trips) == 2
        await ledger.append("run/a", one(1), expect=0)
        await ledger.append("run/a", one(2))
        assert len(trips) == 4
        await ledger.append("run/new", one(0), expect=-1)
        assert len(trips) == 6, "the first new stream has numbers fetched for many"
        await ledger.append("run/newer", one(0), expect=-1)
        await ledger.commit(Append("run/new", one(1)), Append("run/a", one(3)))
        assert len(trips) == 8
        assert (await ledger.verify()).records == 7


async def test_p3_a_stream_that_others_write_to_is_asked_for(address: str, trips: list[int]) -> None:
    async with Ledger.open(address) as ours, Ledger.open(address) as theirs:
        await ours.append("run/a", one(0))
        await theirs.append("run/a", one(1))
        assert (await ours.append("run/a", one(2)))[0].seq == 2
        assert len(trips) == 2 + 2 + 4, "a guess that was refused and rolled back, then the question"
        await theirs.append("run/a", one(3))
        del trips[:]
        assert (await ours.append("run/a", one(4)))[0].seq == 4
        assert len(trips) == 2, "it does not guess again"
        assert (await ours.verify()).ok


async def test_l4_what_is_expected_is_held_against_the_truth(address: str) -> None:
    async with Ledger.open(address) as ours, Ledger.open(address) as theirs:
        await ours.append("run/a", one(0))
        await theirs.append("run/a", one(1))
        with pytest.raises(Problem) as caught:
            await ours.append("run/a", one(9), expect=0)  # as it remembers the stream
        assert (caught.value.key, caught.value.details["actual"]) == ("ledger_conflict", 1)
        assert (await ours.append("run/a", one(2), expect=1))[0].seq == 2
        await theirs.append("run/b", one(0))
        with pytest.raises(Problem) as caught:
            await ours.append("run/b", one(9), expect=-1)  # which it believes to be new
        assert (caught.value.key, caught.value.details["actual"]) == ("ledger_conflict", 0)
        assert [record.payload["n"] for record in await ours.read("run/a")] == [0, 1, 2]


async def test_l4_a_stream_that_is_only_looked_at_is_asked_for(address: str) -> None:
    async with Ledger.open(address) as ours, Ledger.open(address) as theirs:
        await ours.append("run/a", one(0))
        await ours.append("run/b", one(0))
        await theirs.append("run/a", one(1))
        with pytest.raises(Problem) as caught:
            await ours.commit(Append("run/a", [], 0), Append("run/b", one(1)))
        assert caught.value.key == "ledger_conflict"


async def test_l5_a_wrong_guess_for_one_stream_holds_no_other_up(address: str) -> None:
    async with Ledger.open(address) as ours, Ledger.open(address) as theirs:
        for name in "abc":
            await ours.append(f"run/{name}", one(0))
        await theirs.append("run/b", one(1))
        asked = [ours.append(f"run/{name}", one(2), expect=0) for name in "abc"]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(item, Problem) for item in found] == [False, True, False]
        heads = {stream: head.seq for stream, head in (await ours.streams("run/")).items()}
        assert heads == {"run/a": 1, "run/b": 1, "run/c": 1}


async def test_l7_two_processes_write_to_the_same_streams_in_turns(address: str) -> None:
    async with Ledger.open(address) as ours, Ledger.open(address) as theirs:

        async def write(ledger: Ledger) -> None:
            for number in range(30):
                await ledger.commit(Append(f"run/{number % 3}", one(number)), Append("audit", one(number)))

        await asyncio.gather(write(ours), write(theirs))
        found = await ours.verify()
        assert found.ok and found.records == 120


class Picky:
    """A projection whose table refuses a number."""

    name, version, prefix = "picky", 1, "run/"
    schema = "CREATE TABLE picky (name TEXT PRIMARY KEY, n BIGINT NOT NULL, CHECK (n <> 13))"

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            sql = "INSERT INTO picky VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET n = excluded.n"
            tx.execute(sql, (record.stream, record.payload["n"]))
            if record.payload["n"] > 10:
                tx.execute("UPDATE picky SET n = ? WHERE name = ?", (record.payload["n"], record.stream))


async def test_l6_a_statement_that_is_refused_takes_only_its_own_ticket(address: str) -> None:
    """The texts behind it were never prepared: they must be when they are needed."""
    async with Ledger.open(address, projections=[Picky()]) as ledger:
        await asyncio.gather(*(ledger.append(f"run/{number}", one(number)) for number in range(3)))
        asked = [ledger.append(f"run/{number}", one(13 if number == 1 else 20), expect=0) for number in range(3)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(item, Problem) for item in found] == [False, True, False]
        assert await ledger.query("SELECT n FROM picky ORDER BY name") == [(20,), (1,), (20,)]
        assert (await ledger.append("run/1", one(30), expect=0))[0].seq == 1


async def test_l9_who_writes_goes_on_after_a_job_and_a_wrong_guess(address: str) -> None:
    """A job is psycopg's, which ends all prepared statements, also those that are not its own."""
    async with Ledger.open(new_ledger()) as source:
        for number in range(20):
            await source.append(f"run/{number}", one(number))
        lines = [line async for line in source.export()]
    async with Ledger.open(address) as ours, Ledger.open(address) as theirs:
        await ours.append("run/a", one(0))
        assert await ours.import_lines(lines) == 20
        await ours.append("run/a", one(1))
        await theirs.append("run/a", one(2))
        for number in range(3, 6):
            assert (await ours.append("run/a", one(number)))[0].seq == number
        with pytest.raises(Problem):
            await ours.import_lines([b"not a record"])
        assert (await ours.append("run/a", one(6)))[0].seq == 6


async def test_l9_a_writer_whose_server_ends_it_before_the_commit_writes_again(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says so before it comes to the COMMIT: nothing was written, and no caller notices."""
    async with Ledger.open(address) as ledger:
        await ledger.append("run/a", one(0))
        run, ended = Pipe.run, []

        def ending(pipe: Pipe, statements: Sequence[Statement]) -> list[list[bytes]]:
            first, *rest = statements
            if ended or first.text != "BEGIN":
                return run(pipe, statements)
            ended.append(pipe)
            return run(pipe, [first, Statement("SELECT pg_terminate_backend(pg_backend_pid())"), *rest])

        monkeypatch.setattr(Pipe, "run", ending)
        assert (await ledger.append("run/a", one(1)))[0].seq == 1
        assert ended[0].fell_short
        assert (await ledger.verify()).records == 2


async def test_more_than_the_socket_takes_at_once(address: str) -> None:
    async with Ledger.open(address) as ledger:
        drafts = [Draft("t", {"text": "x" * 200_000})] * 12
        await ledger.append("run/a", drafts)
        await ledger.append("run/a", drafts, expect=11)
        assert (await ledger.verify()).records == 24


def test_a_pipe_tells_which_statement_was_refused_and_goes_on() -> None:
    with psycopg.connect(server_address(), autocommit=True) as connection:
        pipe = Pipe(connection)
        with pytest.raises(psycopg.errors.DivisionByZero):
            pipe.run([Statement("SELECT 1 / ?::int", (b"0",)), Statement("SELECT ?::text", (b"never",))])
        assert pipe.run([Statement("SELECT ?::text, '?', NULL", ("höher".encode(),))]) == [
            ["höher".encode(), b"?", b""]
        ]
        assert not pipe.is_stale
        with psycopg.connect(server_address(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))
        assert pipe.is_stale

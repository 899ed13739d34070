"""Each invariant at the top of ledger.py, by its number."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.kernel import canonical
from forestay.kernel.ambient import Ids, ManualClock
from forestay.kernel.ledger import Append, Draft, Head, Ledger, Record, Transaction
from forestay.kernel.ledger.records import GENESIS, hash_of
from forestay.kernel.problems import Problem
from tests.kernel.ledger.conftest import Address


def drafts(*numbers: int) -> list[Draft]:
    return [Draft("test.event", {"n": number}) for number in numbers]


class Sums:
    """A projection: the sum of `n` per stream."""

    name, version, prefix = "sums", 1, "run/"
    schema = "CREATE TABLE sums (stream TEXT PRIMARY KEY, total BIGINT NOT NULL);"

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        numbers = [record.payload["n"] for record in records]
        if 13 in numbers:
            raise Problem("state_conflict", "Thirteen is not counted.")
        if 14 in numbers:
            raise ZeroDivisionError
        tx.execute(
            "INSERT INTO sums VALUES (?, ?) ON CONFLICT (stream) DO UPDATE SET total = sums.total + excluded.total",
            (records[0].stream, sum(numbers)),
        )


async def test_l1_sequences_start_at_zero_and_have_no_gap(address: Address, clock: ManualClock, ids: Ids) -> None:
    async with Ledger.open(address("l"), clock=clock, ids=ids) as ledger:
        await ledger.append("run/a", drafts(1, 2))
        with pytest.raises(Problem):
            await ledger.append("run/a", drafts(9), expect=7)
        await ledger.append("run/a", drafts(3))
        assert [record.seq for record in await ledger.read("run/a")] == [0, 1, 2]
        assert (await ledger.head("run/a")).seq == 2
        assert await ledger.head("run/none") == Head(-1, "0" * 64)


async def test_l2_what_was_acknowledged_is_there_for_another_connection(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        await ledger.append("run/a", drafts(1))
        other = sqlite3.connect(tmp_path / "l.db")
        assert other.execute("SELECT count(*) FROM records").fetchone() == (1,)
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        other.close()


async def test_l3_a_hash_covers_every_field_and_the_record_before(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        first, second = await ledger.append("run/a", [Draft("a", {"x": 1}, {"k": "v"}), Draft("b", [])])
    assert first.prev == "0" * 64
    assert second.prev == first.hash
    assert hash_of(first).hex() == first.hash
    import msgspec

    changes: dict[str, Any] = {
        "stream": "run/b",
        "seq": 1,
        "id": "x",
        "type": "c",
        "ts": first.ts + 1,
        "payload": {"x": 2},
        "attrs": {},
        "prev": "1" * 64,
    }
    for name, value in changes.items():
        assert hash_of(msgspec.structs.replace(first, **{name: value})).hex() != first.hash, name


async def test_l4_expect_writes_only_where_the_stream_stands(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        await ledger.append("run/a", drafts(1), expect=-1)
        with pytest.raises(Problem) as caught:
            await ledger.append("run/a", drafts(2), expect=-1)
        assert caught.value.key == "ledger_conflict"
        assert caught.value.details == {"stream": "run/a", "expected": -1, "actual": 0}
        results = await asyncio.gather(
            *(ledger.append("run/a", drafts(n), expect=0) for n in range(20)), return_exceptions=True
        )
        assert sum(isinstance(result, list) for result in results) == 1  # exactly one wins
        assert (await ledger.head("run/a")).seq == 1


async def test_l5_several_streams_go_in_whole_or_not_at_all(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        await ledger.commit(Append("run/a", drafts(1)), Append("run/b", drafts(1, 2)))
        with pytest.raises(Problem):
            await ledger.commit(Append("run/a", drafts(2), 0), Append("run/b", drafts(3), 0))
        assert (await ledger.head("run/a")).seq == 0
        with pytest.raises(Problem, match="twice"):
            await ledger.commit(Append("run/a", drafts(2)), Append("run/a", drafts(3)))


async def test_l5_what_is_refused_beside_others_leaves_no_stream(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        await ledger.append("run/a", drafts(1))
        refused = ledger.submit(Append("run/a", drafts(2), 7), Append("run/b", drafts(1)), later=True)
        looked = ledger.submit(Append("run/c", drafts(1)), Append("run/d", [], -1), later=True)
        await ledger.append("run/e", drafts(1))  # all three in one transaction
        assert isinstance(refused.exception(), Problem) and looked.exception() is None
        assert list(await ledger.streams()) == ["run/a", "run/c", "run/e"]
        await ledger.append("run/b", drafts(1), -1)
        assert (await ledger.verify()).ok


async def test_l6_a_projection_changes_with_its_records_or_not_at_all(address: Address) -> None:
    path = address("l")
    async with Ledger.open(path, projections=[Sums()]) as ledger:
        await ledger.append("run/a", drafts(1, 2))
        await ledger.append("other/a", drafts(100))
        with pytest.raises(Problem, match="Thirteen"):
            await ledger.append("run/a", drafts(5, 13))
        results = await asyncio.gather(
            ledger.append("run/b", drafts(4)),
            ledger.append("run/c", drafts(14)),
            ledger.append("run/d", drafts(6)),
            return_exceptions=True,
        )
        assert [isinstance(result, Problem) for result in results] == [False, True, False]
        assert await ledger.query("SELECT stream, total FROM sums ORDER BY stream") == [
            ("run/a", 3),
            ("run/b", 4),
            ("run/d", 6),
        ]
        assert (await ledger.head("run/a")).seq == 1
    newer = Sums()
    newer.version = 2  # type: ignore[misc]
    async with Ledger.open(path, projections=[newer]) as ledger:
        assert await ledger.query("SELECT total FROM sums WHERE stream = 'run/a'") == [(3,)]


async def test_l4_l6_what_cannot_go_in_fails_alone_and_what_was_built_on_it(address: Address) -> None:
    """Commits that wait are written as one group. Each is held to what the ones before it left behind."""
    async with Ledger.open(address("l"), projections=[Sums()]) as ledger:
        await ledger.append("run/a", drafts(1))
        results = await asyncio.gather(
            ledger.append("run/a", drafts(2), expect=0),
            ledger.append("run/a", drafts(13), expect=1),
            ledger.append("run/a", drafts(3), expect=2),  # would follow the one that fails
            ledger.append("run/a", drafts(4), expect=1),  # stands where that one left the stream
            ledger.commit(Append("run/b", drafts(5)), Append("run/c", drafts(14))),
            ledger.append("run/b", drafts(6), expect=-1),
            return_exceptions=True,
        )
        keys = [result.key if isinstance(result, Problem) else "" for result in results]
        assert keys == ["", "state_conflict", "ledger_conflict", "", "internal", ""]
        assert [record.payload["n"] for record in await ledger.read("run/a")] == [1, 2, 4]
        assert await ledger.query("SELECT stream, total FROM sums ORDER BY stream") == [("run/a", 7), ("run/b", 6)]
        assert (await ledger.head("run/c")).seq == -1
        assert [record.seq for record in await ledger.append("run/a", drafts(7))] == [3]
        assert (await ledger.verify()).ok


async def test_l4_a_stream_is_not_made_for_a_caller_who_expects_records_in_it(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        results = await asyncio.gather(
            ledger.commit(Append("run/a", drafts(1)), Append("run/b", drafts(2), 7)),
            ledger.append("run/c", drafts(3)),
            return_exceptions=True,
        )
        assert [isinstance(result, Problem) for result in results] == [True, False]
        assert list(await ledger.streams()) == ["run/c"]


async def test_l6_a_projection_that_is_added_later_is_built_from_the_log(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        await ledger.append("run/a", drafts(*range(1, 6)))
    async with Ledger.open(address("l"), projections=[Sums()]) as ledger:
        await ledger.append("run/a", drafts(10))
        assert await ledger.query("SELECT total FROM sums") == [(25,)]


async def test_l7_what_a_caller_appends_first_comes_first(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:

        async def write(name: str) -> None:
            waiting = [asyncio.ensure_future(ledger.append(f"run/{name}", drafts(n))) for n in range(50)]
            await asyncio.gather(*waiting)

        await asyncio.gather(*(write(name) for name in "abcdef"))
        futures = [ledger.submit(Append("run/thread", drafts(n))) for n in range(50)]
        await asyncio.to_thread(futures[-1].result)
        for name in [*"abcdef", "thread"]:
            assert [record.payload["n"] for record in await ledger.read(f"run/{name}")] == list(range(50))


async def test_l8_a_follower_misses_nothing_however_slow_it_is(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        await ledger.append("run/a", drafts(*range(10)))
        slow = ledger.follow("run/a", 5)
        assert (await anext(slow)).seq == 5  # and then it sleeps while 5,000 records are written
        for start in range(10, 5010, 500):
            await ledger.append("run/a", drafts(*range(start, start + 500)))
        assert [(await anext(slow)).seq for _ in range(5004)] == list(range(6, 5010))
        waiting = asyncio.ensure_future(anext(slow))
        await asyncio.sleep(1)
        assert not waiting.done()
        await ledger.append("run/a", drafts(1))
        assert (await waiting).seq == 5010
        await slow.aclose()


async def test_l8_following_everything_keeps_the_written_order(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        await ledger.append("run/a", drafts(1))
        follower = ledger.follow_all("run/", 0)
        for name in "bca":
            await ledger.append(f"run/{name}", drafts(2))
            await ledger.append(f"ext/{name}", drafts(2))
        seen = [(await anext(follower))[1].stream for _ in range(4)]
        assert seen == ["run/a", "run/b", "run/c", "run/a"]
        await follower.aclose()


async def test_live_records_are_what_readers_get_later(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        follower = ledger.follow("run/a")
        waiting = asyncio.ensure_future(anext(follower))
        await asyncio.sleep(0.1)
        payload = {"list": (1, 2), "nested": {"b": 1, "a": None}}
        (written,) = await ledger.append("run/a", [Draft("t", payload, {"tenant": "x"})])
        payload["list"] = "changed afterwards"
        assert await waiting == written == (await ledger.read("run/a"))[0]
        assert written.payload == {"list": [1, 2], "nested": {"a": None, "b": 1}}
        await follower.aclose()


@pytest.mark.parametrize("stream", ["", "Run/a", "run//a", "run/a b", "run/\0", "x" * 600, "run/..\n", "/run"])
async def test_stream_names_are_checked(address: Address, stream: str) -> None:
    async with Ledger.open(address("l")) as ledger:
        with pytest.raises(Problem) as caught:
            await ledger.append(stream, drafts(1))
        assert caught.value.key == "schema_mismatch"


async def test_bad_payloads_are_problems_and_nothing_is_written(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        bad: list[Any] = ["a\0b", "\ud800", float("nan"), {"x": object()}, "x" * (17 * 1024 * 1024)]
        for payload in bad:
            with pytest.raises(Problem):
                await ledger.append("run/a", [Draft("ok", 1), Draft("bad", payload)])
        with pytest.raises(Problem):
            await ledger.append("run/a", [Draft("not a type", 1)])
        assert await ledger.read("run/a") == []


async def test_reading_windows_and_backwards(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        written = await ledger.append("run/a", drafts(*range(10)))
        assert await ledger.read("run/a", 3, 4) == written[3:7]
        assert await ledger.read("run/a", 0, 3, reverse=True) == written[:-4:-1]
        assert await ledger.read("run/a", 99) == []
        assert await ledger.read("run/none", reverse=True) == []
        assert list(await ledger.streams("run/")) == ["run/a"]


async def test_few_and_many_are_read_alike(address: Address) -> None:
    """A few rows are looked up on this thread, many on another; the caller cannot tell."""
    async with Ledger.open(address("l"), projections=[Sums()]) as ledger:
        written = await ledger.append("run/many", drafts(*range(20, 120)))
        assert await ledger.read("run/many") == written
        assert await ledger.read("run/many", 90) == written[90:]
        assert await ledger.read("run/many", 10, 40) == written[10:50]
        assert await ledger.read("run/many", 0, 40, reverse=True) == written[:-41:-1]
        assert await ledger.read("run/many", 95, 40, reverse=True) == written[:94:-1]
        query = "SELECT total FROM sums WHERE stream = ?"
        assert await ledger.look_up(query, ("run/many",)) == await ledger.query(query, ("run/many",)) == [(6950,)]
        names = [f"a/{number:03}" for number in range(70)]
        await ledger.commit(*(Append(name, drafts(1)) for name in [*names, "a-b/0", "a0"]))
        assert list(await ledger.streams("a/")) == names
        assert list(await ledger.streams("a/", limit=40)) == names[:40]
        assert list(await ledger.streams("a/", "a/064")) == names[65:]
        assert list(await ledger.streams("a/", "a/069")) == []
        assert list(await ledger.streams("", limit=2)) == ["a-b/0", "a/000"]


async def test_streams_are_found_by_their_prefix_without_looking_at_others(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        await ledger.append("workflow/a", drafts(1))
        seen: list[str] = []
        reader = ledger._read_now(lambda db: db)
        reader.set_trace_callback(seen.append)
        assert list(await ledger.streams("workflow/")) == ["workflow/a"]
        reader.set_trace_callback(None)
        plan = [row[3] for row in reader.execute("EXPLAIN QUERY PLAN " + seen[0])]
        assert all("SEARCH" in step and "name>" in step and "name<" in step for step in plan), plan


async def test_a_closed_ledger_says_so_and_keeps_what_was_waiting(address: Address) -> None:
    ledger = Ledger.open(address("l"))
    futures = [ledger.submit(Append("run/a", drafts(n))) for n in range(100)]
    ledger.close()
    assert all(future.done() for future in futures)
    with pytest.raises(Problem, match="closed"):
        await ledger.head("run/a")
    with pytest.raises(Problem) as caught:
        ledger.submit(Append("run/a", drafts(1)))
    assert caught.value.key == "ledger_closed"
    ledger.close()
    async with Ledger.open(address("l")) as again:
        assert (await again.head("run/a")).seq == 99


async def test_a_writer_that_forgets_streams_goes_on_where_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forestay.kernel.ledger.sqlite_writer._KEEP_STREAMS", 4)
    async with Ledger.open(tmp_path / "l.db") as ledger:
        for turn in range(3):
            for number in range(12):
                stream, other = f"run/{number}", f"run/{(number + 5) % 12}"
                await ledger.commit(Append(stream, drafts(turn)), Append(other, drafts(turn)))
        assert len(ledger._writer._streams) <= 8
        assert {head.seq for head in (await ledger.streams()).values()} == {5}
        assert (await ledger.verify()).ok


async def test_l6_a_projection_that_did_not_see_an_import_is_built_again(address: Address) -> None:
    async with Ledger.open(address("a")) as ledger:
        await ledger.append("run/a", drafts(1, 2))
        lines = [line async for line in ledger.export()]
    async with Ledger.open(address("b"), projections=[Sums()]) as host:
        await host.append("run/b", drafts(4))
    async with Ledger.open(address("b")) as plain:
        assert await plain.import_lines(lines) == 2
    async with Ledger.open(address("b"), projections=[Sums()]) as host:
        assert await host.query("SELECT stream, total FROM sums ORDER BY 1") == [("run/a", 3), ("run/b", 4)]


async def test_export_and_import_carry_the_chain(address: Address) -> None:
    async with Ledger.open(address("a"), projections=[Sums()]) as ledger:
        for n in range(5):
            await ledger.commit(Append("run/a", drafts(n)), Append("ext/b", drafts(n)))
        lines = [line async for line in ledger.export()]
    async with Ledger.open(address("b"), projections=[Sums()]) as copy:
        assert await copy.import_lines(lines[:6]) == 6
        assert await copy.import_lines(lines[6:]) == 4
        assert [line async for line in copy.export()] == lines
        assert await copy.query("SELECT total FROM sums") == [(10,)]
        assert (await copy.verify()).ok
        with pytest.raises(Problem) as again:
            await copy.import_lines(lines[-1:])
        assert again.value.key == "ledger_conflict"
        more = await copy.append("run/a", drafts(99))
        assert more[0].seq == 5
    async with Ledger.open(address("c")) as empty:
        forged = [*lines[:3], lines[3].replace(b'"n":1', b'"n":7'), *lines[4:]]
        with pytest.raises(Problem) as caught:
            await empty.import_lines(forged)
        assert (caught.value.key, caught.value.details["line"]) == ("chain_broken", 4)
        assert await empty.streams() == {}  # nothing of it went in
        with pytest.raises(Problem):
            await empty.import_lines([b"not json"])


@pytest.mark.parametrize("made_up", [{"ts": 2**63}, {"ts": -(2**63)}, {"type": "no type"}, {"id": "a\0b"}])
async def test_a_record_that_no_ledger_writes_is_not_taken_in_though_its_hash_is_right(
    address: Address, made_up: dict[str, Any]
) -> None:
    plain = Record("run/a", 0, "i", "a.b", 1, {}, {}, GENESIS.hex(), "")
    record = msgspec.structs.replace(plain, **made_up)
    line = canonical.encode(msgspec.structs.replace(record, hash=hash_of(record).hex()))
    async with Ledger.open(address("a")) as ledger:
        with pytest.raises(Problem) as caught:
            await ledger.import_lines([line])
        assert caught.value.key == "schema_mismatch" and await ledger.streams() == {}

"""Archives: what is sealed is read as before, what is removed is told, and heads stay (A1 to A4)."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Ids, ManualClock, canonical
from forestay.kernel.audit_log import AuditLog
from forestay.kernel.ledger import RETENTION, Draft, Ledger, Record, archives
from forestay.kernel.ledger.postgres_server import PgServer
from forestay.kernel.ledger.transfer import copy_ledger
from forestay.kernel.problems import Problem
from tests.kernel.ledger.conftest import Address
from tests.kernel.ledger.tampering import change
from tests.postgres import new_ledger

POLICY = {"removeAfterDays": 30}


def _drafts(first: int, count: int) -> list[Draft]:
    return [Draft("t", {"n": number, "text": "word " * 20}, {"k": "v"}) for number in range(first, first + count)]


async def _filled(ledger: Ledger) -> None:
    for number in range(6):
        await ledger.append("run/a", _drafts(2 * number, 2))
        await ledger.append("run/b", _drafts(number, 1))


async def _all(ledger: Ledger) -> list[tuple[int, Record]]:
    found: list[tuple[int, Record]] = []
    while page := await ledger.read_all("run/", found[-1][0] if found else 0, 3):
        found += page
    return found


async def _seen(ledger: Ledger) -> dict[str, Any]:
    """Everything that readers see of the runs."""
    seen: dict[str, Any] = {}
    for stream in ("run/a", "run/b"):
        seen[stream] = await ledger.read(stream)
        for start in range(14):
            for limit in (None, 0, 1, 3, 20):
                for reverse in (False, True):
                    seen[f"{stream} {start} {limit} {reverse}"] = await ledger.read(
                        stream, start, limit, reverse=reverse
                    )
        seen[f"{stream} head"] = await ledger.head(stream)
        seen[f"{stream} place"] = await ledger.place(stream, 3)
    seen["all"] = await _all(ledger)
    seen["export"] = [line async for line in ledger.export("run/")]
    seen["places"] = [item for item in await ledger.places() if item.stream != RETENTION]
    return seen


@pytest.mark.parametrize("most", [512, 5])
async def test_what_is_sealed_is_read_as_before(address: Address, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_RECORDS", most)
    async with Ledger.open(address("l")) as ledger:
        await _filled(ledger)
        before = await _seen(ledger)
        while await ledger.seal("run/a"):  # one part after the other: each state is whole
            assert await _seen(ledger) == before
        await ledger.seal("run/b", "run/none")
        assert await _seen(ledger) == before
        rows = await ledger.query(
            "SELECT count(*) FROM records r JOIN streams s ON s.id = r.stream WHERE s.name = ?", ("run/a",)
        )
        assert rows == [(0,)]
        found = await ledger.verify()
        assert (found.ok, found.sealed, found.removed) == (True, 12 + min(6, most), 0)


async def test_a_sealed_stream_goes_on_and_is_sealed_again(address: Address) -> None:
    path = address("l")
    async with Ledger.open(path) as ledger:
        await _filled(ledger)
        await ledger.seal("run/a")
        head = await ledger.head("run/a")
        (record,) = await ledger.append("run/a", _drafts(99, 1), expect=head.seq)
        assert (record.seq, record.prev) == (head.next, head.hash)
        before = await _seen(ledger)
        assert before["run/a"][-1] == record
        assert await ledger.seal("run/a") == 1
        assert await _seen(ledger) == before
    async with Ledger.open(path) as ledger:
        assert await _seen(ledger) == before
        assert (await ledger.verify(trusted={"run/a": head})).ok


async def test_a_follower_gets_what_is_sealed_and_then_what_is_new(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        await _filled(ledger)
        await ledger.seal("run/a")
        async with contextlib.aclosing(ledger.follow("run/a")) as records:
            assert [(await anext(records)).seq for _ in range(12)] == list(range(12))
            await ledger.append("run/a", _drafts(12, 1))
            assert (await anext(records)).payload["n"] == 12


async def test_what_is_removed_is_told_and_its_head_stays(address: Address) -> None:
    path = address("l")
    clock = ManualClock(1_000_000_000_000)
    async with Ledger.open(path, clock=clock) as ledger:
        await _filled(ledger)
        head, places = await ledger.head("run/a"), await ledger.places()
        assert await ledger.remove("run/a", policy=POLICY) == []  # what is not sealed stays
        await ledger.seal("run/a")
        assert await ledger.remove("run/a", "run/b", policy=POLICY) == ["run/a"]
        assert await ledger.remove("run/a", policy=POLICY) == []  # it is gone
    async with Ledger.open(path, clock=clock) as ledger:
        for limit, reverse in ((None, False), (1, False), (1, True)):
            with pytest.raises(Problem, match="removed at 2001-09-09T01:46:40") as refused:
                await ledger.read("run/a", limit=limit, reverse=reverse)
        problem = refused.value
        assert problem.key == "records_removed"
        assert problem.details["policy"] == POLICY
        assert problem.details["hash"] == head.hash
        assert await ledger.head("run/a") == head
        assert [item for item in await ledger.places() if item.stream != RETENTION] == places
        assert {record.stream for _, record in await _all(ledger)} == {"run/b"}
        found = await ledger.verify(trusted={"run/a": head})
        assert (found.ok, found.removed) == (True, 1)
        assert (await ledger.verify()).removed == 12
        (record,) = await ledger.append("run/a", _drafts(12, 1))
        assert await ledger.read("run/a", 12) == [record]
        assert record.prev == head.hash


async def test_signed_checkpoints_hold_after_sealing_and_removing(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        audit = AuditLog(ledger, bytes(32), Ids())
        await _filled(ledger)
        await audit.checkpoint()
        await ledger.seal("run/a", "run/b")
        await ledger.remove("run/b", policy=POLICY)
        await audit.checkpoint()
        from forestay.kernel import check_bundle, export_checkpoints

        checked = await check_bundle(ledger, await export_checkpoints(ledger, 0), None)
        assert checked.faults == []
        assert checked.records >= 18


async def test_a_table_that_is_built_later_has_what_is_sealed(address: Address) -> None:
    class Count:
        name, version, prefix = "counted", 1, "run/"
        schema = "CREATE TABLE counted (stream TEXT, seq BIGINT, PRIMARY KEY (stream, seq))"

        def apply(self, tx: Any, records: Any) -> None:
            for record in records:
                tx.execute("INSERT INTO counted (stream, seq) VALUES (?, ?)", (record.stream, record.seq))

    path = address("l")
    async with Ledger.open(path) as ledger:
        await _filled(ledger)
        await ledger.seal("run/a")
    async with Ledger.open(path, projections=[Count()]) as ledger:
        assert await ledger.query("SELECT count(*) FROM counted") == [(18,)]


async def test_an_export_of_a_sealed_ledger_comes_in_elsewhere(address: Address, tmp_path: Path) -> None:
    async with Ledger.open(address("l")) as ledger, Ledger.open(tmp_path / "other.db") as other:
        await _filled(ledger)
        await ledger.seal("run/a")
        await other.import_lines([line async for line in ledger.export()])
        assert await other.head("run/a") == await ledger.head("run/a")
        assert (await other.verify()).sealed == 0  # an archive is made anew there
        assert await other.read("run/a") == await ledger.read("run/a")


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE archives SET data = NULL, removed = 1, policy = '{}'", "no record says"),
        ("UPDATE archives SET data = x'7b7d'", "damaged"),
        ("DELETE FROM archives", "head says"),
    ],
)
async def test_a_changed_archive_is_found(address: Address, sql: str, what: str) -> None:
    path = address("l")
    async with Ledger.open(path) as ledger:
        await _filled(ledger)
        await ledger.seal("run/a")
    if isinstance(path, Path) and "removed" not in sql:
        with contextlib.closing(sqlite3.connect(path)) as file, pytest.raises(sqlite3.Error, match="append-only"):
            file.execute(sql)
    change(path, sql)
    async with Ledger.open(path) as ledger:
        (fault,) = (await ledger.verify()).faults
    assert fault.stream == "run/a"
    assert what in fault.what


async def test_a_changed_record_in_an_archive_is_found(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    async with Ledger.open(path) as ledger:
        await _filled(ledger)
        await ledger.seal("run/a")
        part = await ledger.read("run/a", 4, 1)
    with contextlib.closing(sqlite3.connect(path)) as file:
        ((data,),) = file.execute("SELECT data FROM archives").fetchall()
    import zlib

    whole = zlib.decompress(data)
    assert canonical.encode(part[0].payload) in whole
    other = zlib.compress(whole.replace(b'"n":4,', b'"n":5,', 1))
    change(path, f"UPDATE archives SET data = x'{other.hex()}'")
    async with Ledger.open(path) as ledger:
        (fault,) = (await ledger.verify()).faults
    assert (fault.stream, fault.seq, fault.what) == ("run/a", 4, "the record does not match its hash")


async def test_a_crash_before_sealing_leaves_the_records_in_the_table(address: Address) -> None:
    """The archive is written, its sealing is not: the next attempt goes on."""
    path = address("l")
    async with Ledger.open(path) as ledger:
        await _filled(ledger)
        before = await _seen(ledger)

        async def killed(*_: object) -> None:
            raise KeyboardInterrupt

        ledger.append = killed  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            await ledger.seal("run/a")
    async with Ledger.open(path) as ledger:
        assert await ledger.query("SELECT sealed FROM archives") == [(0,)]
        assert await _seen(ledger) == before
        assert (await ledger.verify()).sealed == 0
        assert await ledger.seal("run/a") == 12
        assert await _seen(ledger) == before
        assert await ledger.query("SELECT sealed FROM archives") == [(1,)]


async def test_a_ledger_with_removed_records_is_not_copied(address: Address, tmp_path: Path) -> None:
    async with Ledger.open(address("l")) as ledger, Ledger.open(tmp_path / "other.db") as other:
        await _filled(ledger)
        await ledger.seal("run/a")
        await ledger.remove("run/a", policy=POLICY)
        with pytest.raises(Problem, match="cannot be copied") as refused:
            await copy_ledger(ledger, other)
        assert refused.value.key == "records_removed"
        assert await other.count() == 0


async def test_nothing_is_sealed_while_a_process_is_there_that_knows_no_archives() -> None:
    path = new_ledger()
    old = (
        "INSERT INTO workers (name, epoch, since, until, schema) VALUES ('old', 1, now(), now() + interval '1 hour', 6)"
    )
    async with Ledger.open(path) as ledger:
        await _filled(ledger)
        with PgServer(path, lock_timeout=1).connect() as connection:
            connection.execute(old)
        with pytest.raises(Problem, match="too old to read archives") as refused:
            await ledger.seal("run/a")
        assert (refused.value.key, refused.value.details["workers"]) == ("state_conflict", ["old"])
        assert (await ledger.verify()).sealed == 0
        with PgServer(path, lock_timeout=1).connect() as connection:
            connection.execute("DELETE FROM workers WHERE name = 'old'")
        assert await ledger.seal("run/a") == 12
        assert (await ledger.query("SELECT max(since) FROM migrations"))[0][
            0
        ] >= 7  # an old one does not start any more

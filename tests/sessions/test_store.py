"""Sessions in a ledger: kept in order, owned by a tenant, copied, listed, and pi's files in and out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Ids, Ledger, ManualClock, Problem, SeededRandomness
from forestay.sessions import Sessions, SessionTable, write_file


@asynccontextmanager
async def opened(folder: Path, clock: ManualClock, seed: int = 1) -> AsyncIterator[Sessions]:
    ids = Ids(clock, SeededRandomness(seed))
    async with Ledger.open(folder / "ledger.db", projections=[SessionTable()], clock=clock, ids=ids) as ledger:
        yield Sessions(ledger, clock, ids, cwd="/harbour")
        assert (await ledger.verify()).ok


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


async def test_t1_t2_a_session_is_one_object_and_one_stream(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as sessions:
        session = sessions.new()
        await sessions.save(session)
        assert await sessions.list() == [], "nothing was said in it"
        session.append("message", message=said("Where does the Aurora lie?"))
        await asyncio.gather(*(sessions.save(session) for _ in range(5)))
        assert await sessions.open(session.id) is session
        session.append("session_info", name="harbour")
        await sessions.save(session)
        (line,) = await sessions.list()
        assert (line.name, line.first, line.entries) == ("harbour", "Where does the Aurora lie?", 2)
        kept = session.id, list(session.entries)
    async with opened(tmp_path, clock, 2) as sessions:
        again = await sessions.open(kept[0])
        assert again.entries == kept[1]
        again.append("custom", customType="mark")
        await sessions.save(again)
        assert again.saved == 3


async def test_t2_a_caller_that_is_cancelled_leaves_the_session_whole(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as sessions:
        session = sessions.new()
        for number in range(20):
            session.append("message", message=said(str(number)))
            saving = asyncio.ensure_future(sessions.save(session))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            saving.cancel()
        await sessions.save(session)
        (line,) = await sessions.list()
        assert line.entries == 20 and session.unsaved == [] and session.saved == 20


async def test_t3_a_session_is_its_tenants(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as sessions:
        session = await sessions.create("ann", "hers")
        for tenant, named in (("ben", session.id), ("ann", "nowhere"), ("ann", "../audit"), ("ann", "")):
            with pytest.raises(Problem, match="There is no session") as caught:
                await sessions.open(named, tenant)
            assert caught.value.key == "not_found"
        assert await sessions.list("ben") == [] and len(await sessions.list("ann")) == 1
        with pytest.raises(Problem):
            await sessions.fork(session.id, tenant="ben")


async def test_a_fork_has_the_branch_and_its_own_life(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as sessions:
        session = sessions.new()
        session.append("message", message=said("one"))
        session.append("message", message=said("1", "assistant"))
        two = session.append("message", message=said("two"))
        await sessions.save(session)
        fork, draft = await sessions.fork(session.id, two, before=True)
        assert (len(fork.entries), draft, fork.header["parentSession"]) == (2, "two", session.id)
        fork.append("message", message=said("three"))
        await sessions.save(fork)
        assert [entry["id"] for entry in session.entries][:2] == [entry["id"] for entry in fork.entries][:2]
        assert len(session.entries) == 3 and len(await sessions.list()) == 2


async def test_a_file_goes_out_and_comes_in_again(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as sessions:
        session = await sessions.create(name="harbour")
        session.append("message", message=said("berth 7 — ☕"))
        session.append("custom", customType="mark", data={"a": 1})
        await sessions.save(session)
        data = b"".join(write_file(session))
        taken = await sessions.take(data)
        assert taken.id != session.id, "there is one of this id"
        assert taken.entries == session.entries and taken.name == "harbour"
        other = data.replace(session.id.encode(), b"0198-another")
        assert (await sessions.take(other)).id == "0198-another"
        assert (await sessions.open("0198-another")).entries == session.entries


OLD = [
    {"type": "session", "id": "old", "timestamp": "2025-11-01T10:00:00.000Z", "cwd": "/x", "provider": "a"},
    {"type": "message", "timestamp": "t1", "message": {"role": "user", "content": "one"}},
    {"type": "message", "timestamp": "t2", "message": {"role": "hookMessage", "customType": "n", "content": "two"}},
    {"type": "compaction", "timestamp": "t3", "summary": "s", "firstKeptEntryIndex": 2, "tokensBefore": 5},
]


def lines(*items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


async def test_f2_files_of_version_1_and_2_are_read_as_3(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as sessions:
        old = await sessions.take(lines(*OLD))
        assert old.header["version"] == 3 and [entry["parentId"] for entry in old.entries] == [
            None, old.entries[0]["id"], old.entries[1]["id"],
        ]  # fmt: skip
        assert old.entries[2]["firstKeptEntryId"] == old.entries[1]["id"]
        assert "firstKeptEntryIndex" not in old.entries[2]
        assert [message["role"] for message in old.messages()] == ["compactionSummary", "custom"]
        second = {**OLD[0], "version": 2, "id": "second"}
        entry = {"type": "new_kind", "id": "a", "parentId": None, "timestamp": "t", "more": [1]}
        assert (await sessions.take(lines(second, entry))).entries == [entry], "an unknown kind is kept as it is"
        assert (await sessions.take(lines({**second, "id": "cut"}, entry) + b'{"type": "mess')).entries == [entry]


ENTRY = {"type": "custom", "customType": "m", "id": "a", "parentId": None, "timestamp": "t"}


@pytest.mark.parametrize(
    ("data", "said", "at"),
    [
        (b"", "not the header", "line 1"),
        (b"no json", "not JSON", "line 1"),
        (lines([1]), "not a JSON object", "line 1"),
        (lines({"type": "message"}), "not the header", "line 1"),
        (lines({**OLD[0], "version": 4}), "Version 4", "line 1"),
        (lines({**OLD[0], "version": 3}, {"type": "message", "id": "a"}), "a timestamp", "line 2"),
        (lines({**OLD[0], "version": 3}, {**ENTRY, "type": "message"}), "`message`", "line 2"),
        (lines({**OLD[0], "version": 3}, {**ENTRY, "type": "message", "message": {}}), "a role", "line 2"),
        (lines({**OLD[0], "version": 3}, {**ENTRY, "parentId": 7}), "`parentId`", "line 2"),
        (lines({**OLD[0], "version": 3}, {**ENTRY, "parentId": "z"}), "parent z", "line 2"),
        (lines({**OLD[0], "version": 3}, {**ENTRY, "parentId": "a"}), "parent a", "line 2"),
        (lines({**OLD[0], "version": 3}, ENTRY, ENTRY), "occurs twice", "line 3"),
        (lines({**OLD[0], "version": 3}) + b"{\n" + lines(ENTRY), "not JSON", "line 2"),
        (b"\xff\xfe" + lines(OLD[0]), "not JSON", "line 1"),
    ],
)
async def test_f2_f3_what_is_no_session_file_is_told_with_its_line(
    data: bytes, said: str, at: str, tmp_path: Path, clock: ManualClock
) -> None:
    async with opened(tmp_path, clock) as sessions:
        with pytest.raises(Problem, match=said) as caught:
            await sessions.take(data)
        assert caught.value.details["at"] == at
        assert await sessions.list() == []

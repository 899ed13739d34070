"""Any one changed byte is found, and the place is named."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from forestay.kernel.ledger import Draft, Ledger
from forestay.kernel.ledger.postgres_server import PgServer
from tests.kernel.ledger.conftest import Address
from tests.kernel.ledger.tampering import change


async def _filled(path: Path | str) -> None:
    async with Ledger.open(path) as ledger:
        for number in range(4):
            await ledger.append("run/a", [Draft("t", {"n": number, "text": f"MARK{number}"}, {"k": "v"})])
            await ledger.append("run/b", [Draft("t", {"n": number})])


async def test_any_flipped_byte_of_a_payload_is_found_and_named(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    await _filled(path)
    whole = path.read_bytes()
    for number in range(4):
        payload = f'{{"n":{number},"text":"MARK{number}"}}'.encode()
        start = whole.index(payload)
        for offset in range(len(payload)):
            damaged = bytearray(whole)
            damaged[start + offset] ^= 0x01
            path.write_bytes(damaged)
            async with Ledger.open(path) as ledger:
                faults = (await ledger.verify()).faults
            assert [(fault.stream, fault.seq) for fault in faults] == [("run/a", number)], (number, offset)


@pytest.mark.parametrize("sql", ["UPDATE records SET type = 'u'", "DELETE FROM records WHERE seq = 3"])
async def test_the_database_refuses_to_change_a_record(address: Address, sql: str) -> None:
    path = address("l")
    await _filled(path)
    with pytest.raises(Exception, match="append-only"):
        if isinstance(path, Path):
            with contextlib.closing(sqlite3.connect(path)) as file:
                file.execute(sql)
        else:
            with PgServer(path, lock_timeout=1).connect() as connection:
                connection.execute(sql)
    async with Ledger.open(path) as ledger:
        assert (await ledger.verify()).ok


@pytest.mark.parametrize(
    ("sql", "seq"),
    [
        ("UPDATE records SET type = 'u' WHERE seq = 2 AND stream = 1", 2),
        ("UPDATE records SET ts = ts + 1 WHERE seq = 1 AND stream = 1", 1),
        ("UPDATE records SET id = 'x' WHERE seq = 0 AND stream = 1", 0),
        ("UPDATE records SET attrs = NULL WHERE seq = 3 AND stream = 1", 3),
        ("UPDATE records SET hash = zeroblob(32) WHERE seq = 2 AND stream = 1", 2),
        ("DELETE FROM records WHERE seq = 1 AND stream = 1", 1),
        ("DELETE FROM records WHERE seq = 3 AND stream = 1", 3),
        ("UPDATE streams SET hash = zeroblob(32) WHERE id = 1", 3),
        ("UPDATE streams SET head = 9 WHERE id = 1", 4),
        ("UPDATE records SET payload = x'7b7d' WHERE stream = 1 AND seq = 2", 2),
    ],
)
async def test_every_kind_of_change_is_found(address: Address, sql: str, seq: int) -> None:
    path = address("l")
    await _filled(path)
    change(path, sql)
    async with Ledger.open(path) as ledger:
        found = await ledger.verify()
        assert [(fault.stream, fault.seq) for fault in found.faults] == [("run/a", seq)]
        assert (await ledger.verify("run/b")).ok


async def test_a_trusted_head_finds_a_rewritten_history(address: Address) -> None:
    path = address("l")
    await _filled(path)
    async with Ledger.open(path) as ledger:
        trusted = await ledger.streams()
        await ledger.append("run/a", [Draft("t", 5)])
        found = await ledger.verify(trusted=trusted)
        assert (found.ok, found.records) == (True, 3)  # each trusted record again, and the new one
    async with Ledger.open(address("forged")) as forged:  # a whole new chain that holds in itself
        for number in range(5):
            await forged.append("run/a", [Draft("t", number)])
        assert (await forged.verify()).ok
        faults = (await forged.verify(trusted=trusted)).faults
        assert {(fault.stream, fault.what) for fault in faults} == {
            ("run/a", "the record is not the trusted one"),
            ("run/b", "the stream is gone"),
        }

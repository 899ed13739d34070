"""The audit log is signed, every record of the ledger is covered, and no change goes unnoticed (S1 to S5)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import msgspec
import pytest

from forestay.kernel import (
    AUDIT,
    Append,
    AuditLog,
    CheckpointBundle,
    Draft,
    Ids,
    Ledger,
    Problem,
    check_bundle,
    copy_ledger,
    export_checkpoints,
)
from forestay.kernel import audit_log as module
from forestay.kernel.ledger.records import link
from tests.kernel.ledger.conftest import Address, address
from tests.kernel.ledger.tampering import change, unlock

__all__ = ["address"]
SEED = bytes(range(32))


def log_of(ledger: Ledger, seed: bytes = SEED) -> AuditLog:
    return AuditLog(ledger, seed, Ids())


async def written(ledger: Ledger, rounds: int = 3) -> AuditLog:
    """Some life: runs and decisions, and a checkpoint after each round."""
    log = log_of(ledger)
    for number in range(rounds):
        for run in "ab":
            await ledger.append(f"run/{run}", [Draft("t", {"n": number}), Draft("t", {"m": number})])
        await ledger.append(AUDIT, [Draft("policy.decision", {"n": number})])
        assert not await log.checkpoint()
    return log


async def test_an_untouched_log_holds_and_says_so(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        log = await written(ledger)
        verdict = await log.verify()
        assert verdict.chain_valid and verdict.checkpoints_valid and not verdict.anomalies
        assert (verdict.from_seq, verdict.to_seq) == (0, (await ledger.head(AUDIT)).seq)
        assert [item.at_sequence for item in verdict.checkpoints] == [1, 3, 5]
        assert all(log.key.signed(item.merkle_root, item.signature) for item in verdict.checkpoints)
        part = await log.verify(2, 1_000_000)
        assert part.chain_valid and part.to_seq == 1_000_000
        assert [item.at_sequence for item in part.checkpoints] == [3, 5]
        before = await ledger.position()
        assert not await log.checkpoint() and await ledger.position() == before, "nothing new is not signed again"


async def test_an_empty_log_holds(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        verdict = await log_of(ledger).verify()
        assert (verdict.chain_valid, verdict.to_seq, verdict.checkpoints) == (True, 0, [])
        with pytest.raises(Problem) as refused:
            await export_checkpoints(ledger, 0)
        assert refused.value.key == "not_found"


async def test_s1_every_record_is_anchored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is written between checkpoints, and however small anchors are."""
    monkeypatch.setattr(module, "MOST_RECORDS", 4)
    async with Ledger.open(tmp_path / "l.db") as ledger:
        log = log_of(ledger)
        for number in range(6):
            await ledger.append(AUDIT, [Draft("d", {})] * (5 * number))  # pages with nothing to anchor in them
            await ledger.append("run/a", [Draft("t", {"n": number})] * (number % 3))
            while await log.checkpoint(most_anchors=1):
                pass
        anchors = [item.payload for item in await ledger.read(AUDIT) if item.type == "ledger.anchored"]
        runs = await ledger.head("run/a")
        assert sum(item["records"] for item in anchors) == runs.seq + 1 == 6
        assert (anchors[-1]["stream"], anchors[-1]["seq"]) == ("run/a", runs.seq)
        found = await check_bundle(ledger, await export_checkpoints(ledger, 0))
        assert (found.faults, found.records) == ([], 6)


async def test_s2_no_checkpoint_covers_more_than_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_ENTRIES", 4)
    async with Ledger.open(tmp_path / "l.db") as ledger:
        log = log_of(ledger)
        await ledger.append(AUDIT, [Draft("d", {"n": number}) for number in range(10)])
        await log.checkpoint()
        verdict = await log.verify()
        assert [item.at_sequence for item in verdict.checkpoints] == [3, 7, 9]
        assert verdict.chain_valid


async def test_s3_a_new_key_begins_again_with_the_first_record(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        old = await written(ledger)
        new = log_of(ledger, bytes(32))
        await new.checkpoint()
        for log in (old, new):
            assert (await log.verify()).chain_valid
        bundle = await export_checkpoints(ledger, 0)
        assert bundle.signing_key.key_id == new.key.id
        found = await check_bundle(ledger, bundle, new.key)
        assert (found.faults, found.records) == ([], 12)
        with pytest.raises(Problem) as refused:
            await check_bundle(ledger, bundle, old.key)
        assert refused.value.key == "chain_broken"


async def test_s4_two_that_sign_at_once_sign_once(address: Address) -> None:
    async with Ledger.open(address("l")) as ledger:
        first = await written(ledger)
        second = log_of(ledger)
        await ledger.append("run/c", [Draft("t", {})])
        await asyncio.gather(first.checkpoint(), second.checkpoint())
        verdict = await first.verify()
        assert verdict.chain_valid and [item.at_sequence for item in verdict.checkpoints] == [1, 3, 5, 6]
        assert not (await check_bundle(ledger, await export_checkpoints(ledger, 0))).faults


SILENT = {
    "an entry says something else": "UPDATE records SET payload = x'7b7d' WHERE stream = {audit} AND seq = 2",
    "an entry is gone": "DELETE FROM records WHERE stream = {audit} AND seq = 2",
    "the first entry is gone": "DELETE FROM records WHERE stream = {audit} AND seq = 0",
    "the last entry is gone": "DELETE FROM records WHERE stream = {audit} AND seq = 5",
    "the last entry says something else": "UPDATE records SET type = 'u' WHERE stream = {audit} AND seq = 5",
}


@pytest.mark.parametrize(
    ("address", "what"),
    [*(("sqlite", what) for what in SILENT), ("postgres", "an entry says something else")],
    indirect=["address"],
)
async def test_a_changed_entry_is_an_anomaly_and_is_not_signed(address: Address, what: str) -> None:
    place = address("l")
    async with Ledger.open(place) as ledger:
        log = await written(ledger)
        ((audit,),) = await ledger.query("SELECT id FROM streams WHERE name = ?", (AUDIT,))
    change(place, SILENT[what].format(audit=audit))
    async with Ledger.open(place) as ledger:
        log = log_of(ledger)
        verdict = await log.verify()
        assert not verdict.chain_valid and len(verdict.anomalies) == 1
        assert verdict.anomalies[0].expected_prev_hash != verdict.anomalies[0].actual_prev_hash
        if "last" not in what:
            assert (await log.verify(4)).chain_valid, "the rest holds"


def rewritten(place: Path | str, stream: str, seq: int) -> None:
    """Do what only one who has the database can do, and do it well: every hash behind the change is right again."""
    assert isinstance(place, Path)
    with contextlib.closing(sqlite3.connect(place)) as file:
        unlock(file)
        ((number,),) = file.execute("SELECT id FROM streams WHERE name = ?", (stream,)).fetchall()
        rows = file.execute(
            "SELECT seq, id, type, ts, payload, attrs, hash FROM records WHERE stream = ? ORDER BY seq", (number,)
        ).fetchall()
        prev = bytes(32)
        for at, id, type, ts, payload, attrs, hash in rows:
            said = b'{"forged":true}' if at == seq else payload
            prev, _ = link(msgspec.json.encode(stream), at, id, type, ts, said, attrs or b"{}", prev)
            if prev != hash:
                file.execute(
                    "UPDATE records SET payload = ?, hash = ? WHERE stream = ? AND seq = ?", (said, prev, number, at)
                )
        file.execute("UPDATE streams SET hash = ? WHERE id = ?", (prev, number))
        file.commit()


@pytest.mark.parametrize(("stream", "seq"), [(AUDIT, 2), (AUDIT, 0), ("run/a", 0), ("run/b", 5)])
async def test_a_history_that_was_rewritten_well_is_found_by_what_was_signed(
    tmp_path: Path, stream: str, seq: int
) -> None:
    """The chains hold in themselves; the checkpoints, kept elsewhere, do not fit them."""
    place = tmp_path / "l.db"
    async with Ledger.open(place) as ledger:
        await written(ledger)
        bundle = await export_checkpoints(ledger, 0)
        assert not (await check_bundle(ledger, bundle)).faults
    rewritten(place, stream, seq)
    async with Ledger.open(place) as ledger:
        assert (await ledger.verify()).ok
        (fault, *_) = (await check_bundle(ledger, bundle)).faults
        assert fault.stream.partition("/")[0] == stream.partition("/")[0]
        verdict = await log_of(ledger).verify()
        assert verdict.chain_valid == verdict.checkpoints_valid == (stream != AUDIT)
        assert not verdict.anomalies


async def test_a_log_that_was_wound_back_is_found(tmp_path: Path) -> None:
    """Somebody restored an old copy: it holds, and it ends before what was signed."""
    async with Ledger.open(tmp_path / "old.db") as old, Ledger.open(tmp_path / "new.db") as new:
        await written(old, 2)
        await copy_ledger(old, new, lambda count: None)
        log = log_of(new)
        await new.append("run/a", [Draft("t", {})])
        await log.checkpoint()
        bundle = await export_checkpoints(new, 0)
        assert not (await check_bundle(new, bundle)).faults
        assert (await check_bundle(old, bundle)).faults


async def test_a_copy_on_the_other_backend_is_the_one_that_was_signed(address: Address, tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "source.db") as source, Ledger.open(address("copy")) as target:
        log = await written(source)
        await copy_ledger(source, target, lambda count: None)
        found = await check_bundle(target, await export_checkpoints(source, 0), log.key)
        assert (found.faults, found.records, found.checkpoints) == ([], 12, 3)
        await target.commit(Append("run/d", [Draft("t", {})]), Append(AUDIT, [Draft("d", {})]))
        assert not await log_of(target).checkpoint()
        assert not (await check_bundle(target, await export_checkpoints(target, 0))).faults


async def test_a_forged_bundle_proves_nothing(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as ledger:
        await written(ledger)
        bundle = await export_checkpoints(ledger, 0)
        data = msgspec.json.encode(bundle)
        first = bundle.checkpoints[0]
        for old, new in (
            (first.merkle_root, "00" * 32),
            (first.signature, bundle.checkpoints[1].signature),
            ('"atSequence":1,', '"atSequence":2,'),
        ):
            forged = msgspec.json.decode(data.replace(old.encode(), new.encode()), type=CheckpointBundle)
            assert (await check_bundle(ledger, forged)).faults, old
        key = msgspec.structs.replace(bundle.signing_key, public_key=AuditLog(ledger, bytes(32), Ids()).key.pem)
        assert (await check_bundle(ledger, msgspec.structs.replace(bundle, signing_key=key))).faults

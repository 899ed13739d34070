"""Export and import: the records, encrypted; what does not check out is 1030 and changes nothing (C8, CRP §1.13)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forestay.kernel import Ledger, ManualClock, Problem
from forestay.relay import Relay
from forestay.relay.state import read_header

from .conftest import Pieces, make_relay

KEY = "a key that is long enough"


async def exported(ledger: Ledger, clock: ManualClock, **options: object) -> tuple[str, bytes]:
    session = await make_relay(ledger, clock, Pieces(["The tide is high."])).init("one", role="ADMIN", **options)  # type: ignore[arg-type]
    await session.ingest("The secret basin has 12 m.\n\nThe quay is long.", "port")
    await session.dispatch("", "How deep is the basin?", remember=True)
    return session.id, await session.export_state(KEY)


async def test_a_session_moves_to_another_ledger(ledger: Ledger, clock: ManualClock, tmp_path: Path) -> None:
    session_id, data = await exported(ledger, clock)
    assert b"secret basin" not in data
    header, _ = read_header(data)
    assert (header.session_id, header.checksum[:7]) == (session_id, "blake3:")
    async with Ledger.open(tmp_path / "other.db", projections=Relay.projections(), clock=clock) as other:
        relay = Relay(other, secret=b"the secret of another machine...", clock=clock, model=Pieces(["Fine."]))
        session = await relay.import_state(data, KEY)
        assert session.id == session_id
        assert [fact.text for fact in session.warm.facts][:2] == ["The secret basin has 12 m.", "The quay is long."]
        assert session.warm.windows == 1
        reply = await session.dispatch("", "How deep is the basin?")  # the signatures hold here too
        assert reply.report.security_flags.integrity_violations == 0
        assert reply.report.telemetry is not None
        assert reply.report.telemetry.facts_in_envelope == 3
        assert (await other.verify("relay/")).ok
        again = await Relay(other, secret=b"the secret of another machine...", clock=clock).session(session_id)
        assert len(again.warm.facts) == len(session.warm.facts)
        with pytest.raises(Problem) as caught:
            await relay.import_state(data, KEY)
        assert caught.value.key == "ledger_conflict"


async def test_1030_what_was_changed_is_refused_and_nothing_is_written(
    ledger: Ledger, clock: ManualClock, tmp_path: Path
) -> None:
    _, data = await exported(ledger, clock)
    line, _, payload = data.partition(b"\n")
    header = json.loads(line)

    def with_header(**changes: object) -> bytes:
        return json.dumps({**header, **changes}).encode() + b"\n" + payload

    damaged = [
        b"",
        b"not a header\n" + payload,
        line,
        data[:-1],
        data + b"x",
        data[:-10] + bytes(10),
        with_header(checksum="blake3:00"),
        with_header(schema_version="2.0.0"),
        with_header(schema_version="1"),
        with_header(created_at=header["created_at"] + 1),
        with_header(records=header["records"] + 1),
        with_header(salt="00" * 16),
        with_header(nonce="zz"),
    ]
    async with Ledger.open(tmp_path / "other.db", projections=Relay.projections(), clock=clock) as other:
        relay = Relay(other, secret=b"the secret of another machine...", clock=clock)
        for bad in damaged:
            with pytest.raises(Problem) as caught:
                await relay.import_state(bad, KEY)
            assert caught.value.as_crp()["code"] == 1030, bad[:80]
        with pytest.raises(Problem) as caught:
            await relay.import_state(data, KEY + "!")
        assert caught.value.as_crp()["code"] == 1030
        assert await other.position() == 0


async def test_a_bound_session_needs_its_secret_after_the_move(
    ledger: Ledger, clock: ManualClock, tmp_path: Path
) -> None:
    session_id, data = await exported(ledger, clock, binding_secret="the caller's")
    assert b"the caller's" not in data
    async with Ledger.open(tmp_path / "other.db", projections=Relay.projections(), clock=clock) as other:
        relay = Relay(other, secret=b"the secret of another machine...", clock=clock)
        session = await relay.import_state(data, KEY, binding_secret="the caller's")
        assert session.id == session_id
        assert session.warm.bound


async def test_a_short_key_is_refused(relay: Relay) -> None:
    session = await relay.init("one", role="ADMIN")
    with pytest.raises(Problem) as caught:
        await session.export_state("short")
    assert caught.value.as_crp()["code"] == 1010


async def test_the_relays_secret_is_kept_beside_the_ledger(tmp_path: Path) -> None:
    async with Relay.open(tmp_path / "a.db", model=Pieces(["x"])) as relay:
        session = await relay.init("one")
        await session.ingest("A fact. Another fact.", "x")
    file = tmp_path / "a.db.relay-secret"
    assert file.stat().st_mode & 0o777 == 0o600
    async with Relay.open(tmp_path / "a.db") as relay:
        assert (await relay.session(session.id)).key == session.key
    file.write_bytes(b"")
    with pytest.raises(Problem) as caught:
        async with Relay.open(tmp_path / "a.db"):
            pass
    assert caught.value.as_crp()["code"] == 1030

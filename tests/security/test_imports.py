"""States that somebody wrote instead of exported: refused whole, and the host goes on for everybody else."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import blake3
import httpx
import msgspec
import pytest

from forestay.kernel import Draft, Ledger, Problem, Record, Transaction, canonical
from forestay.kernel.ledger.records import GENESIS, hash_of
from forestay.relay import PROTOCOL_VERSION
from forestay.relay.state import _cipher, unpacked_limit
from forestay.relay.types import SCHEMA_VERSION
from forestay.surface import Serving
from forestay.surface.crp.tenants import owner_of
from tests.security.world import run

KEY = "a passphrase that the attacker chose"
SESSION = "11111111-1111-4111-8111-11111111111"


def chain(stream: str, *contents: tuple[str, Any]) -> list[bytes]:
    """Lines of a stream whose hashes are right, whatever they say."""
    lines, before = [], GENESIS.hex()
    for seq, (kind, payload) in enumerate(contents):
        record = Record(stream, seq, f"made-{stream}-{seq}", kind, 1, payload, {}, before, "")
        before = hash_of(record).hex()
        lines.append(canonical.encode(msgspec.structs.replace(record, hash=before)))
    return lines


def sealed(session_id: str, packed: bytes, records: int) -> str:
    salt, nonce = os.urandom(16), os.urandom(12)
    fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "protocol_version": PROTOCOL_VERSION,
        "created_at": 1.0,
        "cipher": "AES-256-GCM",
        "kdf": "HKDF-SHA256",
        "salt": salt.hex(),
        "nonce": nonce.hex(),
        "session_id": session_id,
        "records": records,
    }
    payload = _cipher(KEY.encode(), salt).encrypt(nonce, packed, canonical.encode(fields))
    header = {**fields, "checksum": "blake3:" + blake3.blake3(payload).hexdigest()}
    return base64.b64encode(canonical.encode(header) + b"\n" + payload).decode()


def state(session_id: str, *contents: tuple[str, Any], first: bytes = b'{"binding":null}') -> str:
    lines = chain(f"relay/{session_id}", *contents)
    return sealed(session_id, zlib.compress(b"\n".join((first, *lines))), len(lines))


class Breaks:
    """A projection that cannot apply what an import brings."""

    name, version, prefix = "breaks", 1, "x/"
    schema = "CREATE TABLE breaks (a TEXT PRIMARY KEY)"

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        tx.executemany("INSERT INTO breaks VALUES (?)", [(record.payload["name"],) for record in records])


async def test_a_record_that_no_projection_can_read_does_not_stop_the_writer(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db", projections=[Breaks()]) as ledger:
        with pytest.raises(Problem) as refused:
            await ledger.import_lines(chain("x/1", ("made", {"name": "a"}), ("made", [])))
        assert refused.value.key == "internal"
        assert (await ledger.head("x/1")).seq == -1, "whole or not at all"
        await ledger.append("x/2", [Draft("made", {"name": "b"})])
        assert await ledger.query("SELECT a FROM breaks") == [("b",)]


def test_a_tenants_states_are_its_own_or_refused_and_everybody_else_goes_on(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        _, key = await serving.services.keys.create("b", tenant="bob")
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False, timeout=60) as bob:
            mine = (await bob.post("/crp/sessions", json={"app_id": "mine", "role": "ADMIN"})).json()["session_id"]
            init = (await serving.host.ledger.read(f"relay/{mine}"))[0].payload
            bomb = zlib.compress(b'{"binding":null}\n' + b"\n" * unpacked_limit(0), 9)
            attempts = [
                state(SESSION + "0", ("crp.session.init", {**init, "app_id": "operators"})),
                state(SESSION + "1", ("crp.session.init", {**init, "app_id": "carol::app"})),
                state(SESSION + "2", ("crp.session.init", {"app_id": "bob::x"})),
                state(SESSION + "3", ("crp.session.init", init), first=b"[]"),
                state(SESSION + "4", ("crp.session.init", init), ("crp.extraction.complete", {"rows": [[1]]})),
                state(SESSION + "5", ("crp.session.init", [])),
                state("../../evil", ("crp.session.init", init)),
                sealed(SESSION + "6", zlib.compress(b'{"binding":null}\n[]'), 1),
                sealed(SESSION + "7", zlib.compress(b'{"binding":null}\nno'), 1),
                sealed(SESSION + "8", bomb, 0),
            ]
            for number, attempt in enumerate(attempts):
                body = {"state": attempt, "export_key": KEY}
                answer = await bob.post(f"/crp/sessions/{mine}/import", json=body)
                assert answer.json().get("code") in (1013, 1030), (number, answer.text)
            assert [row["session_id"] for row in (await bob.get("/crp/sessions")).json()["sessions"]] == [mine]
            assert (await http.get("/crp/sessions")).json()["sessions"] == []
            good = {"state": state(SESSION + "9", ("crp.session.init", init)), "export_key": KEY}
            await bob.post(f"/crp/sessions/{mine}/import", json=good)
            assert (await http.get("/relay")).status_code == 200
            assert (await http.post("/crp/sessions", json={"app_id": "mine"})).status_code == 201

    run(tmp_path, story, filled=False)


def test_an_apps_owner_cannot_be_written_in_another_tenants_words() -> None:
    assert [owner_of(name) for name in ("app", "a::app", "a::b::app", "a:::app")] == ["default", "a", "a::b", "a:"]

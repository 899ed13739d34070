"""`GET /v1/audit/verify` (OpenWOP auth profiles), and the commands that need no host."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from forestay.host import Options
from forestay.kernel import Draft, Ledger, PublicKey
from forestay.surface import serve
from tests.cli.test_runs import Shell
from tests.contracts.openwop.conftest import Api, refused
from tests.contracts.openwop.test_discovery import SCHEMAS
from tests.kernel.ledger.tampering import change

PATH = "/v1/audit/verify"


def test_the_answer_is_the_contracts(api: Api, capabilities: dict[str, Any]) -> None:
    schema = SCHEMAS / "audit-verify-result.schema.json"
    if not schema.exists():
        pytest.skip("the contract's schemas are not here")
    if "auditLogIntegrity" not in capabilities.get("auth", {}):
        pytest.skip("this host does not claim it")
    found = api.get(PATH).json()
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(found)
    part = api.get(PATH, params={"fromSeq": found["toSeq"], "toSeq": found["toSeq"]}).json()
    assert (part["fromSeq"], part["toSeq"], part["chainValid"]) == (found["toSeq"], found["toSeq"], True)


def test_who_may_not_read_the_audit_learns_nothing(api: Api, capabilities: dict[str, Any]) -> None:
    if "auditLogIntegrity" not in capabilities.get("auth", {}):
        pytest.skip("this host does not claim it")
    refused(api.caller("").get(PATH), 401, "unauthenticated")
    refused(api.caller("reader").get(PATH), 403, "forbidden")
    refused(api.caller("other").get(PATH), 403, "forbidden")
    for query in ({"fromSeq": -1}, {"toSeq": "x"}):
        refused(api.get(PATH, params=query), 400, "validation_error")


def test_a_range_is_answered_as_far_as_it_goes(api: Api, capabilities: dict[str, Any]) -> None:
    if "auditLogIntegrity" not in capabilities.get("auth", {}):
        pytest.skip("this host does not claim it")
    assert api.get(PATH, params={"fromSeq": 5, "toSeq": 4}).json()["toSeq"] == 5
    assert api.get(PATH, params={"fromSeq": 1, "toSeq": 2**53}).json()["toSeq"] == 1_000_001


async def _served(folder: Path) -> str:
    """A host that lives for a moment; the key that it shows to everybody."""
    async with serve(Options(data=folder)) as serving, httpx.AsyncClient(base_url=serving.url, trust_env=False) as http:
        return (await http.get("/.well-known/forestay-audit-key")).text


def test_a_ledger_is_held_against_its_checkpoints_offline(tmp_path: Path) -> None:
    shell = Shell(tmp_path, HOME=str(tmp_path))
    data = tmp_path / ".forestay"
    key, bundle = tmp_path / "key.pem", tmp_path / "checkpoints.json"
    key.write_text(asyncio.run(_served(data)))
    assert shell("ledger", "checkpoints", "-o", "checkpoints.json").code == 0
    told = json.loads(bundle.read_text())
    public = PublicKey.read(told["signingKey"]["publicKeyPEM"])
    assert public == PublicKey.read(key.read_text())
    assert all(public.signed(item["merkleRoot"], item["signature"]) for item in told["checkpoints"])
    check = ("ledger", "verify", "--checkpoint", "checkpoints.json", "--key", "key.pem")
    held = shell(*check)
    assert held.code == 0 and held.result["checkpoints"]["records"] > 0
    change(data / "ledger.db", "UPDATE records SET ts = ts + 1 WHERE pos = 2")
    assert shell(*check).code == 11
    assert shell(*check[:-1], "checkpoints.json").code == 2


def test_without_a_host_checkpoints_are_signed_when_told(tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "ledger.db"))
    shell = Shell(tmp_path, HOME=str(tmp_path))
    assert shell("ledger", "checkpoints", "--data", ".", "--sign", "-o", "c.json").result["checkpoints"] == 1
    assert shell("ledger", "verify", "--data", ".", "--checkpoint", "c.json").code == 0


async def _written(path: Path) -> None:
    async with Ledger.open(path) as ledger:
        await ledger.append("run/a", [Draft("t", {})])

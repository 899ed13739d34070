"""API keys (A1 to A4): who may call, and what stays on disk of a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forestay.kernel import Ids, Ledger, ManualClock, Problem
from forestay.surface.auth import CONTRACT_SCOPES, SCOPES, Keys, KeyTable


@asynccontextmanager
async def opened(tmp_path: Path, clock: ManualClock, ids: Ids) -> AsyncIterator[Keys]:
    async with Ledger.open(tmp_path / "ledger.db", projections=[KeyTable()], clock=clock, ids=ids) as ledger:
        keys = Keys(ledger, clock, ids)
        await keys.load()
        yield keys


def refused(keys: Keys, header: str | None) -> str:
    with pytest.raises(Problem) as caught:
        keys.authenticate(header)
    assert caught.value.row.http == 401
    return caught.value.key


async def test_a_key_opens_and_names_its_caller(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(tmp_path, clock, ids) as keys:
        _, text = await keys.create("ci", tenant="acme", scopes=["runs:read"], principal="bot", workspace="w1")
        caller = keys.authenticate(f"Bearer {text}")
        assert (caller.tenant, caller.principal, caller.workspace) == ("acme", "bot", "w1")
        caller.require("runs:read")
        with pytest.raises(Problem) as caught:
            caller.require("runs:read", "runs:create")
        assert caught.value.row.http == 403
        assert caught.value.details["missingScopes"] == ["runs:create"]
        caller.require_tenant("acme")
        with pytest.raises(Problem):
            caller.require_tenant("other")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic abcd",
        "Bearer a b",
        "fsk_123",
        "Bearer \x7f",
        "Bearer " + "x" * 600,
        "bearer nobody",
    ],
)
async def test_a3_anything_else_is_401(header: str | None, tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(tmp_path, clock, ids) as keys:
        await keys.create("ci")
        assert refused(keys, header) == "unauthenticated"


async def test_a3_keys_expire_at_their_time(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(tmp_path, clock, ids) as keys:
        _, text = await keys.create("short", expires_ms=clock.now_ms() + 1000)
        keys.authenticate(f"Bearer {text}")
        clock.advance(0.999)
        keys.authenticate(f"Bearer {text}")
        clock.advance(0.001)
        assert refused(keys, f"Bearer {text}") == "key_expired"


async def test_a4_revocation_holds_at_once_and_after_a_restart(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(tmp_path, clock, ids) as keys:
        key, text = await keys.create("gone")
        _, other = await keys.create("stays")
        await keys.revoke(key.key_id, reason="leaked")
        assert refused(keys, f"Bearer {text}") == "key_revoked"
        again = await keys.revoke(key.key_id)
        assert again.revoked_ms is not None
    async with opened(tmp_path, clock, ids) as keys:
        assert refused(keys, f"Bearer {text}") == "key_revoked"
        assert keys.authenticate(f"Bearer {other}").tenant == "default"


async def test_a_key_of_another_tenant_cannot_be_revoked(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(tmp_path, clock, ids) as keys:
        key, text = await keys.create("mine", tenant="acme")
        with pytest.raises(Problem) as caught:
            await keys.revoke(key.key_id, tenant="other")
        assert caught.value.key == "not_found"
        keys.authenticate(f"Bearer {text}")


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_a1_the_text_of_a_key_is_nowhere_on_disk(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(tmp_path, clock, ids) as keys:
        _, text = await keys.create("ci")
        await keys.ensure("a-key-that-somebody-chose")
    written = everything_in(tmp_path)
    assert text.encode() not in written
    assert b"a-key-that-somebody-chose" not in written


async def test_ensure_makes_a_chosen_key_once(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(tmp_path, clock, ids) as keys:
        first = await keys.ensure("a-key-that-somebody-chose")
    async with opened(tmp_path, clock, ids) as keys:
        assert await keys.ensure("a-key-that-somebody-chose") == first
        assert len(keys) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"scopes": ["runs:everything"]},
        {"tenant": "no spaces"},
        {"principal": ""},
        {"text": "short"},
        {"text": "ü" * 20},
    ],
)
async def test_a_bad_key_is_not_made(
    arguments: dict[str, object], tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    async with opened(tmp_path, clock, ids) as keys:
        with pytest.raises(Problem) as caught:
            await keys.create("ci", **arguments)  # type: ignore[arg-type]
        assert caught.value.row.http == 400
        assert len(keys) == 0


def test_the_contract_has_sixteen_scopes() -> None:
    assert len(CONTRACT_SCOPES) == 16
    assert len(set(SCOPES)) == len(SCOPES)


async def test_a_lent_key_is_never_written_down(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(tmp_path, clock, ids) as keys:
        text = keys.lend(principal="me")
        assert keys.authenticate(f"Bearer {text}").principal == "me"
        assert (len(keys), keys.list()) == (0, [])
    async with opened(tmp_path, clock, ids) as keys:
        assert refused(keys, f"Bearer {text}") == "unauthenticated"

"""The secret that every host of one ledger must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.host.shared_secret import STREAM, check_secret, host_secret
from forestay.kernel import Ledger, Problem, SeededRandomness

TEXT = "x" * 32


def test_a_given_secret_is_the_same_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = SeededRandomness(1)
    for name in ("one", "two", "own"):
        (tmp_path / name).mkdir()
    own = host_secret(tmp_path / "own", chance)
    monkeypatch.setenv("FORESTAY_SECRET", TEXT)
    given = host_secret(tmp_path / "one", chance)
    assert given == host_secret(tmp_path / "two", chance) != own
    with pytest.raises(Problem) as refused:
        host_secret(tmp_path / "own", chance)
    assert refused.value.key == "config_invalid"
    monkeypatch.delenv("FORESTAY_SECRET")
    assert host_secret(tmp_path / "one", chance) == given, "the folder keeps it"


def test_a_short_secret_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORESTAY_SECRET", "short")
    with pytest.raises(Problem) as refused:
        host_secret(tmp_path, SeededRandomness(1))
    assert refused.value.key == "config_invalid"
    assert list(tmp_path.iterdir()) == []


async def test_a_ledger_knows_its_secret_until_it_is_told_of_another(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "ledger.db") as ledger:
        await check_secret(ledger, b"a" * 32, renew=False)
        await check_secret(ledger, b"a" * 32, renew=False)
        with pytest.raises(Problem) as refused:
            await check_secret(ledger, b"b" * 32, renew=False)
        assert refused.value.key == "config_invalid"
        await check_secret(ledger, b"b" * 32, renew=True)
        await check_secret(ledger, b"b" * 32, renew=False)
        records = await ledger.read(STREAM)
        assert len(records) == 2 and (b"a" * 32).hex() not in str(records)

"""A backend plugs in by its address: `Ledger.open` finds the class that `BACKENDS` names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest

from forestay.kernel.ledger import Draft, Ledger
from forestay.kernel.ledger.ledger import BACKENDS
from forestay.kernel.ledger.sqlite import SqliteLedger
from forestay.kernel.problems import Problem


class Elsewhere(SqliteLedger):
    """Knows its file by another address."""

    @classmethod
    def open(cls, address: Path | str, **options: Any) -> Self:
        return cls(str(address).removeprefix("elsewhere://"), **options)


async def test_an_address_leads_to_its_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "elsewhere", f"{__name__}:Elsewhere")
    async with Ledger.open(f"elsewhere://{tmp_path}/l.db") as ledger:
        assert type(ledger) is Elsewhere
        await ledger.append("run/a", [Draft("t", 1)])
    async with Ledger.open(tmp_path / "l.db") as ledger:
        assert type(ledger) is SqliteLedger
        assert [record.payload for record in await ledger.read("run/a")] == [1]


def test_an_address_of_no_backend_is_refused() -> None:
    with pytest.raises(Problem) as caught:
        Ledger.open("oracle://host/database")
    assert caught.value.key == "config_invalid"
    assert "file" in caught.value.details["known"]

"""Both backends keep the same invariants: a test that asks for `address` runs on each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.postgres import new_ledger

Address = Callable[[str], Path | str]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """Gives the address of the ledger with a name, the same each time within a test."""
    if request.param == "sqlite":
        return lambda name: tmp_path / f"{name}.db"
    known: dict[str, str] = {}

    def at(name: str) -> str:
        if name not in known:
            known[name] = new_ledger()
        return known[name]

    return at

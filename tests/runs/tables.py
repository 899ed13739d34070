"""The tables that projections keep, as they grew and as the log alone builds them again (L6)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forestay.kernel import Ledger, Projection

_LOG = ("records", "streams", "projections")


def rebuilt(path: Path, projections: Sequence[Projection]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """All rows of every table: before, and after every projection was forgotten and built from the log."""
    before = _tables(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE projections SET version = -1")
    db.close()

    async def build() -> None:
        async with Ledger.open(path, projections=projections):
            pass

    asyncio.run(build())
    return before, _tables(path)


def _tables(path: Path) -> dict[str, list[Any]]:
    with sqlite3.connect(path) as db:
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        found = {name: sorted(db.execute(f'SELECT * FROM "{name}"'), key=repr) for (name,) in names}
    db.close()
    return {name: rows for name, rows in found.items() if name not in _LOG}

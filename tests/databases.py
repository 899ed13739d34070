"""What runs on which database: the tables of `one_database.md`, and what keeps them true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from forestay.kernel import Ledger

LIST = Path(__file__).with_name("one_database.md")
_ROW = re.compile(r"^\| (tests/\S+) \| (.+) \|$", re.MULTILINE)


@cache
def tables() -> list[dict[str, str]]:
    """Test or module, and why: those of SQLite's file, those that run on PostgreSQL anyway, those without a ledger."""
    _, *sections = LIST.read_text("utf-8").split("\n## ")
    return [dict(_ROW.findall(section)) for section in sections]


def left_out(node: str) -> str | None:
    """Why a test does not run on PostgreSQL with the others."""
    name = node.partition("[")[0]
    for table in tables():
        for listed, why in table.items():
            if name == listed or name.startswith(f"{listed}::"):
                return why
    return None


def opens_no_ledger(node: str) -> bool:
    return node.partition("::")[0] in tables()[2]


@contextmanager
def no_ledgers() -> Iterator[None]:
    """Whoever opens a ledger is refused."""

    def refuse(address: object, **_options: object) -> Ledger:
        raise AssertionError(f"{LIST.name} says that this module opens no ledger; it opens {address}")

    with patch.object(Ledger, "open", refuse):
        yield

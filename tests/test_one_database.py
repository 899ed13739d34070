"""The list of what does not run on PostgreSQL with the others is true."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from forestay.kernel import Ledger
from tests.databases import left_out, no_ledgers, tables

ROOT = Path(__file__).parent.parent
LISTED = [name for table in tables() for name in table]


@pytest.mark.parametrize("name", LISTED)
def test_what_is_listed_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    names = {getattr(item, "name", "") for item in ast.walk(ast.parse((ROOT / file).read_text("utf-8")))}
    assert not test or test.rpartition("::")[2] in names


def test_a_module_stands_in_one_table() -> None:
    assert len(LISTED) == len(set(LISTED))


def test_a_listed_test_is_found_with_its_parameters() -> None:
    listed = next(name for name in tables()[0] if name.startswith("tests/runs/test_recovery.py::"))
    assert left_out(f"{listed}[some-1]")
    assert not left_out(f"{listed}_other") and not left_out("tests/runs/test_no.py::a")


def test_the_ban_holds(tmp_path: Path) -> None:
    with no_ledgers(), pytest.raises(AssertionError, match="opens no ledger"):
        Ledger.open(tmp_path / "l.db")

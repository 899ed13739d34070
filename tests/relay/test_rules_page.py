"""The table of rules names tests that exist, and every test of a rule is in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "crp-rules.md"
ROWS = re.findall(r"^\| (.+?) \| (\d*) \| `(\w+\.py)::(\w+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)


def named_in(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_")}


def test_every_row_names_a_test_that_is_there() -> None:
    assert len(ROWS) > 50
    for _, _, file, name in ROWS:
        assert name in named_in(file), f"{file}::{name}"


def test_every_rule_that_is_tested_has_a_row() -> None:
    assert named_in("test_rules.py") == {name for _, _, file, name in ROWS if file == "test_rules.py"}


def test_a_row_with_a_number_leads_to_a_test_that_checks_it() -> None:
    for rule, number, file, name in ROWS:
        if number:
            tree = ast.parse((HERE / file).read_text("utf-8"))
            source = next(ast.unparse(node) for node in tree.body if getattr(node, "name", "") == name)
            assert number in source, f"{rule}: {file}::{name} does not mention {number}"

"""No rule without a test, no test without a rule."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_rule_has_a_test_and_the_documentation_names_it() -> None:
    """The table in docs/reference/envelope.md maps each rule to tests that exist, and none is missing."""
    files = Path(__file__).parent.glob("test_rules*.py")
    names = [name for file in files for name in re.findall(r"def (test_r\d+_\w+)", file.read_text("utf-8"))]
    page = (Path(__file__).parents[3] / "docs" / "reference" / "envelope.md").read_text("utf-8")
    for number in range(1, 47):
        own = [name for name in names if name.startswith(f"test_r{number}_")]
        assert own, f"R{number} has no test"
        row = re.search(rf"^\| R{number} \|.*$", page, re.MULTILINE)
        assert row, f"R{number} is not in the table"
        assert any(f"`{name}`" in row[0] for name in own), f"the row of R{number} names none of {own}"
    for named in re.findall(r"`(test_r\d+_\w+)`", page):
        assert named in names, f"{named} does not exist"

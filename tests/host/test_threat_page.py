"""The threat model names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "explanation" / "threat-model.md").read_text())


def test_every_threat_names_a_test() -> None:
    rows = [
        line
        for line in (ROOT / "docs" / "explanation" / "threat-model.md").read_text().splitlines()
        if line.startswith("|") and line.count("|") == 4 and not line.startswith(("|---", "| threat", "| who"))
    ]
    untested = [row for row in rows if "`tests/" not in row]
    # The first table names who, not what; it has no tests.
    assert len(rows) - len(untested) >= 40 and len(untested) == 6


def test_the_threats_that_must_be_there_are() -> None:
    page = (ROOT / "docs" / "explanation" / "threat-model.md").read_text()
    wanted = (
        "CSRF",
        "XSS",
        "traversal",
        "header injection",
        "slowloris",
        "SSE",
        "SSRF",
        "oversized",
        "tenant",
        "without a key",
    )
    assert not [name for name in wanted if name not in page]


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_it_exists(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)

"""The pages about models and agents say what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.pages import examples, output

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    pytest.param(code, printed, id=f"{page.stem}-{number}")
    for page in (DOCS / "how-to" / "add-a-model.md", DOCS / "explanation" / "agents.md")
    for number, (code, printed) in enumerate(examples(page))
]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_an_example_prints_what_the_page_says(code: str, printed: str) -> None:
    assert printed
    assert output(code) == printed

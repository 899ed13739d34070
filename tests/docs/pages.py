"""The code blocks of a page of documentation, in order, with what the comment before each of them says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")), *sorted((ROOT / "examples").glob("*.md"))]
_FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>[^\n]*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[\w-]*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """`mark` is the comment on the line before: how the block is to be taken when it is not simply played."""

    language: str
    title: str | None
    mark: str | None
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(
            found["language"],
            found["title"],
            found["mark"],
            re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            text.count("\n", 0, found.start("language")) + 1,
        )
        for found in _FENCE.finditer(text)
    ]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))

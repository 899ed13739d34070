"""Writes headings, items and rows in Markdown, which the relay's extraction understands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPACE = re.compile(r"\s+")


def line(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def heading(level: int, text: str) -> str:
    return f"{'#' * min(max(level, 1), 6)} {line(text)}"


def item(text: str) -> str:
    return f"- {line(text)}"


def rows(cells: Iterable[Sequence[str]]) -> str:
    """Return a table; its first row is the head."""
    lines = [f"| {' | '.join(map(line, row))} |" for row in cells if any(cell.strip() for cell in row)]
    return "\n".join([lines[0], "|---|", *lines[1:]]) if lines else ""


def block(text: str) -> str:
    """Return the lines unchanged in a fence."""
    fence = "~~~" if "```" in text else "```"
    return f"{fence}\n{text.strip(chr(10))}\n{fence}"

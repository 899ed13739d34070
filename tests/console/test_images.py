"""The documentation's pictures of the console: each is there, small, and shown somewhere."""

from __future__ import annotations

import re
import struct
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_IMAGE = re.compile(r"!\[([^\]]+)\]\(([^)]+\.png)\)")


def shown() -> dict[Path, str]:
    """Every picture that a page shows, and how it is described."""
    found: dict[Path, str] = {}
    for page in DOCS.rglob("*.md"):
        for words, target in _IMAGE.findall(page.read_text("utf-8")):
            found[(page.parent / target).resolve()] = words
    return found


def test_every_picture_is_shown_and_every_shown_one_is_there() -> None:
    pictures = set((DOCS / "images").glob("console-*.png"))
    assert pictures, "make screenshots"
    assert {path for path in shown() if path.name.startswith("console-")} == pictures


def test_pictures_are_small_png_files_with_a_description() -> None:
    for path, words in shown().items():
        data = path.read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        assert data.startswith(b"\x89PNG\r\n")
        assert len(data) < 150_000, path.name
        assert width in (390, 1200) and 500 < height < 1000, path.name
        assert len(words) > 20, path.name

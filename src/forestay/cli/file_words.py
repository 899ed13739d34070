"""Completion of `@file`: the files of the project that a word may mean."""

from __future__ import annotations

import os
from pathlib import Path

MOST = 200


def file_words(root: Path, word: str) -> list[str]:
    """Complete `@path`: files, and folders with a `/`. Hidden names only when the word begins with a dot."""
    if not word.startswith("@") or "\0" in word:
        return []
    folder, _, start = word[1:].rpartition("/")
    place = (root / folder).resolve()
    if not place.is_relative_to(root.resolve()):
        return []
    before = f"@{folder}/" if folder else "@"
    found: list[str] = []
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(start) and name.isprintable() and (start.startswith(".") or name[0] != "."):
                    found.append(f"{before}{name}{'/' if entry.is_dir() else ''}")
    except OSError:
        return []
    return sorted(found)[:MOST]

"""Versions of agents, in the order of SemVer 2.0 §11."""

from __future__ import annotations

VERSION_PATTERN = r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"


def precedence(version: str) -> tuple[tuple[int, int, str], ...]:
    """A key that orders versions; other texts stand before them, by their letters."""
    core, _, pre = version.partition("+")[0].partition("-")
    numbers = core.split(".")
    if len(numbers) != 3 or not all(part.isdecimal() for part in numbers):
        return ((-1, 0, version),)
    parts = [(1, int(part), "") for part in numbers]
    if not pre:
        return (*parts, (2, 0, ""))
    named = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in pre.split(".")]
    return (*parts, (1, 0, ""), *named)

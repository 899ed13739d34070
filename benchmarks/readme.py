"""Copies figures from the results into the README: `make bench` writes both."""

from __future__ import annotations

import re
from pathlib import Path

# For each sentence of the README: its pattern, its template, and the rows with its figures.
_STEPS = r"^\| {what}, {clients} client\(s\) \| (\d+) runs/s"
_DBOS, _OURS = r"five steps in DBOS [\d.]+", "run of five steps, each on record before the next"
_SENTENCES = (
    (
        r"five steps: \d+ runs/s to our \d+ with one client, \d+ to our \d+ with sixteen",
        "five steps: {} runs/s to our {} with one client, {} to our {} with sixteen",
        [_STEPS.format(what=what, clients=clients) for clients in (1, 16) for what in (_DBOS, _OURS)],
    ),
    (
        r"overhead of a dispatch [\d.]+ ms to our [\d.]+",
        "overhead of a dispatch {} ms to our {}",
        [
            r"dispatch overhead, 0 facts .*crprotocol-6\.2\.5: ([\d.]+) ms",
            r"dispatch overhead, 0 facts \| p50 ([\d.]+) ms",
        ],
    ),
)


def refreshed(readme: str, results: str) -> str:
    """Return `readme` with the figures of `results`; a sentence without its figures stays unchanged."""
    for looks, made, rows in _SENTENCES:
        found = [re.search(row, results, re.MULTILINE) for row in rows]
        if all(found):
            readme = re.sub(looks, made.format(*(match[1] for match in found if match)), readme)
    return readme


def refresh(readme: Path, results: Path) -> None:
    readme.write_text(refreshed(readme.read_text("utf-8"), results.read_text("utf-8")), "utf-8")

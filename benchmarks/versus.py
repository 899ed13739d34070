"""Measure another checkout and this one in turns: `python -m benchmarks.versus FOLDER [AREA…]`.

Both use this environment's packages. Each area is measured three times (VERSUS_ROUNDS) in turns, and the best figure of
each row counts: a disturbance makes a figure worse, never better. A row that only one side has is not compared; its
name is printed after its area.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parents[1]
_AREAS = ("kernel", "dispatcher", "envelope", "runs", "http", "host", "relay", "index", "extensions", "compiler")
_ROWS = "import importlib, json, sys; print('ROWS' + json.dumps(list(importlib.import_module(sys.argv[1]).run())))"
_FIGURE = re.compile(r"(-?\d[\d,]*(?:\.\d+)?)\s*([a-zA-Zµ%]*(?:/s)?)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_FORMER = re.compile(r"\bholdfast\b")


class Figure(NamedTuple):
    """The first number of a row, a time in seconds. `more`: a higher one is better."""

    value: float
    shown: str
    more: bool

    def better(self, other: Figure) -> Figure:
        return max(self, other) if self.more else min(self, other)

    def times(self, before: Figure) -> float:
        """Return how many times as good this is as `before`."""
        return self.value / before.value if self.more else before.value / self.value


def figure(text: str) -> Figure | None:
    found = _FIGURE.search(re.sub(r"^p\d\d ", "", text))
    if found is None or not (value := float(found[1].replace(",", ""))):
        return None
    unit = found[2]
    return Figure(
        value * _SECONDS.get(unit, 1.0), text.split(", ")[0], unit.endswith("/s") or "/s" in text.split(", ")[0]
    )


def rows(checkout: Path, area: str) -> dict[str, Figure]:
    done = subprocess.run(
        [sys.executable, "-c", _ROWS, f"benchmarks.{area}"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = {}
    for what, shown, _ in json.loads(done.stdout.rpartition("ROWS")[2]):
        if measured := figure(shown):
            found[_FORMER.sub("forestay", what)] = measured
    return found


def compared(before: Path, area: str, rounds: int) -> Iterator[str]:
    best: tuple[dict[str, Figure], dict[str, Figure]] = ({}, {})
    for _ in range(rounds):
        for checkout, kept in zip((before, HERE), best, strict=True):
            for what, measured in rows(checkout, area).items():
                kept[what] = measured.better(kept.get(what, measured))
    then, now = best
    for what in then:
        if what in now:
            yield f"| {what} | {then[what].shown} | {now[what].shown} | {now[what].times(then[what]):.2f} |"
    for what in sorted(then.keys() ^ now.keys()):
        print(f"  {area}, on one side only: {what}", file=sys.stderr, flush=True)


def main() -> int:
    if len(sys.argv) < 2 or not (before := Path(sys.argv[1])).joinpath("benchmarks").is_dir():
        print("Name the folder of the other checkout, then the areas (all if none is named).", file=sys.stderr)
        return 2
    print("| what | before | now | times as good |\n|---|---|---|---|", flush=True)
    for area in sys.argv[2:] or _AREAS:
        for line in compared(before.resolve(), area, int(os.environ.get("VERSUS_ROUNDS") or 3)):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The inputs that are kept: for each target one file, an input a line, as a Python literal that a person can read."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.fuzz.coverage import Line, reached
from tests.fuzz.target import Target

FOLDER = Path(__file__).parent / "corpus"
MOST = 120


def kept(target: Target) -> list[bytes]:
    """The seeds of a target and the inputs in its file."""
    file = FOLDER / f"{target.name}.txt"
    lines = file.read_text("ascii").splitlines() if file.is_file() else []
    return [*target.seeds, *(ast.literal_eval(line) for line in lines)]


def keep(target: Target, inputs: Iterable[bytes]) -> None:
    """Write those inputs that reach a line that no shorter one reaches, and none of the seeds."""
    modules = target.measured()
    seen: set[Line] = reached(modules, lambda: list(map(target.holds_on, target.seeds)))
    chosen: list[bytes] = []
    for data in sorted(set(inputs) - set(target.seeds), key=lambda data: (len(data), data)):
        found = reached(modules, partial(target.holds_on, data))
        if not found <= seen and len(chosen) < MOST:
            seen |= found
            chosen.append(data)
    (FOLDER / f"{target.name}.txt").write_text("".join(f"{data!r}\n" for data in chosen), "ascii")

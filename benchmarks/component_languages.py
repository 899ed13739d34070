"""Measures a component project in each language: building with its own tools, compiling, loading, memory.

A language whose tools are missing, and cannot be fetched, is named and left out.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.component_tools import environment
from benchmarks.measure import duration, percentiles
from forestay.extensions.components.compile import compiled
from forestay.extensions.components.outside import Compiled
from forestay.extensions.components.project import LANGUAGES, component_project

Row = tuple[str, str, str]


class Measures(msgspec.Struct, frozen=True):
    """The functions that measure a component: seconds of loads (from memory, from its file), bytes of an instance."""

    loads: Callable[[Compiled], list[float]]
    from_file: Callable[[Compiled], list[float]]
    weight: Callable[[Compiled], float]


def rows(measures: Measures) -> list[Row]:
    """Return the rows of every language."""
    found: list[Row] = []
    for language in LANGUAGES:
        with tempfile.TemporaryDirectory() as folder:
            built = _built(language, Path(folder))
        if built is None:
            told = "its tools are missing here and cannot be fetched"
            found.append((f"component in {language}", "left out", told))
            continue
        data, building = built
        started = time.perf_counter()
        made = compiled(data, seconds=600)
        taken = time.perf_counter() - started
        name, size = f"component in {language}", f"{len(data) / 1024:,.0f} KB"
        found += [
            (f"{name}: build with its own tools", duration(building), size),
            (f"{name}: compile, in its own process", duration(taken), f"{len(made.code) / 1024:,.0f} KB of code"),
            (f"{name}: load from its compiled form", percentiles(measures.loads(made), 0.5, 0.95), _goal(language)),
            (f"{name}: the same from its file", percentiles(measures.from_file(made), 0.5, 0.95), "read and verified"),
            (f"{name}: memory of an instance", f"{measures.weight(made) / 1024:,.0f} KB", ""),
        ]
    return found


def _goal(language: str) -> str:
    return "goal: p95 under 1 ms" if language in ("c", "rust") else ""


def _built(language: str, folder: Path) -> tuple[bytes, float] | None:
    """Build the project that `ext init` writes; return the component and the seconds, None without its tools."""
    for name, text in component_project(language, "words").items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    environ = environment(language, folder)
    started = time.perf_counter()
    done = subprocess.run(["sh", "build.sh"], cwd=folder, env=environ, capture_output=True)
    taken = time.perf_counter() - started
    return ((folder / "extension.wasm").read_bytes(), taken) if done.returncode == 0 else None

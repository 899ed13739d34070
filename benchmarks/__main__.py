"""Run every benchmark, or those of some areas, and write them into RESULTS.md: `python -m benchmarks [AREA…]`."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.readme import refresh

HERE = Path(__file__).parent
_NOT_AREAS = {
    "__init__",
    "__main__",
    "alternatives",
    "append_parts",
    "engines",
    "extension_corpus",
    "fleet_worker",
    "handbook",
    "leaflets",
    "local_questions",
    "measure",
    "notices",
    "pi_runtime",
    "questions",
    "readme",
    "talk",
    "talk_threads",
    "versus",
}


_HEAD = """# Results

Written by `make bench`, which replaces the areas that it measures. Ratios are from one run of an area on one machine;
absolute figures are that machine's.
"""


def main() -> None:
    for area in sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.py") if path.stem not in _NOT_AREAS):
        print(f"# {area}", flush=True)
        where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        lines = [f"{datetime.now(UTC):%Y-%m-%d}, {where}", "", "| what | figure | beside |", "|---|---|---|"]
        started = time.perf_counter()
        for what, figure, beside in importlib.import_module(f"benchmarks.{area}").run():
            print(f"  {what}: {figure}" + (f"  ({beside})" if beside else ""), flush=True)
            lines.append(f"| {what} | {figure} | {beside} |")
        print(f"  ({time.perf_counter() - started:.0f} s)", flush=True)
        _write(area, "\n".join(lines))


def _write(area: str, section: str) -> None:
    """Replace an area's figures; the other areas stay unchanged."""
    results = HERE / "RESULTS.md"
    _, *parts = results.read_text("utf-8").split("\n## ")
    sections = dict(part.split("\n", 1) for part in parts) | {area: "\n" + section}
    body = "\n".join(f"## {name}\n\n{text.strip()}\n" for name, text in sorted(sections.items()))
    results.write_text(f"{_HEAD}\n{body}", "utf-8")
    refresh(HERE.parent / "README.md", results)


if __name__ == "__main__":
    main()

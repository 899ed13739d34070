"""Run every benchmark and write RESULTS.md: `python -m benchmarks [AREA…]`."""

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
    "engines",
    "extension_corpus",
    "handbook",
    "measure",
    "pi_runtime",
    "questions",
    "readme",
    "talk",
    "talk_threads",
}


def main() -> None:
    areas = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.py") if path.stem not in _NOT_AREAS)
    lines = [
        "# Results",
        "",
        "Written by `make bench`. Ratios are from one run on one machine; absolute figures are that machine's.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}",
        "",
    ]
    for area in areas:
        print(f"# {area}", flush=True)
        lines += [f"## {area}", "", "| what | figure | beside |", "|---|---|---|"]
        started = time.perf_counter()
        for what, figure, beside in importlib.import_module(f"benchmarks.{area}").run():
            print(f"  {what}: {figure}" + (f"  ({beside})" if beside else ""), flush=True)
            lines.append(f"| {what} | {figure} | {beside} |")
        lines.append("")
        print(f"  ({time.perf_counter() - started:.0f} s)", flush=True)
    if not sys.argv[1:]:
        (HERE / "RESULTS.md").write_text("\n".join(lines), "utf-8")
        refresh(HERE.parent / "README.md", HERE / "RESULTS.md")


if __name__ == "__main__":
    main()

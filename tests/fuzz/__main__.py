"""`python -m tests.fuzz [SECONDS] [TARGET…]`: search for inputs that break a parser, and write benchmarks/FUZZ.md."""

from __future__ import annotations

import importlib.util
import sys

from tests.fuzz.campaign import ROOT, search, table
from tests.fuzz.targets import TARGETS


def main() -> int:
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not there: `make fuzz` installs it (Linux on x86-64).", file=sys.stderr)
        return 2
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    names = sys.argv[2:] or sorted(TARGETS)
    rows = []
    for name in names:
        rows.append(search(TARGETS[name], seconds))
        print(rows[-1], flush=True)
        for defect in rows[-1].report.defects.values():
            print(f"    {defect.where}: {defect.what}\n    {defect.input[:300]!r}", flush=True)
    if len(names) == len(TARGETS):
        (ROOT / "benchmarks" / "FUZZ.md").write_text(table(rows, seconds), "utf-8")
    return 1 if any(row.report.defects for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

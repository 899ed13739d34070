"""`python -m benchmarks.bars [NAME…]`: measure every bar, or some; write benchmarks/BARS.md after measuring all.

BARS_SHARE makes it shorter, without a report: 0.1 is a tenth of the work.
"""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.bars import guests, hosts, ledger
from benchmarks.bars.bar import Answer, Bar, Measured, row, table
from forestay.kernel import Problem

REPORT = Path(__file__).parents[1] / "BARS.md"


def main() -> int:
    share = float(os.environ.get("BARS_SHARE") or 1)
    everything = [*guests.bars(share), *hosts.bars(share), *ledger.bars(share)]
    known = [bar.name for bar in everything]
    if unknown := [name for name in sys.argv[1:] if name not in known]:
        print(f"No bar is called {', '.join(unknown)}. There are: {', '.join(known)}.", file=sys.stderr)
        return 2
    wanted = [bar for bar in everything if bar.name in sys.argv[1:]] or everything
    found = []
    for bar in wanted:
        found.append((bar, _answer(bar)))
        print(row(*found[-1]), flush=True)
    if wanted == everything and share == 1:
        REPORT.write_text("\n".join(_report(found)) + "\n", "utf-8")
    return 0


def _answer(bar: Bar) -> Answer:
    try:
        return bar.measure()
    except (Problem, LookupError, OSError) as error:
        return str(error)[:120]


def _report(found: list[tuple[Bar, Answer]]) -> list[str]:
    held = sum(isinstance(answer, Measured) and bar.holds(answer.value) for bar, answer in found)
    return [
        "# Bars",
        "",
        "Written by `make bars`: the project's goals for its figures. `before` is the figure of 0.1 on the machine of "
        "that time, which may have been slower or faster than this one; only figures of one machine can be compared. "
        "`the limit` is what the disk, the engine or the interpreter allows on this machine, measured in the same run. "
        "`distance` says how many times better the limit is.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, load {os.getloadavg()[2]:.1f}",
        "",
        *table(found),
        "",
        f"{held} of {len(found)} hold.",
    ]


if __name__ == "__main__":
    sys.exit(main())

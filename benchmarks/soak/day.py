"""`python -m benchmarks.soak.day [HOURS]`: a day of mixed load on a simulated clock, as a table and a picture."""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.simulation.day import QUARTER, live
from tests.simulation.day_check import Found

from benchmarks.soak.picture import picture
from benchmarks.soak.report import findings, table
from benchmarks.soak.verdict import Soak, faults

REPORT = Path(__file__).parents[1] / "DAY.md"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "day.svg"
_HOURS = 12.0


def main() -> int:
    logging.disable(logging.CRITICAL)  # a dying host logs errors
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else _HOURS
    began = time.process_time()
    soak, found = live(hours, lambda words: print(f"# {words}", file=sys.stderr, flush=True))
    lines = report(soak, found, time.process_time() - began)
    print("\n".join(lines))
    if "--no-report" not in sys.argv:
        REPORT.write_text("\n".join(lines) + "\n", "utf-8")
        PICTURE.write_text(picture(soak, _title(soak, found)), "utf-8")
    return 1 if found.faults or faults(soak) else 0


def report(soak: Soak, found: Found, spent: float) -> Sequence[str]:
    failed = sum(item.error is not None for item in soak.done)
    return [
        "# Day",
        "",
        "Written by `make day`: one host runs for a day on the simulation's clock (`tests/simulation`), without real "
        "sockets and on a real SQLite file in memory. It is restarted all the time, in turns by a request to stop, by "
        "a crash between two steps, and by a power loss inside a commit. A client that gets no answer asks again under "
        "the same `Idempotency-Key`.",
        "Of twenty operations six are runs, four have an effect outside, two wait for an approval, one has children, "
        "three are agents, three are relay sessions (open, ingest, dispatch, close), one is a note that lives for half "
        "an hour. Beside them schedules fire, timers of up to half an hour run out, events from outside start runs, "
        "and webhooks are delivered. An operation's time is the processor time that the host, its client and the "
        "simulation use until it ends. The ledger keeps everything, so it grows with the operations; nothing else may "
        "grow.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}",
        "",
        *table(soak, "quarter of an hour", QUARTER),
        "",
        f"- {soak.seconds / 3600:g} hours in {spent:.0f} s of processor time: {len(soak.done):,} operations, {failed} "
        f"failed; {found.runs:,} runs in all, {found.delivered:,} webhooks delivered",
        f"- {found.timers} timers: the latest ended {found.latest_ms} ms after its time; {found.moments} moments of "
        f"schedules, each once",
        *findings(soak),
        *(f"    - {fault}" for fault in found.faults[:10]),
    ]


def _title(soak: Soak, found: Found) -> str:
    failed = sum(item.error is not None for item in soak.done)
    return (
        f"{soak.seconds / 3600:g} simulated hours, {len(soak.restarts)} restarts: {len(soak.done):,} operations, "
        f"{found.runs:,} runs, {failed} failed"
    )


if __name__ == "__main__":
    sys.exit(main())

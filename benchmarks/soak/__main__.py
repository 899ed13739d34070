"""`python -m benchmarks.soak [SECONDS]`: warm up, measure the capacity, soak at a share of it with restarts, verify.

SOAK_SECONDS, SOAK_SHARE (of the capacity) and SOAK_RESTARTS change the length, the load and the number of restarts.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.soak import project
from benchmarks.soak.load import Load
from benchmarks.soak.picture import picture
from benchmarks.soak.report import findings, table
from benchmarks.soak.served import Served
from benchmarks.soak.verdict import Sample, Soak, faults

REPORT = Path(__file__).parents[1] / "SOAK.md"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "soak.svg"
_CLIENTS = 8
_MOST_WARM = 60.0
_DRIVER_CORES = 0.6  # the most that the clients use


class Wish(NamedTuple):
    """The settings of a soak: its length, its share of the capacity, its restarts."""

    seconds: float = 480.0
    share: float = 0.8
    restarts: int = 4

    @property
    def warm(self) -> float:
        """The seconds to warm up; measuring the capacity takes as many."""
        return min(self.seconds / 10, _MOST_WARM)


class Busy(NamedTuple):
    """Cores in use on average: by the host, and by everything on the machine."""

    host: float
    machine: float


def main() -> int:
    wish = _wish()
    with tempfile.TemporaryDirectory(prefix="forestay-soak-") as name:
        folder = Path(name)
        project.write(folder)
        served = Served(folder)
        try:
            soak, busy = asyncio.run(_drive(served, wish))
        finally:
            served.stop()
        ok, records = served.verified()
    soak = soak._replace(ledger_ok=ok, records=records)
    lines = _report(soak, wish, busy)
    print("\n".join(lines))
    if "--no-report" not in sys.argv:
        REPORT.write_text("\n".join(lines) + "\n", "utf-8")
        PICTURE.write_text(picture(soak, _title(soak)), "utf-8")
    return 1 if faults(soak) else 0


def _wish() -> Wish:
    given = Wish(
        float(os.environ.get("SOAK_SECONDS") or Wish().seconds),
        float(os.environ.get("SOAK_SHARE") or Wish().share),
        int(os.environ.get("SOAK_RESTARTS") or Wish().restarts),
    )
    return given._replace(seconds=float(sys.argv[1])) if len(sys.argv) > 1 else given


async def _drive(served: Served, wish: Wish) -> tuple[Soak, Busy]:
    """Warm up, measure, soak."""
    load, samples = Load(served.address), list[Sample]()
    await load.closed(_CLIENTS, wish.warm)
    _say("warm", f"{len(load.done):,} operations")
    capacity = await load.closed(_CLIENTS, wish.warm)
    rate, length = wish.share * capacity, wish.seconds - 2 * wish.warm
    _say("capacity", f"{capacity:.0f} operations a second; now {rate:.0f} for {length:.0f} s")
    before, began, early = _spent(served), time.perf_counter(), len(load.done)
    beside = [asyncio.create_task(_watch(served, samples)), asyncio.create_task(_disturb(served, wish, length))]
    await load.open(rate, length)
    took = time.perf_counter() - began
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    load.close()
    # A failure during the warm-up counts too; its times do not.
    done = [item for item in load.done[:early] if item.error] + load.done[early:]
    soak = Soak(began, length, capacity, rate, done, samples, load.behind, False, 0, served.restarts)
    return soak, Busy(*((now - then) / took for now, then in zip(_spent(served), before, strict=True)))


def _spent(served: Served) -> tuple[float, float]:
    """Return the processor seconds of the host, and of everything on the machine."""
    name, *ticks = Path("/proc/stat").read_text().splitlines()[0].split()
    idle = int(ticks[3]) + int(ticks[4])
    assert name == "cpu"
    return served.spent(), (sum(map(int, ticks[:8])) - idle) / os.sysconf("SC_CLK_TCK")


async def _watch(served: Served, samples: list[Sample]) -> None:
    while True:
        if (sample := await asyncio.to_thread(served.sample)) is not None:
            samples.append(sample)
        await asyncio.sleep(1)


async def _disturb(served: Served, wish: Wish, seconds: float) -> None:
    """Restart the host at equal intervals, in turns by SIGTERM and SIGKILL."""
    began = time.perf_counter()
    for number in range(wish.restarts):
        due = began + seconds * (number + 1) / (wish.restarts + 1)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        how = signal.SIGKILL if number % 2 else signal.SIGTERM
        await served.restart(how)
        _say("restart", f"{how.name}, away for {served.restarts[-1].seconds:.1f} s")


def _report(soak: Soak, wish: Wish, busy: Busy) -> list[str]:
    failed = sum(item.error is not None for item in soak.done)
    return [
        "# Soak",
        "",
        f"Written by `make soak`: one `forestay up` process gets requests over HTTP at {wish.share:.0%} of its "
        "measured capacity. Meanwhile it is restarted, in turns with SIGTERM and with SIGKILL. A client that gets no "
        "answer asks again under the same `Idempotency-Key`.",
        "Of twenty operations ten are runs of five nodes, four call an extension's tool from a workflow, three are "
        "agent turns (two model answers and a tool call), three are relay sessions (open, ingest, dispatch, close). "
        "Models are scripted; the ledger syncs every commit. Times count from the moment when an operation is due. "
        "The ledger keeps everything, so it grows with the operations; nothing else may grow.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}",
        "",
        *table(soak),
        "",
        f"- capacity {soak.capacity:.0f} operations/s with {_CLIENTS} clients; driven at {soak.rate:.0f}/s for "
        f"{soak.seconds:.0f} s: {len(soak.done):,} operations, {failed} failed",
        f"- the host used {busy.host:.2f} cores, and everything on the machine together {busy.machine:.2f} of "
        f"{os.cpu_count()}{': other work ran on it' if busy.machine > busy.host + _DRIVER_CORES else ''}",
        *findings(soak),
    ]


def _title(soak: Soak) -> str:
    minutes, failed = soak.seconds / 60, sum(item.error is not None for item in soak.done)
    return (
        f"{minutes:.0f} minutes at {soak.rate:.0f} operations a second, {len(soak.restarts)} restarts: "
        f"{len(soak.done):,} operations, {failed} failed"
    )


def _say(what: str, words: str) -> None:
    print(f"# {what}: {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

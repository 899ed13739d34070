"""`python -m benchmarks.soak [SECONDS]` (or SOAK_SECONDS): warm up, measure the capacity, soak at 80 %, verify."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.host import cpu
from benchmarks.http import KEY
from benchmarks.soak import project
from benchmarks.soak.load import Load
from benchmarks.soak.verdict import SLOPE_MIB, Memory, Soak, faults, slope, table

REPORT = Path(__file__).parents[1] / "SOAK.md"
SECONDS = 480.0
SHARE = 0.8
_CLIENTS = 8
_FORESTAY = [sys.executable, "-m", "forestay.cli.main"]


def main() -> int:
    seconds = float(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SOAK_SECONDS", SECONDS))
    with tempfile.TemporaryDirectory(prefix="forestay-soak-") as name:
        folder = Path(name)
        project.write(folder)
        with _host(folder) as (address, pid):
            soak, busy = asyncio.run(_drive(address, pid, seconds))
        ok, records = _verified(folder)
    soak = soak._replace(ledger_ok=ok, records=records)
    found = faults(soak)
    lines = _report(soak, busy, found)
    print("\n".join(lines))
    if "--no-report" not in sys.argv:
        REPORT.write_text("\n".join(lines) + "\n", "utf-8")
    return 1 if found else 0


@contextmanager
def _host(folder: Path) -> Iterator[tuple[tuple[str, int], int]]:
    """`forestay up` on the project, as anybody starts it."""
    process = subprocess.Popen(
        [*_FORESTAY, "up", "--port", "0", "--trust", "--json"],
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        parts = urlsplit(json.loads(process.stdout.readline())["result"]["url"])
        yield (str(parts.hostname), int(parts.port or 0)), process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
    return {**kept, "FORESTAY_API_KEY": KEY, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def _drive(address: tuple[str, int], pid: int, seconds: float) -> tuple[Soak, float]:
    """A tenth to warm up, a tenth to measure, the rest to soak. Also: how busy the host was, in cores."""
    load, memory = Load(address), list[Memory]()
    await load.closed(_CLIENTS, seconds / 10)
    _say("warm", f"{len(load.done):,} operations")
    capacity = await load.closed(_CLIENTS, seconds / 10)
    rate, length = SHARE * capacity, seconds * 0.8
    _say("capacity", f"{capacity:.0f} operations a second; now {rate:.0f} for {length:.0f} s")
    watching = asyncio.create_task(_watch(pid, memory))
    spent, began, early = cpu(pid), time.perf_counter(), len(load.done)
    await load.open(rate, length)
    took = time.perf_counter() - began
    watching.cancel()
    load.close()
    # What failed while warming up is a failure too; its times are not looked at.
    done = [item for item in load.done[:early] if item.error] + load.done[early:]
    soak = Soak(began, length, capacity, rate, done, memory, load.behind, False, 0)
    return soak, (cpu(pid) - spent) / took


async def _watch(pid: int, memory: list[Memory]) -> None:
    while True:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        resident, private = (int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
        memory.append(Memory(time.perf_counter(), resident, private))
        await asyncio.sleep(1)


def _verified(folder: Path) -> tuple[bool, int]:
    done = subprocess.run(
        [*_FORESTAY, "ledger", "verify", "--json"], cwd=folder, env=_environment(), capture_output=True, text=True
    )
    answer: dict[str, Any] = json.loads(done.stdout or "{}")
    result = answer.get("result") or {}
    return done.returncode == 0 and bool(answer.get("success")), int(result.get("records", 0))


def _report(soak: Soak, busy: float, found: list[str]) -> list[str]:
    failed = sum(item.error is not None for item in soak.done)
    return [
        "# Soak",
        "",
        "Written by `make soak`: one `forestay up` process, asked over HTTP at 80 % of the capacity measured before.",
        "Of twenty operations ten are runs of five nodes, four call an extension's tool from a workflow, three are "
        "agent turns (two model answers and a tool call), three are relay sessions (open, ingest, dispatch, close). "
        "Models are scripted; the ledger syncs every commit. Times count from the moment an operation was due.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}",
        "",
        *table(soak),
        "",
        f"- capacity {soak.capacity:.0f} operations/s with {_CLIENTS} clients; driven at {soak.rate:.0f}/s for "
        f"{soak.seconds:.0f} s: {len(soak.done):,} operations, {failed} failed",
        f"- the host used {busy:.2f} cores",
        f"- memory: {slope(soak.memory):+.2f} MiB a minute ({SLOPE_MIB:.0f} allowed)",
        f"- ledger: {soak.records:,} records, {'verified' if soak.ledger_ok else 'NOT verified'}",
        f"- verdict: {'holds' if not found else 'fails'}",
        *(f"    - {item}" for item in found),
    ]


def _say(what: str, words: str) -> None:
    print(f"# {what}: {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

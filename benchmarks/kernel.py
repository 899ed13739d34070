"""The ledger beside plain sqlite3 with the same durability, policy decisions, canonical JSON beside the stdlib."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.measure import duration, per_second, percentile, rate, ratio
from forestay.kernel import Draft, Grant, Ledger, Policy, Request, canonical

Row = tuple[str, str, str]
PAYLOAD = {"nodeId": "node-7", "status": "completed", "output": {"text": "hello world", "n": 42}, "tags": ["a", "b"]}


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        fsyncs = _fsyncs(folder / "disk")
        plain = _plain(folder / "plain.db")
        rows, one, hundred = asyncio.run(_ledger(folder / "ledger.db"))
    beside = f"sqlite3, one insert per transaction: {rate(plain)}; the disk: {rate(fsyncs)} fsync"
    return [
        ("ledger: appends, one task", rate(one), f"{beside}; {ratio(one, plain)}"),
        ("ledger: appends, 100 tasks", rate(hundred), f"{beside}; {ratio(hundred, plain)}"),
        *rows,
        *_policy(),
        *_canonical(),
    ]


def _fsyncs(path: Path) -> float:
    with path.open("wb", buffering=0) as file:

        def once() -> None:
            file.write(b"x" * 4096)
            os.fsync(file.fileno())

        return per_second(once)


def _plain(path: Path, inserts: int = 1) -> float:
    """Return inserts per second with the same durability (WAL, synchronous=FULL) and JSON, but without a hash chain;
    each commit has `inserts` of them."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, stream TEXT, payload TEXT)")

    def once() -> None:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(inserts):
            connection.execute("INSERT INTO t (stream, payload) VALUES (?, ?)", ("run/a", json.dumps(PAYLOAD)))
        connection.execute("COMMIT")

    result = inserts * per_second(once)
    connection.close()
    return result


async def _ledger(path: Path) -> tuple[list[Row], float, float]:
    async with Ledger.open(path) as ledger:
        one = max([await _appends(ledger, "one", 1, 400) for _ in range(3)])
        latencies: list[float] = []
        hundred = max([await _appends(ledger, f"many{turn}", 100, 100, latencies) for turn in range(3)])
        await ledger.append("run/long", [Draft("bench.event", PAYLOAD) for _ in range(1000)])
        reads = []
        for _ in range(50):
            started = time.perf_counter()
            await ledger.read("run/long", 0, 1000)
            reads.append(time.perf_counter() - started)
        started = time.perf_counter()
        verification = await ledger.verify()
        verified = verification.records / (time.perf_counter() - started)
        records = await ledger.position()
    size = path.stat().st_size / records
    payload = len(canonical.encode(PAYLOAD))
    median = duration(percentile(latencies, 0.5))
    return (
        [
            ("ledger: append latency at 100 tasks, p99", duration(percentile(latencies, 0.99)), f"p50 {median}"),
            ("ledger: bytes per record on disk", f"{size:.0f}", f"of which payload {payload}"),
            ("ledger: read of a 1,000-record stream", duration(percentile(reads, 0.5)), "median of 50"),
            ("ledger: verify", rate(verified), "records"),
        ],
        one,
        hundred,
    )


async def _appends(ledger: Ledger, name: str, tasks: int, each: int, latencies: list[float] | None = None) -> float:
    async def write(task: int) -> None:
        for _ in range(each):
            started = time.perf_counter()
            await ledger.append(f"run/{name}-{task}", [Draft("bench.event", PAYLOAD)])
            if latencies is not None:
                latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(write(task) for task in range(tasks)))
    return tasks * each / (time.perf_counter() - started)


def _policy() -> list[Row]:
    policy = Policy("prompt", defaults=[Grant("read")], denials=[Grant("env")]).allowing(
        "ext.a", Grant.parse("write:src/**"), Grant.parse("http:*.github.com,api.example.com")
    )
    allowed = Request("ext.a", "http", "http", "api.github.com")
    refused = Request("ext.a", "write", "fs", "/etc/passwd")
    return [
        ("policy: decisions, granted by scope", rate(per_second(lambda: policy.decide(allowed))), ""),
        ("policy: decisions, refused", rate(per_second(lambda: policy.decide(refused))), ""),
    ]


def _canonical() -> list[Row]:
    ours = per_second(lambda: canonical.encode(PAYLOAD))
    theirs = per_second(lambda: json.dumps(PAYLOAD, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
    return [("canonical JSON: encodes", rate(ours), f"stdlib json {rate(theirs)}; {ratio(ours, theirs)}")]


if __name__ == "__main__":
    for row in run():
        print(" | ".join(row))

"""The cost of a run over HTTP, and the delay of a stream: a host in its own process, plain sockets as clients.

End to end is from sending POST /v1/runs to reading the run's last event by long poll. A stream's delay is from the
event's timestamp (taken before it is written to disk) to reading it, both by this machine's clock.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from forestay.kernel import parse_iso

KEY = "benchmark-key-0123456789"
NOOP = {"id": "a", "typeId": "core.noop", "name": "a", "position": {"x": 0, "y": 0}, "config": {}, "inputs": {}}
GATE = {**NOOP, "id": "gate", "typeId": "core.approvalGate", "config": {"title": "x", "actions": ["accept"]}}


# Measure the host, not its rate limits.
_NO_RATES = "".join(f"[http.rates.{of}]\nper_second = 1e6\nburst = 1000000\n" for of in ("key", "tenant"))


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "forestay.toml").write_text(_NO_RATES)
        process = subprocess.Popen(
            [sys.executable, "-m", "forestay.cli.main", "up", "--port", "0", "--data", f"{folder}/data", "--json"],
            cwd=folder,
            env={**os.environ, "FORESTAY_API_KEY": KEY, "PYTHONPATH": str(Path(__file__).parents[1] / "src")},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            parts = urlsplit(json.loads(process.stdout.readline())["result"]["url"])
            yield str(parts.hostname), int(parts.port or 0)
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()


class Away(OSError):
    """The host asks to send the same request again later: it is shutting down, or the first one is not done."""


class Connection:
    """One keep-alive connection; it reads answers by their length."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        self.send(method, path, data, key)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        content = await self.reader.readexactly(length)
        if head[9:12] == b"503" or (head[9:12] == b"409" and b"\r\nretry-after:" in head.lower()):
            raise Away(content)
        assert head[9:10] == b"2", (head, content)
        return json.loads(content)

    def send(self, method: str, path: str, data: bytes = b"", key: str | None = None) -> None:
        once = f"Idempotency-Key: {key}\r\n" if key else ""
        self.writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
            f"{once}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )


@asynccontextmanager
async def connected(address: tuple[str, int]) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


def workflow(id: str, *nodes: dict[str, Any]) -> dict[str, Any]:
    edges = [
        {"id": f"e{n}", "sourceNodeId": a["id"], "targetNodeId": b["id"]}
        for n, (a, b) in enumerate(itertools.pairwise(nodes))
    ]
    common = {"triggers": [], "variables": [], "metadata": {}, "settings": {}}
    return {"id": id, "name": id, "version": "1", "nodes": list(nodes), "edges": edges, **common}


async def one_run(host: Connection, name: str) -> float:
    started = time.perf_counter()
    run_id = (await host.ask("POST", "/v1/runs", {"workflowId": name}))["runId"]
    while not (await host.ask("GET", f"/v1/runs/{run_id}/events/poll?timeout=10"))["isComplete"]:
        pass
    return (time.perf_counter() - started) * 1000


async def throughput(address: tuple[str, int], name: str, clients: int, seconds: float) -> tuple[float, list[float]]:
    until = time.perf_counter() + seconds
    taken: list[float] = []

    async def client() -> None:
        async with connected(address) as host:
            while time.perf_counter() < until:
                taken.append(await one_run(host, name))

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return len(taken) / (time.perf_counter() - started), sorted(taken)


async def stream_delays(address: tuple[str, int], streams: int, events: int) -> list[float]:
    """Return the delays with `streams` open streams, each of its own run; events go to one stream after another."""
    delays: list[float] = []
    arrived = asyncio.Event()

    async def read(run_id: str, opened: asyncio.Semaphore) -> None:
        async with connected(address) as host:
            host.send("GET", f"/v1/runs/{run_id}/events")
            await host.reader.readuntil(b"\r\n\r\n")
            opened.release()
            while line := await host.reader.readline():
                if line.startswith(b"data: ") and b'"run.paused"' in line:
                    now = time.time() * 1000
                    delays.append(now - parse_iso(json.loads(line[6:])["timestamp"]))
                    arrived.set()

    async with connected(address) as host:
        runs = [(await host.ask("POST", "/v1/runs", {"workflowId": "gate"}))["runId"] for _ in range(streams)]
        opened = asyncio.Semaphore(0)
        readers = [asyncio.create_task(read(run_id, opened)) for run_id in runs]
        for _ in runs:
            await opened.acquire()
        for number in range(events):
            arrived.clear()
            await host.ask("POST", f"/v1/runs/{runs[number % streams]}:pause")
            await arrived.wait()
            await host.ask("POST", f"/v1/runs/{runs[number % streams]}:resume")
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return sorted(delays)


def run() -> Iterator[tuple[str, str, str]]:
    with serving() as address:
        yield from asyncio.run(_measure(address))


async def _measure(address: tuple[str, int]) -> list[tuple[str, str, str]]:
    five = [{**NOOP, "id": f"n{number}"} for number in range(5)]
    async with connected(address) as host:
        for document in (workflow("noop", NOOP), workflow("five", *five), workflow("gate", GATE)):
            await host.ask("PUT", f"/v1/workflows/{document['id']}", document)
    found = []
    for name, clients in (("noop", 1), ("noop", 16), ("five", 1), ("five", 16)):
        rate, taken = await throughput(address, name, clients, 4.0)
        what = f"{name} runs over HTTP, {clients} client{'s' if clients > 1 else ''}"
        found.append((what, f"{rate:.0f} runs/s", f"p50 {_at(taken, 50):.1f} ms, p99 {_at(taken, 99):.1f} ms"))
    for streams in (1, 500):
        delays = await stream_delays(address, streams, 200)
        figure = f"p50 {_at(delays, 50):.1f} ms, p95 {_at(delays, 95):.1f} ms"
        found.append((f"delay of an event in a stream, {streams} open", figure, "from before the disk write"))
    return found


def _at(values: list[float], percent: int) -> float:
    return values[min(len(values) - 1, len(values) * percent // 100)]


if __name__ == "__main__":
    for row in run():
        print(*row, sep="  ")

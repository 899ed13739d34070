"""Bars of a whole host: agent turns, runs over HTTP, streams, worker processes, and its start."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.postgres import new_server

from benchmarks import fleet, host, http, kernel, turns
from benchmarks.bars.bar import Bar, Measured
from forestay.models import ScriptedCall, Turn

_ANSWER = Turn("Berth 7.")
_READ = Turn("", (ScriptedCall("read", {"path": "note.md"}),))
_CLIENTS = 8
_SMALLEST_SERVER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
print(server.server_port, flush=True)
server.handle_request()
sys.stdin.read()
"""


def bars(share: float) -> list[Bar]:
    return [
        Bar("turn", "agent runs, one answer, 8 clients", "/s", 201, 400, lambda: _turns(share, _ANSWER), more=True),
        Bar(
            "tool",
            "agent runs, a tool call, 8 clients",
            "/s",
            109,
            200,
            lambda: _turns(share, _READ, _ANSWER),
            more=True,
        ),
        Bar("http", "no-op runs over HTTP, 16 clients", "/s", 1065, 1500, lambda: _served(share, _noops), more=True),
        Bar("streams", "delay of an event, 1,000 streams, p95", "ms", None, 3e-3, lambda: _served(share, _streams)),
        Bar("worker", "no-op runs of one more process", "/s", None, 300, _worker, more=True),
        Bar("up", "`forestay up` to its first answer", "s", 0.76, 0.4, _up),
        Bar("memory", "resident memory after it", "MiB", 83, 70, _memory),
        Bar("help", "`forestay --help`", "ms", None, 0.080, _help),
    ]


def _turns(share: float, *script: Turn) -> Measured:
    found = asyncio.run(turns.cost(*script, runs=max(_CLIENTS, round(240 * share))))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        fsyncs = kernel._fsyncs(Path(folder) / "disk")
    limited_by = (
        f"the disk: {found.commits:.1f} commits a run, each shared by {_CLIENTS} clients, {fsyncs:,.0f} fsync/s"
    )
    return Measured(found.rate, fsyncs * _CLIENTS / found.commits, limited_by)


def _served(share: float, work: Callable[[tuple[str, int], float], Awaitable[Measured]]) -> Measured:
    async def whole(address: tuple[str, int]) -> Measured:
        async with http.connected(address) as client:
            for document in (http.workflow("noop", http.NOOP), http.workflow("gate", http.GATE)):
                await client.ask("PUT", f"/v1/workflows/{document['id']}", document)
        return await work(address, share)

    with http.serving() as address:
        return asyncio.run(whole(address))


async def _noops(address: tuple[str, int], share: float) -> Measured:
    rate, _ = await http.throughput(address, "noop", 16, 4 * share)
    smallest = await _requests(address, "/v1/workflows/noop", 16, 2 * share)
    limited_by = f"two requests a run: the same server answers {smallest:,.0f} of the smallest a second"
    return Measured(rate, smallest / 2, limited_by)


async def _requests(address: tuple[str, int], path: str, clients: int, seconds: float) -> float:
    count, began = 0, time.perf_counter()

    async def client() -> None:
        nonlocal count
        async with http.connected(address) as host:
            while time.perf_counter() < began + seconds:
                await host.ask("GET", path)
                count += 1

    await asyncio.gather(*(client() for _ in range(clients)))
    return count / (time.perf_counter() - began)


async def _streams(address: tuple[str, int], share: float) -> Measured:
    events = max(20, round(200 * share))
    many, one = [await http.stream_delays(address, streams, events) for streams in (max(20, round(1000 * share)), 1)]
    return Measured(http._at(many, 95) / 1000, http._at(one, 95) / 1000, "the same with one stream open")


def _worker() -> Measured:
    server = new_server()
    try:
        join = "&" if "?" in server.address else "?"
        one, two = (fleet.throughput(f"{server.address}{join}schema=bars_{n}", "noop", n)["rate"] for n in (1, 2))
    finally:
        server.stop()
    return Measured(two - one, one, "PostgreSQL, both on this machine's cores: what the first one does")


def _up() -> Measured:
    ours = statistics.median(host.first_answer()[0] for _ in range(5))
    return Measured(
        ours, statistics.median(_smallest()[0] for _ in range(5)), "Python's `http.server` to its first answer"
    )


def _memory() -> Measured:
    return Measured(host.first_answer()[1] / 1024, _smallest()[1] / 1024, "Python's `http.server` after one")


def _smallest() -> tuple[float, int]:
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", _SMALLEST_SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()
    spent = time.perf_counter() - began
    resident = int(Path(f"/proc/{process.pid}/status").read_text().split("VmRSS:")[1].split()[0])
    process.communicate(timeout=30)
    return spent, resident


def _help() -> Measured:
    ours = _took([sys.executable, "-P", "-m", "forestay.cli.main", "--help"])
    return Measured(ours, _took([sys.executable, "-P", "-c", "pass"]), "Python that does nothing")


def _took(command: list[str]) -> float:
    def once() -> float:
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began

    once()
    return statistics.median(once() for _ in range(9))

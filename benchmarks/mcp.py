"""MCP: a tool call over standard input and output, beside the bare client of the official package.

Both use the same server program. Ours runs it in the process sandbox, and decides and fully records each call. The two
take turns of some calls each, so that other work of the machine disturbs both. The ratio is the median of all pairs of
turns.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.extensions.dispatcher_world import ENVIRON
from tests.extensions.mcp.world import ECHO, SERVER, TOOL, configured

from benchmarks.measure import duration, in_turns, percentile
from forestay.extensions.extensions import Extensions
from forestay.extensions.mcp.pins import Pins, ServerStanding
from forestay.extensions.mcp.server_config import read_servers
from forestay.extensions.settings import Settings
from forestay.kernel import Ledger

Row = tuple[str, str, str]
TURNS, CALLS, SERVERS = 16, 30, 50  # fewer calls than `repeats.FULL_CALLS`, from which repeats are only counted


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_rows(Path(folder)))


async def _rows(folder: Path) -> list[Row]:
    async with Ledger.open(folder / "l.db") as ledger:
        rows = [await _configured(folder, ledger)]
        async with _suite(folder, ledger) as suite:
            started = time.perf_counter()
            await suite.call_tool(TOOL, {"text": "seven"})
            rows.append(
                ("MCP: start a server, compare its tools, first call", duration(time.perf_counter() - started), "")
            )
            shutil.copy(SERVER, folder / "server.py")
            program = ["-I", "-S", str(folder / "server.py"), "good"]
            async with Client(stdio_client(StdioServerParameters(command="python3", args=program))) as client:
                ours, bare = await in_turns(
                    (
                        lambda: suite.call_tool(TOOL, {"text": "seven"}),
                        lambda: client.call_tool("echo", {"text": "seven"}),
                    ),
                    suite.recorded,
                    CALLS,
                    TURNS,
                )
    times = percentile([mine / theirs for mine, theirs in zip(ours, bare, strict=True)], 0.5)
    told = f"bare client {duration(percentile(bare, 0.5))}: {times:.2f} times (goal: at most 1.3)"
    return [*rows, ("MCP: tool call through policy and evidence, p50", duration(percentile(ours, 0.5)), told)]


async def _configured(folder: Path, ledger: Ledger) -> Row:
    """Measure the cost of many unused servers: reading their entries and people's decisions about them."""
    entries = {f"s{number}": {"command": "python3", "args": [str(number)]} for number in range(SERVERS)}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    started = time.perf_counter()
    servers = read_servers(folder, {})
    await Pins(ledger, folder).standing(*servers.found.values())
    return (f"MCP: {SERVERS} configured servers at start", duration(time.perf_counter() - started), "")


@asynccontextmanager
async def _suite(folder: Path, ledger: Ledger) -> AsyncIterator[Extensions]:
    project = folder / "project"
    project.mkdir()
    config = configured(project, "good")
    settings = Settings(environ=ENVIRON)
    async with Extensions(ledger, root=project, mode="strict", grants=["tool"], settings=settings) as suite:
        await suite.add_server(config, ServerStanding(config.fingerprint, {"echo": ECHO}))
        yield suite

"""A host as a child process: started by `forestay up`, called over HTTP, killed like any process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from forestay.client import AsyncClient
from forestay.kernel import Ids, Problem
from forestay.runs import RunEvent

_START_SECONDS = 60
_COMMAND = "import sys; from forestay.cli.main import main; sys.exit(main())"


class ChildHost:
    """A running `forestay up`, and a client of it."""

    def __init__(self, process: asyncio.subprocess.Process, client: AsyncClient, model: str) -> None:
        self._process = process
        self.client = client
        self.model = model

    def kill(self) -> None:
        """Send SIGKILL: no handler runs, nothing is flushed."""
        self._process.kill()

    async def stop(self) -> None:
        """Send SIGTERM and wait: the host drains and ends."""
        self._process.terminate()
        await self._process.wait()

    async def until(self, run_id: str, type: str) -> list[RunEvent]:
        """Return the run's events up to the first of `type`, inclusive."""
        seen: list[RunEvent] = []
        async for event in self.client.events(run_id):
            seen.append(event)
            if event.type == type:
                return seen
            if event.type == "interrupt.requested" and await self.client.questions(run_id):
                raise Problem("state_conflict", f"The run waits for an answer before {type}.", runId=run_id)
        raise Problem("node_failed", f"The run ended before {type}.", last=seen[-1].type if seen else None)


@asynccontextmanager
async def child_host(folder: Path) -> AsyncIterator[ChildHost]:
    """Run `forestay up` in `folder`; the end of the block kills the process if it still runs."""
    key = "demo-" + Ids().token(24)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # import nothing from the demo's folder
        "-c",
        _COMMAND,
        *("up", "--port", "0", "--trust", "--json"),
        cwd=folder,
        env={**clean, "FORESTAY_API_KEY": key, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
        answer = msgspec.json.decode(line or b"null")
        if not isinstance(answer, dict) or not answer.get("success"):
            raise Problem("unavailable", "The host did not start.", answer=answer)
        async with AsyncClient(answer["result"]["url"], key, timeout=30) as client:
            yield ChildHost(process, client, answer["result"]["model"])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()

"""A host as a child process: started as anybody starts it, asked over HTTP, and killed like any process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec

from forestay.cli.connection import Connection
from forestay.kernel import Ids, Problem

_START_SECONDS = 60
_COMMAND = "import sys; from forestay.cli.main import main; sys.exit(main())"


class ChildHost:
    """`forestay up` in `folder`. Leaving the block ends the process, if nobody did before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = AsyncExitStack()
        self._process: asyncio.subprocess.Process | None = None
        self._connection: Connection | None = None
        self.model = ""

    async def __aenter__(self) -> Self:
        key = "demo-" + Ids().token(24)
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the folder of the demo is no place to import from
            "-c",
            _COMMAND,
            *("up", "--port", "0", "--trust", "--json"),
            cwd=self._folder,
            env={**_clean(os.environ), "FORESTAY_API_KEY": key, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
            answer = msgspec.json.decode(line or b"null")
            if not isinstance(answer, dict) or not answer.get("success"):
                raise Problem("unavailable", "The host did not start.", answer=answer)
        except BaseException:
            self.kill()
            await process.wait()
            raise
        self.model = answer["result"]["model"]
        headers = {"Authorization": f"Bearer {key}"}
        client = httpx.AsyncClient(base_url=answer["result"]["url"], headers=headers, timeout=30)
        self._connection = Connection(await self._stack.enter_async_context(client), local=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        if self._process is not None:
            if self._process.returncode is None:
                self.kill()
            await self._process.wait()

    @property
    def _http(self) -> Connection:
        assert self._connection is not None, "entered first"
        return self._connection

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM: it drains and ends."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()

    async def start(self, workflow_id: str, inputs: dict[str, Any]) -> str:
        made = await self._http.post("/v1/runs", {"workflowId": workflow_id, "inputs": inputs})
        return str(made["runId"])

    async def until(self, run_id: str, type: str) -> list[dict[str, Any]]:
        """The run's events up to and with the first of `type`."""
        seen: list[dict[str, Any]] = []
        events: AsyncIterator[dict[str, Any]] = self._http.events(run_id, mode="debug")
        async for event in events:
            seen.append(event)
            if event["type"] == type:
                return seen
            if event["type"] == "interrupt.requested" and await self._waits(run_id):
                raise Problem("state_conflict", f"The run waits for an answer before {type}.", runId=run_id)
        raise Problem("node_failed", f"The run ended before {type}.", last=seen[-1]["type"] if seen else None)

    async def _waits(self, run_id: str) -> bool:
        """Whether the run waits now; the question of an older event has its answer already."""
        return str((await self._http.get(f"/v1/runs/{run_id}"))["status"]).startswith("waiting-")

    async def get(self, path: str) -> Any:
        return await self._http.get(path)

    async def questions(self, run_id: str) -> list[dict[str, Any]]:
        found = await self._http.get(f"/v1/runs/{run_id}/interrupts")
        return list(found["interrupts"] if isinstance(found, dict) else found)

    async def approve(self, run_id: str, node_id: str) -> None:
        await self._http.post(f"/v1/runs/{run_id}/interrupts/{node_id}", {"resumeValue": {"action": "accept"}})


def _clean(environ: Any) -> dict[str, str]:
    """The environment without settings that would make it another host."""
    return {name: value for name, value in environ.items() if not name.startswith("FORESTAY_")}

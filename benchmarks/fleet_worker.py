"""One process of the fleet that `benchmarks.fleet` measures.

`python -m benchmarks.fleet_worker LEDGER NAME WORK CLIENTS` prints `ready`, reads a number of seconds, works for that
time, and prints its figures as one JSON object. Then it stays a worker until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.runs import document, registry
from forestay.host import Host
from forestay.kernel import Agents, Config, Draft, Ids, Ledger, Models, SystemClock, SystemRandomness
from forestay.models import Script, Scripted, Turn
from forestay.runs import QUEUE, CreateRun, NodeRegistry, Runs, projections
from forestay.surface import run as on_loop

TENANT = "bench"
PAUSE_SECONDS = 0.4
WORKS = ("append", "noop", "five", "waiting", "turn")

Work = Callable[[int], Awaitable[object]]
"""Does one work item of the client with this number."""


def nodes() -> NodeRegistry:
    types = registry()

    @types.node("bench.wait")
    async def wait(ctx: Any) -> dict[str, Any]:
        """Wait, like a step that calls a model or a service."""
        await asyncio.sleep(PAUSE_SECONDS)
        return {}

    return types


def documents() -> list[dict[str, Any]]:
    return [
        document("noop", [{"id": "n", "typeId": "core.noop"}]),
        document("five", [{"id": f"s{i}", "typeId": "bench.step"} for i in range(5)]),
        document("waiting", [{"id": f"s{i}", "typeId": "bench.wait"} for i in range(5)]),
        document("gate", [{"id": "g", "typeId": "core.approvalGate"}]),
        document("long", [{"id": f"s{i}", "typeId": "core.delay", "config": {"delayMs": 60_000}} for i in range(2)]),
    ]


@asynccontextmanager
async def open_runs(ledger: Ledger, name: str, *, room: int | None = None) -> AsyncIterator[Runs]:
    clock, randomness = SystemClock(), SystemRandomness()
    ids = Ids(clock, randomness)
    workers = ledger.workers(name, QUEUE)
    secret = b"b" * 32
    async with Runs(
        ledger, clock=clock, ids=ids, randomness=randomness, secret=secret, nodes=nodes(), workers=workers, room=room
    ) as runs:
        yield runs


@asynccontextmanager
async def working(address: str, name: str, work: str) -> AsyncIterator[Work]:
    if work == "turn":
        async with _turns(address) as turn:
            yield turn
        return
    async with Ledger.open(address, projections=projections()) as ledger:
        if work == "append":
            streams = [f"bench/{name}-{number}" for number in range(256)]

            async def append(client: int) -> None:
                await ledger.append(streams[client], [Draft("noted", {"text": "x" * 100})])

            yield append
            return
        async with open_runs(ledger, name) as runs:

            async def run(_client: int) -> None:
                made = await runs.create_run(CreateRun(workflow_id=work), TENANT)
                if work != "long" and made.status != "completed":
                    await runs.wait(made.run_id, TENANT)

            yield run


@asynccontextmanager
async def _turns(address: str) -> AsyncIterator[Work]:
    """Run turns of an agent through a whole host: relay, model, ledger."""
    data = msgspec.structs.replace(Config().data, ledger=address if "://" in address else "")
    config = Config(models=Models(default="script"), agents=Agents(allow=["*"], context=[]), data=data)
    models = {"script": Scripted(Script((Turn("Berth 7 it is."),), position="conversation"))}
    with tempfile.TemporaryDirectory() as folder:
        async with Host.open(config, root=Path(folder), models=models) as host:

            async def turn(_client: int) -> None:
                request = CreateRun(workflow_id="forestay-ask", inputs={"question": "Where?"})
                await host.runs.wait((await host.runs.create_run(request, "default")).run_id, "default")

            yield turn


async def main(address: str, name: str, work: str, clients: int) -> None:
    async with working(address, name, work) as one:
        await one(0)
        print("ready", flush=True)
        seconds = float(await asyncio.to_thread(sys.stdin.readline))
        print(json.dumps(await measured(one, clients, seconds)), flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def measured(one: Work, clients: int, seconds: float) -> dict[str, float]:
    times: list[float] = []
    used, begun = time.process_time(), time.perf_counter()

    async def client(number: int) -> None:
        while time.perf_counter() - begun < seconds:
            started = time.perf_counter()
            await one(number)
            times.append(time.perf_counter() - started)

    await asyncio.gather(*(client(number) for number in range(clients)))
    spent, used = time.perf_counter() - begun, time.process_time() - used
    times.sort()
    return {"done": len(times), "rate": len(times) / spent, "p50": times[len(times) // 2], "processor": used}


if __name__ == "__main__":
    on_loop(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))

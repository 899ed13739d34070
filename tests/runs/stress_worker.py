"""A process of the stress test: `python stress_worker.py ADDRESS NAME FOLDER SECONDS RUN…`.

It carries runs, sends them signals at random, and now and then hands over all it has and comes back. It says how many
signals it sent to each run, as JSON; with its input's end it ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from forestay.kernel import Ids, Ledger, SystemClock, SystemRandomness
from forestay.runs import QUEUE, Limits, Runs, projections, standard_registry
from forestay.runs.nodes.registry import NodeRegistry

TENANT = "acme"
MANY = 10**6


def registry(folder: Path) -> NodeRegistry:
    types = standard_registry(custom=False)

    @types.node("test.alone")
    async def alone(ctx: Any) -> dict[str, Any]:
        """Leaves a mark when another process does the same for the same run at the same time."""
        own = folder / f"{ctx.run_id}.busy"
        try:
            own.touch(exist_ok=False)
        except FileExistsError:
            (folder / f"{ctx.run_id}.overlap").touch()
            return {}
        try:
            await asyncio.sleep(0.005)
        finally:
            own.unlink()
        return {}

    return types


def open_runs(ledger: Ledger, name: str, folder: Path, room: int | None = None) -> Runs:
    clock, randomness = SystemClock(), SystemRandomness()
    return Runs(
        ledger,
        clock=clock,
        ids=Ids(clock, randomness),
        randomness=randomness,
        secret=b"s" * 32,
        nodes=registry(folder),
        limits=Limits(max_loop_iterations=MANY, max_node_executions=MANY),
        workers=ledger.workers(name, QUEUE),
        room=room,
    )


async def send(runs: Runs, ids: list[str], until: float, sent: Counter[str], chance: random.Random) -> None:
    while time.monotonic() < until:
        run_id = chance.choice(ids)
        await runs.signal(run_id, TENANT, "tick", {"last": False})
        sent[run_id] += 1
        await asyncio.sleep(chance.expovariate(10))


async def main(address: str, name: str, folder: Path, seconds: float, ids: list[str]) -> None:
    chance, sent = random.Random(name), Counter[str]()
    end = time.monotonic() + seconds
    async with Ledger.open(address, projections=projections()) as ledger:
        while time.monotonic() < end:
            life = min(end, time.monotonic() + chance.uniform(3, 9))
            async with open_runs(ledger, name, folder) as runs:
                await asyncio.gather(*(send(runs, ids, life, sent, chance) for _ in range(2)))
        async with open_runs(ledger, name, folder):
            print(json.dumps(sent), flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    address, name, folder, seconds, *ids = sys.argv[1:]
    asyncio.run(main(address, name, Path(folder), float(seconds), ids))

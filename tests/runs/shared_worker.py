"""A process that carries runs, for the tests that kill it: `python shared_worker.py ADDRESS NAME`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from forestay.kernel import Ids, Ledger, SystemClock, SystemRandomness
from forestay.runs import QUEUE, Runs, projections, standard_registry
from forestay.runs.nodes.registry import NodeRegistry


def registry(name: str) -> NodeRegistry:
    types = standard_registry(custom=False)

    @types.node("test.step")
    async def step(ctx: Any) -> dict[str, Any]:
        """Takes a moment, and leaves one effect behind."""
        await asyncio.sleep(0.02)
        return {"by": await ctx.effect("once", lambda: name)}

    return types


def open_runs(ledger: Ledger, name: str, *, room: int | None = None) -> Runs:
    clock, randomness = SystemClock(), SystemRandomness()
    ids = Ids(clock, randomness)
    return Runs(
        ledger,
        clock=clock,
        ids=ids,
        randomness=randomness,
        secret=b"s" * 32,
        nodes=registry(name),
        workers=ledger.workers(name, QUEUE),
        room=room,
    )


async def main(address: str, name: str) -> None:
    async with Ledger.open(address, projections=projections()) as ledger, open_runs(ledger, name):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))

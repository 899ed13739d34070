"""Two processes write to one family at once: the parent's row tells what both children say (W21)."""

from __future__ import annotations

import asyncio
from typing import Any

from forestay.kernel import Draft, Ledger
from forestay.runs.log import STANDING, stream_of
from forestay.runs.service import projections
from tests.postgres import new_ledger


def started(parent: str | None = None) -> list[Draft]:
    payload: dict[str, Any] = {"workflowId": "w", "owner": {"tenant": "acme"}}
    if parent is not None:
        payload["parent"] = {"runId": parent, "depth": 1}
    return [Draft("run.started", payload)]


def stands(status: str, **more: int) -> list[Draft]:
    return [Draft("node.suspended", {}, {STANDING: {"st": status, "i": "host", **more}})]


async def test_children_that_begin_to_wait_at_once_make_their_parent_wait() -> None:
    address = new_ledger()
    async with (
        Ledger.open(address, projections=projections()) as one,
        Ledger.open(address, projections=projections()) as other,
    ):
        for number in range(20):
            parent, left, right = (f"{name}{number}" for name in ("parent", "left", "right"))
            await one.append(stream_of(parent), started())
            for child in (left, right):
                await one.append(stream_of(child), started(parent))
            await one.append(stream_of(parent), stands("running", c=1))
            await asyncio.gather(
                one.append(stream_of(left), stands("waiting-approval", d=1)),
                other.append(stream_of(right), stands("waiting-approval", d=1)),
            )
        rows = await one.query("SELECT run_id, status FROM runs WHERE parent IS NULL AND status <> 'waiting-approval'")
        assert rows == []

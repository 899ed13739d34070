"""A run that dies: a workflow of everything that lasts, and a process that kills itself at a given append.

`python -m tests.runs.crashing FOLDER before|after N` runs it and sends itself SIGKILL around its Nth append.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from holdfast.kernel.ids import Ids, SeededRandomness
from holdfast.kernel.ledger import Append, Ledger
from holdfast.kernel.problems import Problem
from holdfast.runs.nodes.core import standard_registry
from holdfast.runs.nodes.registry import NodeError, NodeRegistry
from holdfast.runs.service import Runs, projections
from holdfast.runs.types import TERMINAL, CreateRun
from tests.runs.documents import edge, node, workflow
from tests.runs.patient import CountedLedger, PatientClock

TENANT = "acme"
RUN_ID = "run_crash"


def types(folder: Path) -> NodeRegistry:
    """Nodes whose effects leave a mark in a file outside the ledger, once each time they are performed."""
    registry = standard_registry(custom=False)

    def perform(name: str) -> str:
        with (folder / "performed").open("a") as file:
            file.write(name + "\n")
            file.flush()
            os.fsync(file.fileno())
        return name

    @registry.node("test.effect")
    async def effect(ctx: Any) -> dict[str, Any]:
        first = await ctx.effect("one", lambda: perform(f"{ctx.node_id}.one"))
        second = await ctx.effect("two", lambda: perform(f"{ctx.node_id}.two"))
        return {"did": [first, second]}

    @registry.node("test.retry")
    async def retry(ctx: Any) -> dict[str, Any]:
        await ctx.effect("only", lambda: perform(f"{ctx.node_id}.only"))
        if ctx.attempt < 2:
            raise NodeError("busy", "not yet")
        return {"attempt": ctx.attempt}

    @registry.node("test.item")
    async def item(ctx: Any) -> dict[str, Any]:
        return {"v": perform(f"item.{ctx.inputs['item']}")}

    return registry


def documents() -> list[dict[str, Any]]:
    retry = {"maxAttempts": 3, "initialDelayMs": 200}
    child = workflow(
        "child",
        [node("effect", "test.effect"), node("set", "core.transform", config={"assign": {"made": "'child'"}})],
        [edge("effect", "set")],
    )
    parent = workflow(
        "parent",
        [
            node("wait", "core.delay", config={"delayMs": 700}),
            node("gate", "core.approvalGate"),
            node("retry", "test.retry", settings={"retry": retry}),
            node("sub", "core.subWorkflow", config={"workflowId": "child", "outputMapping": {"got": "made"}}),
            node("map", "core.map", config={"items": "[1, 2, 3]", "concurrency": 2, "node": {"typeId": "test.item"}}),
            node("kids", "core.map", config={"items": "[1, 2]", "concurrency": 2, "workflowId": "tiny"}),
            node("side", "test.effect"),
            node(
                "end", "core.transform", config={"outputs": {"got": "variables.got", "kids": "nodes.kids.output.count"}}
            ),
        ],
        [
            edge("wait", "gate"),
            edge("wait", "side"),
            edge("gate", "retry"),
            edge("retry", "sub"),
            edge("sub", "map"),
            edge("map", "kids"),
            edge("kids", "end"),
            edge("side", "end"),
        ],
    )
    return [child, workflow("tiny", [node("n", "core.identity")]), parent]


async def drive(runs: Runs) -> Any:
    """Put the workflows, start the run if it is not there, approve, and wait for the end."""
    for document in documents():
        await runs.put_workflow(document, tenant=None)
    try:
        await runs.create_run(CreateRun(workflow_id="parent"), TENANT, run_id=RUN_ID)
    except Problem as problem:
        if problem.key != "run_already_active":
            raise
    while (snapshot := await runs.get_run(RUN_ID, TENANT)).status not in TERMINAL:
        if await runs.interrupts(RUN_ID, TENANT):
            try:
                await runs.resolve_by_node(RUN_ID, "gate", TENANT, {"resumeValue": {"action": "accept"}}, "ann")
            except Problem as problem:
                if problem.key not in ("interrupt_already_resolved", "ledger_full"):
                    raise
        await asyncio.sleep(0.05)
    return snapshot


class DyingLedger(CountedLedger):
    """Kills its process around an append. It counts what the engine appends, not heartbeats."""

    moment = ""
    left = -1

    async def commit(self, *appends: Append) -> Any:
        counts = any(item.stream.startswith("run/") for item in appends)
        if counts:
            DyingLedger.left -= 1
        if counts and DyingLedger.left == 0 and DyingLedger.moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        records = await super().commit(*appends)
        if counts and DyingLedger.left == 0 and DyingLedger.moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return records


async def live(folder: Path, clock: PatientClock, seed: int, ledger: type[Ledger] = CountedLedger) -> Any:
    """One life of the process on `folder`."""
    randomness = SeededRandomness(seed)
    ids = Ids(clock, randomness)
    options = {"projections": projections(), "clock": clock, "ids": ids}
    async with (
        ledger.open(folder / "ledger.db", **options) as opened,
        Runs(opened, clock=clock, ids=ids, randomness=randomness, secret=b"s", nodes=types(folder)) as runs,
    ):
        return await drive(runs)


if __name__ == "__main__":
    folder, DyingLedger.moment, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    DyingLedger.left = count
    dying = PatientClock()
    dying.run(live(folder, dying, 1, DyingLedger))
    print("survived", count - DyingLedger.left)

"""Wake-ups under stress: signals and timers for a few runs, from four processes that hand them to each other all the
while. No run is carried by two, no signal is lost, and who follows everything beside it misses nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from forestay.kernel import Ledger
from forestay.runs import CreateRun, projections
from tests.postgres import new_ledger
from tests.runs.documents import edge, node, when, workflow
from tests.runs.stress_worker import MANY, TENANT, open_runs

SECONDS = 60
KEYS = 5
TICKS = workflow(
    "ticks",
    [
        node("tick", "core.waitForEvent", config={"event": "tick"}),
        node("alone", "test.alone"),
        node("rest", "core.delay", config={"delayMs": 15}),
    ],
    [
        edge("tick", "alone"),
        edge("alone", "rest"),
        edge("rest", "tick", label="loopback", condition=when("nodes.tick.output.event.last == false")),
    ],
    settings={"maxLoopbackIterations": MANY},
)


async def followed(ledger: Ledger, seen: dict[str, list[int]]) -> None:
    async for _, record in ledger.follow_all("run/", 0):
        seen.setdefault(record.stream, []).append(record.seq)


async def play(folder: Path, seconds: float) -> None:
    address = new_ledger()
    seen: dict[str, list[int]] = {}
    async with (
        Ledger.open(address, projections=projections()) as ledger,
        open_runs(ledger, "api", folder, room=0) as api,
    ):
        following = asyncio.ensure_future(followed(ledger, seen))
        await api.put_workflow(TICKS, tenant=None)
        ids = [(await api.create_run(CreateRun(workflow_id="ticks"), TENANT)).run_id for _ in range(KEYS)]
        program = str(Path(__file__).with_name("stress_worker.py"))
        line = [sys.executable, "-P", program, address]
        workers = [
            subprocess.Popen(
                [*line, f"w{number}", str(folder), str(seconds), *ids],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(4)
        ]
        try:
            sent: Counter[str] = Counter()
            for worker in workers:
                assert worker.stdout is not None
                sent.update(json.loads(await asyncio.to_thread(worker.stdout.readline)))
            for run_id in ids:
                await api.signal(run_id, TENANT, "tick", {"last": True})
            async with asyncio.timeout(120):
                ended = await asyncio.gather(*(api.wait(run_id, TENANT) for run_id in ids))
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
        assert {run.status for run in ended} == {"completed"}
        assert not list(folder.glob("*.overlap")), "one process at a time carries a run"
        for run_id in ids:
            events = await api.events(run_id, TENANT)
            done = Counter(event.node_id for event in events if event.type == "node.completed")
            assert done == dict.fromkeys(("tick", "alone", "rest"), sent[run_id] + 1), "each signal once"
        heads = {stream: list(range(head.seq + 1)) for stream, head in (await ledger.streams("run/")).items()}
        async with asyncio.timeout(30):
            while seen != heads:
                await asyncio.sleep(0.1)
        following.cancel()
        assert (await ledger.verify()).ok


@pytest.mark.sweep
def test_i1_k1_l8_no_wake_up_is_lost_and_no_run_is_carried_twice(tmp_path: Path) -> None:
    asyncio.run(play(tmp_path, SECONDS))

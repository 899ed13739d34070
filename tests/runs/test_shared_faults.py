"""Real processes that carry runs, killed and stopped at random: every run ends, and nothing is done twice."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from forestay.kernel import Ledger
from forestay.runs import CreateRun, Runs, projections
from tests.postgres import new_ledger
from tests.runs.documents import edge, node, workflow
from tests.runs.shared_worker import open_runs

TENANT = "acme"
STEPS = [f"s{number}" for number in range(4)]
STORY = workflow(
    "story",
    [*(node(name, "test.step") for name in STEPS), node("gate", "core.approvalGate"), node("last", "test.step")],
    [edge(a, b) for a, b in zip([*STEPS, "gate"], [*STEPS[1:], "gate", "last"], strict=True)],
)


def worker(address: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", str(Path(__file__).with_name("shared_worker.py")), address, name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


async def disturb(address: str, workers: list[subprocess.Popen[str]], faults: list[str]) -> None:
    """Kill a process and, unless it is the last fault, put another in its place; or stop it for longer than its
    lease."""
    chance = random.Random(7)
    for number, fault in enumerate(faults):
        await asyncio.sleep(chance.uniform(0.3, 1.0))
        place = chance.randrange(len(workers))
        victim = workers[place]
        if fault == "kill":
            victim.kill()
            victim.communicate()
            if number == len(faults) - 1:
                return
            workers[place] = await asyncio.to_thread(worker, address, f"new-{number}")
        else:
            victim.send_signal(signal.SIGSTOP)
            await asyncio.sleep(3.5)
            victim.send_signal(signal.SIGCONT)


async def finish(api: Runs, run_id: str) -> None:
    """Answer the gate of a run, wherever it is carried, and wait for its end."""
    async for event in api.follow(run_id, TENANT):
        if event.type == "approval.requested":
            await api.resolve_by_node(run_id, "gate", TENANT, {"resumeValue": {"action": "accept"}}, "ann")


async def play(size: int, count: int, faults: list[str]) -> None:
    address = new_ledger()
    begun = [asyncio.to_thread(worker, address, f"w{number}") for number in range(size)]
    workers = await asyncio.gather(*begun)
    try:
        async with Ledger.open(address, projections=projections()) as ledger, open_runs(ledger, "api", room=0) as api:
            await api.put_workflow(STORY, tenant=None)
            disturbing = asyncio.ensure_future(disturb(address, workers, faults))
            made = [(await api.create_run(CreateRun(workflow_id="story"), TENANT)).run_id for _ in range(count)]
            async with asyncio.timeout(60):
                await asyncio.gather(*(finish(api, run_id) for run_id in made))
            await disturbing
            for run_id in made:
                await check(api, run_id)
            assert (await ledger.verify()).ok
    finally:
        for process in workers:
            process.kill()
            process.communicate()


async def check(api: Runs, run_id: str) -> None:
    run = await api.get_run(run_id, TENANT)
    assert run.status == "completed", run
    events = await api.events(run_id, TENANT)
    done = Counter(event.node_id for event in events if event.type == "node.completed")
    assert done == Counter([*STEPS, "gate", "last"]), "each node completes once"
    effects = Counter(event.node_id for event in events if event.type == "forestay.effect.recorded")
    assert all(found == 1 for found in effects.values()), "a recorded effect is not had again"
    assert sum(event.type == "interrupt.resolved" for event in events) == 1, "the answer was taken once"


def test_runs_outlive_a_worker_that_is_killed() -> None:
    asyncio.run(play(2, 4, ["kill"]))


@pytest.mark.sweep
def test_runs_outlive_workers_that_are_killed_and_stopped() -> None:
    asyncio.run(play(3, 300, ["kill", "stop", "kill", "stop", "stop", "kill"]))

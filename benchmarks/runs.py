"""The cost of a run with full durability: `python -m benchmarks.runs`, or `run()` for `make bench`.

The figures are this machine's. DBOS is measured beside us in its own environment, with the same five steps: each step's
output is on disk before the next step begins, and so are the start and the end of the run. That is seven commits for
DBOS (start, five outputs, end) and six for us (an end and the start that follows are one commit), all of them synced;
`commits()` counts ours. Steps that also record an effect inside have one more record each, and have their own row.
Both are called in the process and wait for the end; ours uses the same event loop as `forestay up`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks import alternatives
from forestay.kernel import Ids, Ledger, SystemClock, SystemRandomness, parse_iso
from forestay.runs import CreateRun, NodeRegistry, Runs, standard_registry
from forestay.runs.service import projections
from forestay.surface import run as on_loop

TENANT = "bench"

# The same five steps, each recorded before the next begins, on a SQLite file, called from `clients` threads.
_DBOS = """
import json, sys, threading, time
from dbos import DBOS

folder, clients, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{folder}/dbos.sqlite", "run_admin_server": False,
             "log_level": "CRITICAL"})

@DBOS.step()
def step(number: int) -> int:
    return 1

@DBOS.workflow()
def five() -> int:
    return sum(step(number) for number in range(5))

DBOS.launch()
five()
times, until = [], time.perf_counter() + seconds

def client() -> None:
    while time.perf_counter() < until:
        begun = time.perf_counter()
        five()
        times.append(time.perf_counter() - begun)

begun = time.perf_counter()
threads = [threading.Thread(target=client) for _ in range(clients)]
for thread in threads: thread.start()
for thread in threads: thread.join()
spent = time.perf_counter() - begun
times.sort()
DBOS.destroy()
print(json.dumps({"rate": len(times) / spent, "p50": times[len(times) // 2] * 1000}))
"""


@asynccontextmanager
async def host(folder: Path, nodes: NodeRegistry | None = None) -> AsyncIterator[Runs]:
    clock, randomness = SystemClock(), SystemRandomness()
    ids = Ids(clock, randomness)
    async with (
        Ledger.open(folder / "ledger.db", projections=projections(), clock=clock, ids=ids) as ledger,
        Runs(ledger, clock=clock, ids=ids, randomness=randomness, secret=b"b" * 32, nodes=nodes) as runs,
    ):
        yield runs


def document(id: str, nodes: list[dict[str, Any]], chain: bool = True, **fields: Any) -> dict[str, Any]:
    full = [{"name": n["id"], "position": {"x": 0, "y": 0}, "config": {}, "inputs": {}, **n} for n in nodes]
    links = [
        {"id": f"e{i}", "sourceNodeId": a["id"], "targetNodeId": b["id"]}
        for i, (a, b) in enumerate(itertools.pairwise(nodes))
    ]
    settings = fields.pop("settings", {})
    return {
        "id": id, "name": id, "version": "1", "nodes": full, "edges": links if chain else [], "triggers": [],
        "variables": [], "metadata": {}, "settings": settings, **fields,
    }  # fmt: skip


async def _one(runs: Runs, workflow: str) -> float:
    begun = time.perf_counter()
    created = await runs.create_run(CreateRun(workflow_id=workflow), TENANT)
    if created.status != "completed":
        await runs.wait(created.run_id, TENANT)
    return time.perf_counter() - begun


async def throughput(workflow: str, clients: int, seconds: float, nodes: NodeRegistry) -> tuple[float, float, float]:
    """Return (runs/s, p50 ms, p99 ms) from the request to the terminal event on disk."""
    with tempfile.TemporaryDirectory() as folder:
        async with host(Path(folder), nodes) as runs:
            for item in documents():
                await runs.put_workflow(item, tenant=TENANT)
            times: list[float] = []
            until = time.perf_counter() + seconds

            async def client() -> None:
                while time.perf_counter() < until:
                    times.append(await _one(runs, workflow))

            begun = time.perf_counter()
            await asyncio.gather(*(client() for _ in range(clients)))
            spent = time.perf_counter() - begun
    times.sort()
    return len(times) / spent, times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000


def documents() -> list[dict[str, Any]]:
    """Return three workflows: one node; five recorded steps; five steps that each record an effect."""
    return [
        document("noop", [{"id": "n", "typeId": "core.noop"}]),
        document("five", [{"id": f"s{i}", "typeId": "bench.step"} for i in range(5)]),
        document("five-effects", [{"id": f"s{i}", "typeId": "bench.effect"} for i in range(5)]),
    ]


def registry() -> NodeRegistry:
    types = standard_registry(custom=False)

    @types.node("bench.step")
    async def step(ctx: Any) -> dict[str, Any]:
        return {"v": 1}

    @types.node("bench.effect")
    async def effect(ctx: Any) -> dict[str, Any]:
        return {"v": await ctx.effect("work", lambda: 1)}

    return types


async def commits(workflow: str) -> int:
    """Return the number of transactions of one run of `workflow`."""
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        async with host(Path(folder), registry()) as runs:
            for item in documents():
                await runs.put_workflow(item, tenant=TENANT)
            writer = runs._ledger._writer
            write = writer._write

            def counted(group: Any) -> Any:
                nonlocal count
                count += 1
                return write(group)

            writer._write = counted  # type: ignore[method-assign]
            await _one(runs, workflow)
    return count


async def mapped(count: int) -> float:
    """Return the items/s of a map that records an effect for each item."""
    inner = {"items": "inputs.items", "concurrency": 64, "node": {"typeId": "bench.effect"}}
    with tempfile.TemporaryDirectory() as folder:
        async with host(Path(folder), registry()) as runs:
            item = document("map", [{"id": "m", "typeId": "core.map", "config": inner}])
            await runs.put_workflow(item, tenant=None)
            begun = time.perf_counter()
            created = await runs.create_run(CreateRun(workflow_id="map", inputs={"items": list(range(count))}), TENANT)
            async for _ in runs.follow(created.run_id, TENANT):
                pass
            return count / (time.perf_counter() - begun)


async def growth(events: int) -> tuple[float, float]:
    """Return the microseconds per event of one long loop: for its first thousands, and around number `events`."""
    loop = document(
        "loop",
        [{"id": "a", "typeId": "core.transform", "config": {"assign": {"n": "variables.n + 1"}}}],
        variables=[{"name": "n", "type": "number", "defaultValue": 0}],
        settings={"maxLoopbackIterations": 10**9},
    )
    loop["edges"] = [
        {
            "id": "back", "sourceNodeId": "a", "targetNodeId": "a", "label": "loopback",
            "condition": {"type": "expression", "expression": f"variables.n < {events // 4}"},
        }
    ]  # fmt: skip
    from forestay.runs import Limits

    clock, randomness = SystemClock(), SystemRandomness()
    ids = Ids(clock, randomness)
    limits = Limits(max_loop_iterations=10**9, max_node_executions=10**9)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Ledger.open(Path(folder) / "ledger.db", projections=projections(), clock=clock, ids=ids) as ledger,
            Runs(ledger, clock=clock, ids=ids, randomness=randomness, secret=b"b", limits=limits) as runs,
        ):
            await runs.put_workflow(loop, tenant=None)
            created = await runs.create_run(CreateRun(workflow_id="loop"), TENANT)
            marks: dict[int, float] = {}
            async for event in runs.follow(created.run_id, TENANT):
                if event.sequence % 1000 == 0:
                    marks[event.sequence] = time.perf_counter()
            last = max(marks)
            early = (marks[10_000] - marks[2_000]) / 8_000
            late = (marks[last] - marks[last - 8_000]) / 8_000
            return early * 1e6, late * 1e6


async def suspended(count: int) -> tuple[float, float]:
    """Return (seconds from opening the file to the first answered approval, KiB of memory per suspended run)."""
    gate = document("gate", [{"id": "g", "typeId": "core.approvalGate"}])
    with tempfile.TemporaryDirectory() as folder:
        async with host(Path(folder)) as runs:
            await runs.put_workflow(gate, tenant=None)
            created: list[str] = []
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(10):
                made = await asyncio.gather(
                    *(runs.create_run(CreateRun(workflow_id="gate"), TENANT) for _ in range(100))
                )
                created.extend(item.run_id for item in made)
            gc.collect()
            memory = (tracemalloc.get_traced_memory()[0] - before) / len(created) / 1024
            tracemalloc.stop()
            while len(created) < count:
                made = await asyncio.gather(
                    *(runs.create_run(CreateRun(workflow_id="gate"), TENANT) for _ in range(200))
                )
                created.extend(item.run_id for item in made)
        begun = time.perf_counter()
        async with host(Path(folder)) as runs:
            await runs.resolve_by_node(created[0], "g", TENANT, {"resumeValue": {"action": "accept"}}, "b")
            spent = time.perf_counter() - begun
    return spent, memory


def resumed(suspended_runs: int = 0) -> tuple[float, float]:
    """Return the seconds from the start of a host's process to the first new event of an interrupted run, and to its
    first answer. A real `forestay up` gets SIGKILL while a run waits for a time that passes before the restart."""
    pause = document("pause", [{"id": "w", "typeId": "core.delay", "config": {"delayMs": 400}}])
    gate = document("gate", [{"id": "g", "typeId": "core.approvalGate"}])
    with tempfile.TemporaryDirectory() as folder:
        defined = Path(folder) / "workflows"
        defined.mkdir()
        for item in (pause, gate):
            (defined / f"{item['id']}.json").write_text(json.dumps(item))
        with _up(folder, defined) as (process, client, _):
            for _ in range(suspended_runs):
                client.post("/v1/runs", json={"workflowId": "gate"}).raise_for_status()
            run_id = client.post("/v1/runs", json={"workflowId": "pause"}).json()["runId"]
            process.kill()
        time.sleep(0.5)  # the pause ends while no host runs
        with _up(folder, defined) as (process, client, begun):
            answered = time.time() - begun
            page = client.get(f"/v1/runs/{run_id}/events/poll", params={"lastSequence": 1, "timeout": 10}).json()
            went_on = next(item["timestamp"] for item in page["events"] if item["type"] != "forestay.timer.set")
            process.terminate()
    return parse_iso(went_on) / 1000 - begun, answered


@contextmanager
def _up(folder: str, workflows: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client, float]]:
    command = [sys.executable, "-m", "forestay.cli.main", "up", "--port", "0", "--json"]
    options = ["--data", f"{folder}/data", "--workflows", str(workflows)]
    environment = {**os.environ, "FORESTAY_API_KEY": "hf_bench_0123456789abcdef0123456789abcdef"}
    begun = time.time()
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=folder
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["result"]["url"]
        headers = {"Authorization": f"Bearer {environment['FORESTAY_API_KEY']}"}
        with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
            yield process, client, begun
    finally:
        process.kill()
        process.communicate()


async def streams(count: int, ticks: int) -> tuple[float, float]:
    """(p50, p95) ms from an event's commit to its arrival at each of `count` followers."""
    with tempfile.TemporaryDirectory() as folder:
        async with host(Path(folder)) as runs:
            gate = document("wait", [{"id": "w", "typeId": "core.waitForEvent", "config": {"event": "never"}}])
            await runs.put_workflow(gate, tenant=None)
            run_id = (await runs.create_run(CreateRun(workflow_id="wait"), TENANT)).run_id
            sent: dict[int, float] = {}
            delays: list[float] = []
            writer = runs._ledger._writer
            announced = writer._announced

            def committed(records: Any) -> Any:  # right after COMMIT
                now = time.perf_counter()
                sent.update({item.seq: now for item in records if item.type == "forestay.signal.received"})
                return announced(records)

            writer._announced = committed

            async def follower() -> None:
                async for event in runs.follow(run_id, TENANT, 5):
                    if event.sequence in sent:
                        delays.append(time.perf_counter() - sent[event.sequence])  # noqa: PERF401 - taken as they come

            tasks = [asyncio.create_task(follower()) for _ in range(count)]
            await asyncio.sleep(0.5)
            for _ in range(ticks):
                await runs.signal(run_id, TENANT, "tick", None)
                await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    delays.sort()
    return delays[len(delays) // 2] * 1000, delays[int(len(delays) * 0.95)] * 1000


def dbos(clients: int) -> dict[str, Any]:
    """Measure DBOS on the same machine with the same five steps; it also leaves SQLite at synchronous=FULL."""
    with tempfile.TemporaryDirectory() as folder:
        return alternatives.measure("dbos-3.3.0", _DBOS, folder, str(clients), "3")


def beside(clients: int, ours: float, measured: list[dict[str, Any]]) -> tuple[str, str, str]:
    what = f"five steps in DBOS 3.3.0, {clients} client(s)"
    for one in measured:
        if "error" in one:
            return what, "not measured", one["error"]
    theirs = sorted(measured, key=lambda one: one["rate"])[len(measured) // 2]
    figure = f"{theirs['rate']:.0f} runs/s, {theirs['rate'] * 5:.0f} steps/s"
    return what, figure, f"p50 {theirs['p50']:.1f} ms; ours is {ours / theirs['rate']:.1f} times as fast"


def run() -> list[tuple[str, str, str]]:
    """(what, figure, note) for the benchmark report."""
    rows: list[tuple[str, str, str]] = []
    types = registry()
    labels = {
        "noop": "no-op run",
        "five": "run of five steps, each on record before the next",
        "five-effects": "run of five steps with an effect on record inside each",
    }
    for workflow, label in labels.items():
        count = on_loop(commits(workflow))
        for clients in (1, 16):
            ours, theirs = [], []
            for _ in range(3 if workflow == "five" else 1):  # in turns: the disk's speed changes over time
                ours.append(on_loop(throughput(workflow, clients, 2.0, types)))
                if workflow == "five":
                    theirs.append(dbos(clients))
            rate, p50, p99 = sorted(ours)[len(ours) // 2]
            note = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, end to end, synchronous=FULL, {count} commit(s) a run"
            steps = "" if workflow == "noop" else f", {rate * 5:.0f} steps/s"
            rows.append((f"{label}, {clients} client(s)", f"{rate:.0f} runs/s{steps}", note))
            if workflow == "five":
                rows.append(beside(clients, rate, theirs))
    rate = statistics.median(on_loop(mapped(1000)) for _ in range(3))
    rows.append(("map over 1,000 items, an effect each", f"{rate:.0f} nodes/s", "64 at a time"))
    early, late = on_loop(growth(100_000))
    rows.append(("an event of one run", f"{early:.0f} us early, {late:.0f} us at 100,000", "same run, one log"))
    spent, memory = on_loop(suspended(10_000))
    rows.append(("10,000 suspended runs: open to first answer", f"{spent * 1000:.0f} ms", "new process state"))
    rows.append(("memory of a suspended run", f"{memory:.1f} KiB", "while kept; the engine keeps 2,000"))
    went_on, answered = (statistics.median(item) for item in zip(*(resumed() for _ in range(3)), strict=True))
    note = f"a real `forestay up` after SIGKILL, median of 3; it answers requests after {answered * 1000:.0f} ms"
    rows.append(("start of the process to the interrupted run's next event", f"{went_on * 1000:.0f} ms", note))
    for count in (1, 500):
        p50, p95 = on_loop(streams(count, 30))
        rows.append((f"event to follower, {count} follower(s)", f"p50 {p50:.2f} ms, p95 {p95:.2f} ms", "in process"))
    return rows


if __name__ == "__main__":
    for what, figure, note in run():
        print(f"{what:50} {figure:38} {note}")

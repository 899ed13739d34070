"""Many processes on one PostgreSQL: `python -m benchmarks fleet`.

PostgreSQL comes from a wheel with its default settings (fsync and synchronous_commit are on). Each worker is a process
with its own callers; the figures are their sum. SQLite is one process with one worker's callers. DBOS runs the same
five steps on the same server, in as many processes. All of them share the machine's cores with the database: work that
waits grows with the workers, work that computes grows until the cores are busy.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.postgres import Server, new_server
from tests.wire import Wire, wire

from benchmarks import alternatives
from benchmarks.fleet_worker import PAUSE_SECONDS, TENANT, documents, open_runs
from benchmarks.measure import duration, percentile, percentiles
from forestay.kernel import Ledger
from forestay.runs import CreateRun, projections
from forestay.surface import run as on_loop

Row = tuple[str, str, str]
SECONDS = float(os.environ.get("FLEET_SECONDS", "4"))
SIZES = (1, 2, 4, 8)
CLIENTS = 16
LABELS = {
    "append": "appends of one record",
    "noop": "no-op runs",
    "five": "runs of five steps",
    "waiting": f"runs of five steps that wait {PAUSE_SECONDS} s each",
    "turn": "agent turns",
}
WAYS = ("killed", "stopped", "cut off")
"""SIGKILL; SIGSTOP; the connection between a worker and the database silently carries nothing."""
_ROOT = Path(__file__).parent.parent
_DBOS = """
import json, os, sys, threading, time
from dbos import DBOS

url, clients, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "CRITICAL",
             "executor_id": str(os.getpid()), "sys_db_pool_size": 20})

@DBOS.step()
def step(number: int) -> int:
    return 1

@DBOS.workflow()
def five() -> int:
    return sum(step(number) for number in range(5))

DBOS.launch()
five()
count, until = [0] * clients, time.perf_counter() + seconds

def client(number: int) -> None:
    while time.perf_counter() < until:
        five()
        count[number] += 1

begun, used = time.perf_counter(), time.process_time()
threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
for thread in threads: thread.start()
for thread in threads: thread.join()
spent, used = time.perf_counter() - begun, time.process_time() - used
DBOS.destroy()
print(json.dumps({"rate": sum(count) / spent, "done": sum(count), "processor": used}))
"""


class Process:
    """A worker process."""

    def __init__(self, address: str, name: str, work: str, clients: int = CLIENTS) -> None:
        line = [sys.executable, "-P", "-m", "benchmarks.fleet_worker", address, name, work, str(clients)]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "FORESTAY_SECRET": "b" * 64}  # hosts share it
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def heard(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "a worker ended before it answered"
        return line

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Figure(dict[str, float]):
    """The `rate` of all processes, the `p50` of one, and per work item the processor milliseconds of `worker` and
    `database`."""


@contextmanager
def processes(address: str, work: str, count: int, clients: int = CLIENTS) -> Iterator[list[Process]]:
    with ExitStack() as stack:
        made = [Process(address, f"worker{number}", work, clients) for number in range(count)]
        for item in made:
            stack.callback(item.close)
        for item in made:
            assert item.heard() == "ready\n"
        yield made


def throughput(address: str, work: str, count: int, seconds: Callable[[], float] = lambda: 0.0) -> Figure:
    """Measure `count` workers; `seconds` returns the processor time of the database so far."""
    prepare(address)
    with processes(address, work, count) as made:
        database = seconds()
        for item in made:
            item.say(f"{SECONDS}\n")
        said = [json.loads(item.heard()) for item in made]
        return _sum(said, seconds() - database)


def prepare(address: str) -> None:
    async def put() -> None:
        async with Ledger.open(address, projections=projections()) as ledger, open_runs(ledger, "maker") as runs:
            for item in documents():
                await runs.put_workflow(item, tenant=TENANT)

    asyncio.run(put())


def dbos(server: Server, count: int) -> Figure | str:
    """Measure DBOS in `count` processes, or return why it cannot run."""
    line = [str(alternatives.python_of("dbos-3.3.0")), "-c", _DBOS, server.address, str(CLIENTS), str(SECONDS)]
    database = server.seconds()
    made = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)]
    said = []
    for process in made:
        out, err = process.communicate(timeout=300)
        if process.returncode != 0:
            return ((err or "it failed").strip().splitlines() or ["it failed"])[-1][:200]
        said.append(json.loads(out.strip().splitlines()[-1]))
    return _sum(said, server.seconds() - database)


def _sum(said: Sequence[dict[str, float]], database: float) -> Figure:
    done = sum(item["done"] for item in said)
    return Figure(
        rate=sum(item["rate"] for item in said),
        p50=max(item.get("p50", 0.0) for item in said),
        worker=1000 * sum(item["processor"] for item in said) / done,
        database=1000 * database / done,
    )


async def _commands(address: str, count: int) -> list[float]:
    """Return the seconds of answers to questions of runs that another process executes."""
    taken: list[float] = []
    async with Ledger.open(address, projections=projections()) as ledger, open_runs(ledger, "api", room=0) as api:
        for _ in range(count):
            run_id = (await api.create_run(CreateRun(workflow_id="gate"), TENANT)).run_id
            while (await api.get_run(run_id, TENANT)).status != "waiting-approval":
                await asyncio.sleep(0.01)
            begun = time.perf_counter()
            await api.resolve_by_node(run_id, "g", TENANT, {"resumeValue": {"action": "accept"}}, "b")
            taken.append(time.perf_counter() - begun)
    return taken


def commands(address: str, count: int = 40) -> list[float]:
    prepare(address)
    with processes(address, "noop", 2):
        return on_loop(_commands(address, count))


def takeovers(address: str, way: str, server: Server, times: int = 4) -> list[float]:
    """Return the seconds from a worker's loss to the first record of each run's next owner."""
    prepare(address)
    found: list[float] = []
    with processes(address, "noop", 2), wire(server.address) as line:
        by_wire = line.address(address.rpartition("schema=")[2])
        for number in range(times):
            victim = Process(by_wire if way == "cut off" else address, f"victim{number}", "long", 8)
            try:
                assert victim.heard() == "ready\n"
                victim.say("0.2\n")
                victim.heard()
                gone = time.time()
                _take_away(victim, way, line)
                found += asyncio.run(_taken_over(address, f"victim{number}", gone))
            finally:
                victim.close()
                line.release()
    return found


def _take_away(victim: Process, way: str, line: Wire) -> None:
    if way == "cut off":
        line.hold()
    else:
        victim.process.send_signal(signal.SIGKILL if way == "killed" else signal.SIGSTOP)


async def _taken_over(address: str, victim: str, gone: float) -> list[float]:
    question = "SELECT count(*) FROM runs WHERE instance = ? AND ended IS NULL"
    async with Ledger.open(address, projections=projections()) as ledger:
        after = await ledger.position()
        while (await ledger.query(question, (victim,)))[0][0]:
            if time.time() - gone > 30:
                return [30.0]
            await asyncio.sleep(0.05)
        records = [record for _, record in await ledger.read_all("run/", after, 100_000)]
    return [record.ts / 1000 - gone for record in records if record.type == "lease.acquired"]


def run(works: Sequence[str] = tuple(LABELS), sizes: Sequence[int] = SIZES) -> Iterator[Row]:
    """(what, figure, note) for the benchmark report."""
    server = new_server()
    try:
        numbers = iter(range(10_000))

        def address() -> str:
            join = "&" if "?" in server.address else "?"
            return f"{server.address}{join}schema=bench_{next(numbers)}"

        for work in works:
            yield from _rows(work, sizes, address, server)
        taken = commands(address())
        yield "answer to a run that another process carries", percentiles(taken), f"{len(taken)} answers, in process"
        for way in WAYS:
            taken = takeovers(address(), way, server)
            note = f"{len(taken)} runs, from there to the next owner's first record; bar: p99 under 5 s"
            figure = f"p50 {duration(percentile(taken, 0.5))}, p99 {duration(percentile(taken, 0.99))}"
            yield f"takeover of a worker that is {way}", figure, note
    finally:
        server.stop()


def _rows(work: str, sizes: Sequence[int], address: Callable[[], str], server: Server) -> Iterator[Row]:
    label = LABELS[work]
    with tempfile.TemporaryDirectory() as folder:
        sqlite = throughput(str(Path(folder) / "ledger.db"), work, 1)
    note = f"p50 {duration(sqlite['p50'])}; {sqlite['worker']:.2f} ms of processor each"
    yield f"{label}, SQLite, 1 process", f"{sqlite['rate']:,.0f}/s", note
    first = 0.0
    for size in sizes:
        found = throughput(address(), work, size, server.seconds)
        first = first or found["rate"] / size
        notes = [f"p50 {duration(found['p50'])}", _processor(found)]
        notes.append(f"{found['rate'] / sqlite['rate']:.2f} of SQLite" if size == 1 else _linear(found, first, size))
        yield f"{label}, PostgreSQL, {size} worker(s)", f"{found['rate']:,.0f}/s", "; ".join(notes)
        if work == "five":
            theirs = dbos(server, size)
            if isinstance(theirs, str):
                yield f"{label}, DBOS 3.3.0, {size} process(es)", "not measured", theirs
            else:
                note = f"{_processor(theirs)}; ours is {found['rate'] / theirs['rate']:.1f} times as fast"
                yield f"{label}, DBOS 3.3.0, {size} process(es)", f"{theirs['rate']:,.0f}/s", note


def _processor(found: Figure) -> str:
    return f"{found['worker']:.2f} ms of processor each, the database's {found['database']:.2f} ms"


def _linear(found: Figure, first: float, size: int) -> str:
    return f"{found['rate'] / size / first:.2f} of linear"


if __name__ == "__main__":
    works = sys.argv[1:2] or tuple(LABELS)
    for what, figure, note in run(works):
        print(f"{what:60} {figure:32} {note}", flush=True)

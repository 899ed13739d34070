"""A run that dies: a workflow of everything that lasts, and processes that end, or run out of disk, at a given moment.

`python -m tests.runs.crashing` reads one `Life` a line, lives it in a process of its own, and says how that ended:
0, or minus the signal that ended it. Moments, counted from the time the run is created or, in a life that recovers it,
from the start:

- `within`     while the Nth event (of a run or of a webhook) is written: inside the transaction, before its end.
- `committed`  the Nth commit is on disk, and nobody has been told.
- `told`       the Nth commit is on disk, and the engine knows.
- `space`, `limit`  from the Nth commit on the disk is full for a few commits: a file system without a free block
  (ENOSPC), or a file that must not grow (EFBIG). The process lives on, and there is room again.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from forestay.host.egress import Egress
from forestay.kernel import Append, Ids, Problem, Record, SeededRandomness, Transaction
from forestay.runs.log import Outbox
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeError, NodeRegistry
from forestay.runs.ports import Caller, HttpRequest, HttpResponse
from forestay.runs.service import Runs, projections
from forestay.runs.types import TERMINAL, CreateRun
from forestay.runs.webhooks import Webhooks
from tests.runs.documents import edge, node, when, workflow
from tests.runs.patient import CountedLedger, PatientClock

TENANT = "acme"
RUN_ID = "run_crash"
KEY = b"w" * 32
# What the receiver asked for: the ends of the run and of its children, a question, an attempt that failed.
WANTED = ["run.started", "node.suspended", "node.retried", "run.completed"]
FULL_FOR = 3
_PASSING = ("run_already_active", "interrupt_already_resolved", "ledger_full", "ledger_io", "ledger_conflict")
_DISK_BYTES = 4 * 1024 * 1024


class Life(msgspec.Struct, frozen=True):
    """One life of the process on `folder`."""

    folder: str
    url: str
    moment: str = ""
    count: int = 0
    seed: int = 1
    start_ms: int = 1_767_225_600_000
    graph: int | None = None  # a random workflow instead of the one with everything
    recovers: bool = False  # count from the start: the run is there already


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


KINDS: list[tuple[str, dict[str, Any]]] = [
    ("core.noop", {}),
    ("core.transform", {"assign": {"n": "variables.n + 1"}, "outputs": {"v": "variables.n"}}),
    ("core.delay", {"delayMs": 20}),
    ("core.approvalGate", {}),
    ("core.subWorkflow", {"workflowId": "child"}),
    ("core.map", {"items": "[1, 2, 3]", "concurrency": 2, "node": {"typeId": "test.item"}}),
    ("core.map", {"items": "[1, 2, 3]", "concurrency": 2, "workflowId": "child"}),
    ("core.channelWrite", {"channelName": "log", "value": 1, "reducer": "append"}),
    ("test.effect", {}),
    ("test.retry", {}),
]


def random_graph(seed: int) -> dict[str, Any]:
    """A graph in which nothing fails for good, so that what happens does not depend on who is faster."""
    chance = random.Random(seed)
    settings = {"retry": {"maxAttempts": 3, "initialDelayMs": 5}}
    nodes, links = [], []
    for index in range(chance.randint(3, 7)):
        kind, config = chance.choice(KINDS)
        nodes.append(node(f"n{index}", kind, config=config, settings=settings))
        rule = chance.choice(["all_success", "all_success", "all_complete", "none_failed", "any_failed"])
        sources = [source for source in range(index) if chance.random() < 0.5]
        links.extend(edge(f"n{source}", f"n{index}", triggerRule=rule) for source in sources)
    nodes.append(node("last", "core.transform", config={"assign": {"loops": "variables.loops + 1"}}))
    links.extend(edge(item["id"], "last", triggerRule="all_complete") for item in nodes[:-1])
    again = when("variables.loops < 2")
    links.append(edge("last", chance.choice(nodes)["id"], id="back", label="loopback", condition=again))
    numbers = [{"name": name, "type": "number", "defaultValue": 0} for name in ("n", "loops")]
    return workflow("parent", nodes, links, variables=numbers)


class Sender:
    """The host's own way out, which its clock waits for: a socket must not look like time that passed."""

    def __init__(self, url: str, clock: PatientClock) -> None:
        self.egress = Egress([url.removeprefix("http://").partition("/")[0]])
        self._clock = clock

    async def send(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        self._clock.in_flight += 1
        try:
            return await self.egress.send(request, caller)
        finally:
            self._clock.in_flight -= 1


class Trap(CountedLedger):
    """A ledger that ends its process, or runs out of disk, at a moment."""

    armed = False
    life = Life("", "")
    disk = Path()

    def __init__(self, path: Any, **options: Any) -> None:
        self.left = self.life.count
        self.armed = self.life.recovers
        if self.life.moment == "within":
            options["projections"] = [*options["projections"], _Within(self)]
        super().__init__(path, **options)
        self._fails = 0
        announced = self._writer._announced

        def committed(records: list[Record]) -> Any:  # on the writer's thread, between COMMIT and the answers
            if any(counts(item.stream) for item in records):
                self.reach("committed")
            return announced(records)

        self._writer._announced = committed

    def reach(self, moment: str) -> bool:
        """One more of `moment`; the process does not live to see the last."""
        if not self.armed or self.life.moment != moment:
            return False
        self.left -= 1
        if self.left == 0 and moment in ("within", "committed", "told"):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.left == 0

    async def commit(self, *appends: Append) -> Any:
        counted = any(counts(item.stream) for item in appends)
        if counted and (self.reach("space") or self.reach("limit")):
            _fill(self.life, self.disk)
            self._fails = FULL_FOR
        try:
            records = await super().commit(*appends)
        except Problem as problem:
            if self._fails and problem.key in ("ledger_full", "ledger_io"):
                self._fails -= 1
                with (Path(self.life.folder) / "refused").open("a") as file:
                    file.write(str(problem.details.get("sqlite")) + "\n")
                if self._fails == 0:
                    _free(self.life, self.disk)
            raise
        if counted:
            self.reach("told")
        return records


class _Within:
    """A projection that is shown every event inside its transaction."""

    name, version, prefix, schema = "trap", 1, "", ""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            if counts(record.stream):
                self._trap.reach("within")


def counts(stream: str) -> bool:
    return stream.startswith(("run/", "webhook/"))


def _fill(life: Life, disk: Path) -> None:
    if life.moment == "limit":
        wal = (disk / "ledger.db-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (wal, resource.RLIM_INFINITY))
        return
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)


def _free(life: Life, disk: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    (disk / "ballast").unlink(missing_ok=True)


def small_disk(folder: Path) -> bool:
    """Mount a small file system on `folder`, seen by this process alone; False where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, mounts, private, recursive = 0x10000000, 0x00020000, 1 << 18, 1 << 14
    if libc.unshare(mounts) != 0 and libc.unshare(user | mounts) != 0:
        return False
    libc.mount(b"none", b"/", None, private | recursive, None)
    options = f"size={_DISK_BYTES}".encode()
    return bool(libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, options) == 0)


async def drive(runs: Runs, life: Life, arm: Any) -> Any:
    """Start the run if it is not there, approve, and wait for the end."""
    parts = documents()
    for document in parts if life.graph is None else [*parts[:-1], random_graph(life.graph)]:
        await runs.put_workflow(document, tenant=None)
    arm()
    while (snapshot := await _look(runs)) is None or snapshot.status not in TERMINAL:
        with refusals():
            if snapshot is None:
                await runs.create_run(CreateRun(workflow_id="parent"), TENANT, run_id=RUN_ID)
            for asked in await runs.interrupts(RUN_ID, TENANT) if snapshot is not None else []:
                await runs.resolve_by_node(RUN_ID, asked.node_id, TENANT, {"resumeValue": {"action": "accept"}}, "ann")
        await asyncio.sleep(0.05)
    return snapshot


@contextmanager
def refusals() -> Iterator[None]:
    """A full disk refuses, and an answer may have come from our life before: the caller tries again."""
    try:
        yield
    except Problem as problem:
        if problem.key not in _PASSING:
            raise


async def _look(runs: Runs) -> Any:
    try:
        return await runs.get_run(RUN_ID, TENANT)
    except Problem as problem:
        if problem.key != "not_found":
            raise
        return None


async def live(life: Life, clock: PatientClock, disk: Path, ledger: type[CountedLedger] = CountedLedger) -> Any:
    """Until the run has ended and its webhooks are delivered."""
    folder = Path(life.folder)
    randomness = SeededRandomness(life.seed)
    ids = Ids(clock, randomness)
    options = {"projections": [*projections(), Outbox()], "clock": clock, "ids": ids}
    sender = Sender(life.url, clock)
    async with (
        ledger.open(disk / "ledger.db", **options) as opened,
        Runs(opened, clock=clock, ids=ids, randomness=randomness, secret=b"s", nodes=types(folder)) as runs,
    ):
        check = sender.egress.check_url
        webhooks = Webhooks(opened, runs, sender, clock=clock, ids=ids, randomness=randomness, key=KEY, check_url=check)
        if not await webhooks.subscriptions(TENANT):
            await webhooks.register(TENANT, life.url, WANTED)
        await webhooks.start()
        try:
            snapshot = await drive(runs, life, lambda: setattr(opened, "armed", True))
            await webhooks.settled()
        finally:
            await webhooks.close()
            await sender.egress.close()
        return snapshot


def lived(life: Life) -> None:
    """A life in this process, with its trap."""
    folder = Path(life.folder)
    disk = folder
    if life.moment == "space":
        disk = folder / "disk"
        disk.mkdir()
        if not small_disk(disk):
            (folder / "no-mount").touch()
            return
        for file in folder.glob("ledger.db*"):
            shutil.copy(file, disk / file.name)
    Trap.life, Trap.disk = life, disk
    clock = PatientClock(life.start_ms)
    clock.run(live(life, clock, disk, Trap))
    if disk is not folder:
        for file in disk.glob("ledger.db*"):
            shutil.copy(file, folder / file.name)


def serve() -> None:
    """Each line of input is a life, in a process that has everything loaded already."""
    for line in sys.stdin:
        life = msgspec.json.decode(line, type=Life)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                lived(life)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()

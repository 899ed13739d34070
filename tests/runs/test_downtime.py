"""A host that was away changes no outcome: deadlines are taken in the order of their due times (W16, T1 to T5)."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs.log import AT, NODE, PREFIX
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeError, NodeRegistry
from forestay.runs.service import Runs
from forestay.runs.types import TERMINAL, RunSnapshot
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, kinds, node, start, workflow
from tests.runs.events import check_events
from tests.runs.patient import PatientClock

Document = dict[str, Any]


def delay(id: str, ms: int, **fields: Any) -> Document:
    return node(id, "core.delay", config={"delayMs": ms}, **fields)


def gate(id: str, ms: int | None = None, action: str = "accept") -> Document:
    limit = {"timeoutMs": ms, "onTimeout": action} if ms else {}
    return node(id, "core.approvalGate", config=limit)


def work(id: str, ms: int, *, fails: int = 0, **settings: Any) -> Document:
    return node(id, "test.work", config={"ms": ms, "fails": fails}, settings=settings)


def chain(*nodes: Document, timeout: int | None = None, id: str = "w") -> Document:
    links = [edge(a["id"], b["id"]) for a, b in pairwise(nodes)]
    return workflow(id, list(nodes), links, settings={"timeout": timeout} if timeout else {})


class Works:
    """Node types whose work takes time; `under_way` counts what a kill would interrupt."""

    def __init__(self) -> None:
        self.under_way = 0

    def types(self) -> NodeRegistry:
        registry = standard_registry(custom=False)

        @registry.node("test.work")
        async def run(ctx: Any) -> dict[str, Any]:
            self.under_way += 1
            try:
                await asyncio.sleep(ctx.config["ms"] / 1000)
            finally:
                self.under_way -= 1
            if ctx.attempt <= ctx.config.get("fails", 0):
                raise NodeError("busy", "not yet")
            return {"attempt": ctx.attempt}

        return registry


@pytest.fixture
def works() -> Works:
    return Works()


async def ends(
    host: Host, clock: PatientClock, document: Document, *, killed: float, back: float, more: Any = (), **options: Any
) -> RunSnapshot:
    """The run of `document` on a host that is killed and comes back, in seconds from the run's start."""
    async with host(**options) as runs:
        for item in more:
            await runs.put_workflow(item, tenant=None)
        run_id = await start(runs, document)
        await asyncio.sleep(killed)
    clock.advance(back - killed)
    async with host(**options) as runs:
        return await finish(runs, run_id)


@pytest.mark.parametrize("back", [1.0, 3.0, 6.0, 600.0, 86_400.0])
@pytest.mark.parametrize(
    ("nodes", "timeout", "outcome"),
    [
        ([delay("a", 2000)], 4000, None),
        ([delay("a", 2000), delay("b", 1000), delay("c", 900)], 4000, None),
        ([delay("a", 2000), delay("b", 2500)], 4000, "run_timeout"),
        ([gate("a", 2000)], 4000, None),
        ([gate("a", 5000)], 4000, "run_timeout"),
        ([delay("a", 1000), gate("b", 2000), delay("c", 500)], 4000, None),
        ([delay("a", 1000), gate("b", 2000, "reject")], 4000, "approval_rejected"),
        ([delay("a", 3000, settings={"timeoutMs": 2000})], 9000, "node_timeout"),
        ([delay("a", 1000), delay("b", 3000, settings={"timeoutMs": 2000})], 9000, "node_timeout"),
    ],
)
async def test_w16_deadlines_are_taken_in_the_order_of_their_due_times(
    host: Host, clock: PatientClock, nodes: list[Document], timeout: int, outcome: str | None, back: float
) -> None:
    run = await ends(host, clock, chain(*nodes, timeout=timeout), killed=0.5, back=back)
    assert (run.error.code if run.error else None) == outcome


@pytest.mark.parametrize("back", [2.0, 6.0, 600.0])
@pytest.mark.parametrize(("timeout", "outcome"), [(8000, None), (6500, "run_timeout")])
async def test_w16_retry_pauses_grow_from_when_they_were_due(
    host: Host, clock: PatientClock, works: Works, back: float, timeout: int, outcome: str | None
) -> None:
    """Attempts at 0, 1, 3 and 7 s; each takes no time."""
    retry = {"maxAttempts": 4, "initialDelayMs": 1000, "backoff": "exponential"}
    document = chain(work("a", 0, fails=3, retry=retry), timeout=timeout)
    run = await ends(host, clock, document, killed=0.5, back=back, nodes=works.types())
    assert (run.error.code if run.error else None) == outcome


async def test_t2_a_service_that_fails_after_a_break_is_left_in_peace_between_attempts(
    host: Host, clock: PatientClock
) -> None:
    """The break is longer than all pauses together: by the run's own time every attempt would be made at once."""
    registry, moments = standard_registry(custom=False), list[int]()

    @registry.node("test.ask")
    async def ask(ctx: Any) -> dict[str, Any]:
        moments.append(clock.now_ms())
        if ctx.attempt < 5:
            raise NodeError("busy", "not yet")
        return {}

    retry = {"maxAttempts": 5, "initialDelayMs": 1000, "backoff": "fixed"}
    document = chain(delay("wait", 2000), node("a", "test.ask", settings={"retry": retry}))
    run = await ends(host, clock, document, killed=0.5, back=600, nodes=registry)
    assert run.status == "completed" and [b - a for a, b in pairwise(moments)] == [1000] * 4


@pytest.mark.parametrize("back", [6.0, 600.0])
async def test_t4_work_that_was_under_way_begins_again_with_its_full_time(
    host: Host, clock: PatientClock, works: Works, back: float
) -> None:
    """Without the kill it ends at 3 s, before its own limit and the run's."""
    document = chain(work("a", 3000, timeoutMs=3500), timeout=4000)
    run = await ends(host, clock, document, killed=0.5, back=back, nodes=works.types())
    assert run.status == "completed", run.error


@pytest.mark.parametrize("ms", [3000, 5000])
async def test_t2_work_behind_an_overdue_delay_has_the_time_that_it_would_have_had(
    host: Host, clock: PatientClock, works: Works, ms: int
) -> None:
    document = chain(delay("a", 2000), work("b", ms), delay("c", 500), timeout=6000)
    run = await ends(host, clock, document, killed=0.5, back=600.0, nodes=works.types())
    assert run.status == ("completed" if ms == 3000 else "failed"), run.error


async def test_t2_a_question_that_is_asked_late_can_be_answered(host: Host, clock: PatientClock) -> None:
    """Nobody could see the question while the host was away: people have the time that they would have had."""
    async with host() as runs:
        run_id = await start(runs, chain(delay("a", 2000), gate("b", 60_000, "reject"), timeout=120_000))
        await asyncio.sleep(0.5)
    clock.advance(8 * 3600)
    async with host() as runs:
        await asyncio.sleep(59)
        (asked,) = await runs.interrupts(run_id, "acme")
        await runs.resolve_by_token(asked.token, {"resumeValue": {"action": "accept"}})
        assert (await finish(runs, run_id)).status == "completed"


async def test_t3_an_answer_that_comes_after_the_timeout_comes_too_late(host: Host, clock: PatientClock) -> None:
    """Also when the host was away at the timeout, and the answer is the first thing that it hears."""
    async with host() as runs:
        run_id = await start(runs, chain(gate("a", 2000, "reject")))
        await asyncio.sleep(0.5)
    clock.advance(60)
    async with host() as runs:
        with pytest.raises(Problem):
            await runs.resolve_by_node(run_id, "a", "acme", {"resumeValue": {"action": "accept"}}, "ann")
        assert (await finish(runs, run_id)).status == "failed"


CHILD = chain(delay("x", 1500), delay("y", 1500), id="child")


@pytest.mark.parametrize("back", [6.0, 600.0])
@pytest.mark.parametrize(
    ("timeout", "settings", "outcome"),
    [(4000, {}, None), (2500, {}, "run_timeout"), (9000, {"timeoutMs": 2500}, "node_timeout")],
)
async def test_t5_a_family_catches_up_together(
    host: Host, clock: PatientClock, back: float, timeout: int, settings: Any, outcome: str | None
) -> None:
    """The child ends at 3 s, unless its parent ends it before; then it has not gone past that moment."""
    sub = node("sub", "core.subWorkflow", config={"workflowId": "child"}, settings=settings)
    document = chain(sub, timeout=timeout)
    async with host() as runs:
        await runs.put_workflow(CHILD, tenant=None)
        run_id = await start(runs, document)
        await asyncio.sleep(0.5)
    clock.advance(back - 0.5)
    async with host() as runs:
        run = await finish(runs, run_id)
        (child,) = [event for event in await runs.events(run_id, "acme") if event.type == "node.dispatched"][:1]
        child_id = child.payload["childRunId"]
        ended = await finish(runs, child_id)
        done = [
            event.payload["nodeId"] for event in await runs.events(child_id, "acme") if event.type == "node.completed"
        ]
    assert (run.error.code if run.error else None) == outcome
    assert (ended.status, done) == (("completed", ["x", "y"]) if outcome is None else ("cancelled", ["x"]))


class SetClock(PatientClock):
    """A machine whose clock can be set, or that sleeps: its timers do not notice."""

    skew_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.skew_ms


class TestJump:
    @pytest.fixture
    def clock(self) -> SetClock:
        return SetClock()

    @pytest.mark.parametrize(
        ("nodes", "outcome"),
        [
            ([delay("a", 2000), delay("b", 1000)], None),
            ([delay("a", 2000), delay("b", 2500)], "run_timeout"),
            ([gate("a", 2000)], None),
            ([work("a", 3000, timeoutMs=3500)], None),
            ([work("a", 5000)], "run_timeout"),
        ],
    )
    async def test_w16_a_clock_that_jumps_ahead_changes_no_outcome(
        self, host: Host, clock: SetClock, works: Works, nodes: list[Document], outcome: str | None
    ) -> None:
        async with host(sweep_seconds=1.0, nodes=works.types()) as runs:
            run_id = await start(runs, chain(*nodes, timeout=4000))
            await asyncio.sleep(0.5)
            clock.skew_ms = 3_600_000
            run = await finish(runs, run_id)
            told = "forestay.clock.jumped" in await kinds(runs, run_id)
            check_events(await runs.events(run_id, "acme"))
        assert (run.error.code if run.error else None) == outcome
        assert told == (nodes[0]["typeId"] == "test.work"), "a run that only waits has nothing to tell"


# Any workflow, any moment


class Author:
    """A document of what time moves, from one seed; no two things fall due at once."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.times = iter(self.chance.sample(range(111, 4000, 10), 300))

    def documents(self) -> list[Document]:
        tiny = self.document("tiny", ("delay", "work", "gate"), 2)
        apart = {"type": "expression", "expression": f"item * {next(self.times)}"}
        tiny["nodes"].append(node("first", "core.delay", inputs={"delayMs": apart}))
        tiny["edges"] += [edge("first", f"tiny{index}") for index in range(len(tiny["nodes"]) - 1)]
        return [tiny, self.document("w", ("delay", "delay", "work", "gate", "retry", "child", "kids"), 6)]

    def document(self, id: str, parts: tuple[str, ...], most: int) -> Document:
        chance = self.chance
        nodes = [getattr(self, chance.choice(parts))(f"{id}{index}") for index in range(chance.randint(2, most))]
        links = []
        for index in range(1, len(nodes)):
            rule = chance.choice(["all_success", "all_success", "all_complete", "any_success"])
            sources = chance.sample(range(index), chance.randint(0, min(index, 2)))
            links += [edge(f"{id}{source}", f"{id}{index}", triggerRule=rule) for source in sources]
        timeout = {"timeout": next(self.times) * 3} if id == "w" and chance.random() < 0.7 else {}
        return workflow(id, nodes, links, settings=timeout)

    def settings(self) -> dict[str, Any]:
        return {"timeoutMs": next(self.times)} if self.chance.random() < 0.3 else {}

    def delay(self, id: str) -> Document:
        return delay(id, next(self.times), settings=self.settings())

    def work(self, id: str) -> Document:
        return work(id, next(self.times) // 4, **self.settings())

    def gate(self, id: str) -> Document:
        return gate(id, next(self.times), self.chance.choice(["accept", "accept", "reject"]))

    def retry(self, id: str) -> Document:
        retry = {"maxAttempts": 4, "initialDelayMs": next(self.times) // 3, "backoff": "exponential"}
        return work(id, next(self.times) // 9, fails=self.chance.randint(1, 4), retry=retry)

    def child(self, id: str) -> Document:
        config = {"workflowId": "tiny", "onChildFailure": self.chance.choice(["continue", "fail-parent"])}
        given = {"inputs": {"type": "static", "value": {"item": self.item()}}}
        return node(id, "core.subWorkflow", config=config, inputs=given, settings=self.settings())

    def item(self) -> float:
        return next(self.times) / 997

    def kids(self, id: str) -> Document:
        config = {"workflowId": "tiny", "items": [self.item() for _ in range(3)], "concurrency": 2}
        return node(id, "core.map", config=config, settings=self.settings())


Story = dict[tuple[str, str], list[tuple[str, Any]]]
_KEPT = ("attempt", "error", "outputs", "action", "childStatus", "delayMs", "lastError")


async def story(runs: Runs, root: str) -> tuple[Story, dict[tuple[str, str], list[int]]]:
    """What every node of a family went through, and when by the run's own clock."""
    told: Story = defaultdict(list)
    times: dict[tuple[str, str], list[int]] = defaultdict(list)
    names, begun = {root: "root"}, 0
    pending = [root]
    while pending:
        run_id = pending.pop(0)
        for record in await runs._ledger.read(PREFIX + run_id):
            at = record.attrs.get(AT, record.ts)
            begun = begun or at
            if record.type in ("lease.acquired", "forestay.effect.recorded"):
                continue
            name = record.attrs.get(NODE, "")
            if record.type == "node.dispatched" and record.payload["childRunId"] not in names:
                key = (record.attrs.get("p") or {}).get("key", "")
                names[record.payload["childRunId"]] = f"{names[run_id]}/{name}:{key}"
                pending.append(record.payload["childRunId"])
            kept = {key: _plain(value) for key, value in record.payload.items() if key in _KEPT}
            told[(names[run_id], name)].append((record.type, kept))
            times[(names[run_id], name)].append(at - begun)
    return told, times


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in ("childRunId", "decidedBy")}
    return [_plain(item) for item in value] if isinstance(value, list) else value


async def begin(runs: Runs, seed: int) -> str:
    documents = Author(seed).documents()
    for document in documents[:-1]:
        await runs.put_workflow(document, tenant=None)
    return await start(runs, documents[-1])


async def one(host: Host, clock: PatientClock, works: Works, seed: int) -> None:
    """A run with as many breaks as the seed says tells, by its own clock, the same story as one without."""
    chance = random.Random(seed)
    async with host(nodes=works.types()) as runs:
        whole = await begin(runs, seed)
        shown = await finish(runs, whole)
        await asyncio.sleep(60)  # its children, too
        told, times = await story(runs, whole)
    breaks, run_id = chance.randint(1, 3), ""
    for life in range(breaks + 1):
        async with host(nodes=works.types()) as runs:
            run_id = run_id or await begin(runs, seed)
            if life < breaks:
                await asyncio.sleep(chance.random() * 3)
                while works.under_way:  # what a kill interrupts begins again: not the same story
                    await asyncio.sleep(0.01)
            else:
                ended = await finish(runs, run_id)
                await asyncio.sleep(60)
                again, moments = await story(runs, run_id)
        clock.advance(chance.choice([1, 5, 60, 86_400]))
    assert (ended.status, ended.error and ended.error.code) == (shown.status, shown.error and shown.error.code)
    assert again == told
    for place, moment in times.items():
        assert moments[place] == pytest.approx(moment, abs=30), place


@pytest.mark.parametrize("seed", range(40))
async def test_w16_any_run_ends_as_without_the_breaks(host: Host, clock: PatientClock, works: Works, seed: int) -> None:
    await one(host, clock, works, seed)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(1000, 2000))
async def test_w16_many_runs_end_as_without_the_breaks(
    host: Host, clock: PatientClock, works: Works, seed: int
) -> None:
    await one(host, clock, works, seed)


async def test_t4_a_run_that_kills_its_host_each_time_ends(host: Host, clock: PatientClock, works: Works) -> None:
    """Its own clock stands still at the start of the work; the host's longest run duration bounds how far behind."""
    async with host(nodes=works.types()) as runs:
        run_id = await start(runs, chain(work("a", 60_000)))
        await asyncio.sleep(1)
    for _ in range(70):
        clock.advance(24 * 3600)
        async with host(nodes=works.types()) as runs:
            await asyncio.sleep(1)
            run = await runs.get_run(run_id, "acme")
            if run.status in TERMINAL:
                break
    assert run.error is not None and run.error.code == "run_timeout"

"""Processes that share a PostgreSQL ledger: each run is carried by one of them, and each takes commands for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from forestay.kernel import Draft, Ids, Ledger, Problem, Record, SeededRandomness, SystemClock
from forestay.runs.commands import Command, Pause, Signal
from forestay.runs.inbox import INBOX, Answer, Asked, Place
from forestay.runs.leases import NOBODY, Carrier
from forestay.runs.log import QUEUE
from forestay.runs.nodes.core import standard_registry
from forestay.runs.service import Runs, projections
from forestay.runs.types import CreateRun
from tests.postgres import change_worker, new_ledger
from tests.runs.documents import edge, node, workflow

TENANT = "acme"
WORK = workflow("w", [node("gate", "core.approvalGate"), node("work", "test.work")], [edge("gate", "work")])
YES = {"resumeValue": {"action": "accept"}}


class Fleet:
    """Processes on one ledger, all in this one: each has its own connections, name and lease."""

    def __init__(self) -> None:
        self.address = new_ledger()
        self.calls: list[str] = []
        self.hold = asyncio.Event()
        self.stack = AsyncExitStack()

    async def start(self, name: str, *, room: int | None = None) -> Runs:
        registry = standard_registry(custom=False)

        @registry.node("test.work")
        async def work(ctx: Any) -> dict[str, Any]:
            self.calls.append(name)
            await self.hold.wait()
            return {"by": name}

        clock, randomness = SystemClock(), SeededRandomness(name)
        ids = Ids(clock, randomness)
        ledger = await self.stack.enter_async_context(
            Ledger.open(self.address, projections=projections(), clock=clock, ids=ids)
        )
        runs = Runs(
            ledger,
            clock=clock,
            ids=ids,
            randomness=randomness,
            secret=b"s" * 32,
            nodes=registry,
            workers=ledger.workers(name, QUEUE),
            room=room,
            sweep_seconds=0.05,
        )
        await self.stack.enter_async_context(runs)
        self.change("since = since - interval '1 hour'", name)
        return runs

    def change(self, assignment: str, name: str) -> None:
        change_worker(self.address, assignment, name)

    def freeze(self, runs: Runs) -> None:
        """As if the process stood still: no beat, no sweep, no ear for its inbox; then its lease runs out."""
        runs._engine.leases._workers._stop()  # type: ignore[attr-defined]
        for task in list(runs._engine._background):
            task.cancel()
        self.change("until = clock_timestamp() - interval '1 ms'", runs._engine.instance)


def in_real_time(test: Callable[[Fleet], Awaitable[None]]) -> Callable[[], None]:
    """Leases are the database's, and its clock does not jump: neither does that of these tests."""

    async def play() -> None:
        fleet = Fleet()
        async with fleet.stack:
            await test(fleet)

    def played() -> None:
        asyncio.run(play())

    played.__name__ = test.__name__
    return played


async def begin(runs: Runs) -> str:
    await runs.put_workflow(WORK, tenant=None)
    return (await runs.create_run(CreateRun(workflow_id="w"), TENANT)).run_id


async def begun(fleet: Fleet, count: int = 1) -> None:
    async with asyncio.timeout(20):
        while len(fleet.calls) < count:
            await asyncio.sleep(0.01)


async def count(runs: Runs, run_id: str, type: str) -> int:
    return [event.type for event in await runs.events(run_id, TENANT)].count(type)


@in_real_time
async def test_what_a_process_without_room_makes_another_carries(fleet: Fleet) -> None:
    api, worker = await fleet.start("api", room=0), await fleet.start("worker")
    fleet.hold.set()
    run_id = await begin(api)
    async with asyncio.timeout(20):
        while (await api.get_run(run_id, TENANT)).status != "waiting-approval":
            await asyncio.sleep(0.02)
        await api.resolve_by_node(run_id, "gate", TENANT, YES, "ann")
        run = await api.wait(run_id, TENANT)
    assert run.outputs == {"by": "worker"} and fleet.calls == ["worker"]
    assert api.load().loaded_runs == 0
    fork = await worker.events(run_id, TENANT)
    assert fork[0].type == "run.started"


@in_real_time
async def test_i1_a_command_reaches_the_owner_and_what_it_does_there_goes_on(fleet: Fleet) -> None:
    a, b = await fleet.start("a"), await fleet.start("b")
    run_id = await begin(a)
    resolved = await b.resolve_by_node(run_id, "gate", TENANT, YES, "ann")
    assert resolved.resumed and resolved.node_id == "gate"
    await begun(fleet)
    await b.signal(run_id, TENANT, "hello", {"n": 1})
    assert (await b.pause(run_id, TENANT)).status == "paused"
    assert (await b.resume(run_id, TENANT)).status == "running"
    with pytest.raises(Problem) as refused:
        await b.resume(run_id, TENANT)
    assert refused.value.key == "state_conflict" and refused.value.details["runStatus"] == "running"
    fleet.hold.set()
    run = await b.wait(run_id, TENANT)
    assert run.outputs == {"by": "a"} and fleet.calls == ["a"], "the node was not begun again"
    assert await count(b, run_id, "lease.acquired") == 0
    assert await count(b, run_id, "forestay.signal.received") == 1


@in_real_time
async def test_i1_a_cancel_from_elsewhere_stops_the_node(fleet: Fleet) -> None:
    a, b = await fleet.start("a"), await fleet.start("b")
    run_id = await begin(a)
    await a.resolve_by_node(run_id, "gate", TENANT, YES, "ann")
    await begun(fleet)
    assert (await b.cancel(run_id, TENANT, "ann")).status == "cancelled"
    assert (await b.cancel(run_id, TENANT, "ann")).status == "cancelled"
    assert a.load().executing_nodes == 0
    assert await count(b, run_id, "run.cancelled") == 1


@in_real_time
async def test_g2_a_run_goes_on_elsewhere_when_its_owners_lease_ends(fleet: Fleet) -> None:
    a, b = await fleet.start("a"), await fleet.start("b")
    run_id = await begin(a)
    await a.resolve_by_node(run_id, "gate", TENANT, YES, "ann")
    await begun(fleet)
    fleet.freeze(a)
    await begun(fleet, 2)
    fleet.hold.set()  # both finish their node: only one of them may say so
    run = await b.wait(run_id, TENANT)
    assert run.outputs == {"by": "b"} and fleet.calls == ["a", "b"]
    assert await count(b, run_id, "node.completed") == 2, "the gate and the work"
    assert await count(b, run_id, "run.completed") == 1


@in_real_time
async def test_g1_a_process_whose_lease_lapsed_lets_go_of_what_others_took(fleet: Fleet) -> None:
    a, b = await fleet.start("a"), await fleet.start("b")
    taken, kept = await begin(a), await begin(a)
    async with asyncio.timeout(20):
        while not await count(b, taken, "lease.acquired"):
            fleet.change("until = clock_timestamp() - interval '1 ms'", "a")  # again, if it said that it lives
            await b.get_run(taken, TENANT)  # who looks at a run that nobody carries takes it up
        while taken in a._engine._actors:
            await asyncio.sleep(0.02)
    assert kept in a._engine._actors
    await a.resolve_by_node(taken, "gate", TENANT, YES, "ann")
    await begun(fleet)
    assert fleet.calls == ["b"]


@in_real_time
async def test_i2_a_command_whose_owner_dies_is_carried_out_once_by_the_next(fleet: Fleet) -> None:
    a, b = await fleet.start("a"), await fleet.start("b")
    run_id = await begin(a)
    runs = a._engine
    for task in list(runs._background):
        task.cancel()  # it hears no more, but its lease lives
    asking = asyncio.ensure_future(b.signal(run_id, TENANT, "hello"))
    async with asyncio.timeout(20):
        while (await b._ledger.head(INBOX + "a")).seq < 0:
            await asyncio.sleep(0.01)
        fleet.freeze(a)
        await asking
    assert await count(b, run_id, "forestay.signal.received") == 1
    records = await b._ledger.read(INBOX + "a")
    assert [record.type for record in records] == ["command.asked", "command.answered"]
    await fleet.start("a")  # it comes back, and finds its question answered
    await b.signal(run_id, TENANT, "another")
    assert await count(b, run_id, "forestay.signal.received") == 2


@in_real_time
async def test_i2_an_answer_of_the_owner_before_is_the_answer(fleet: Fleet) -> None:
    """It did what was asked and died: the next owner gives its answer, and nothing happens twice."""
    b = await fleet.start("b")
    run_id = await begin(b)
    asked, earlier = Signal("hello"), Place(INBOX + "a", 0)
    await b._ledger.append(earlier.stream, [Draft("command.asked", {}, {})])
    told = {"answer": {"result": "done by a"}}
    await b._ledger.append(earlier.stream, [Draft("command.answered", {"to": 0}, told)])
    question = Asked(run_id, asked, [earlier])
    c = await fleet.start("c")
    answer = await c._engine.inbox._forward("b", question, [])
    assert answer is not None and answer.unpack() == "done by a"
    assert await count(b, run_id, "forestay.signal.received") == 0


@in_real_time
async def test_i3_an_owner_that_comes_back_answers_what_it_was_asked(fleet: Fleet) -> None:
    a, b = await fleet.start("a"), await fleet.start("b")
    run_id = await begin(a)
    for task in list(a._engine._background):
        task.cancel()
    asking = asyncio.ensure_future(b.signal(run_id, TENANT, "hello"))
    async with asyncio.timeout(20):
        while (await b._ledger.head(INBOX + "a")).seq < 0:
            await asyncio.sleep(0.01)
        a._engine.leases._workers._stop()  # type: ignore[attr-defined]
        await fleet.start("a")
        await asking
    assert await count(b, run_id, "forestay.signal.received") == 1


@pytest.mark.parametrize("command", [Signal("hello"), Pause("immediate")], ids=["signal", "pause"])
def test_i4_a_command_that_is_asked_twice_of_one_process_is_carried_out_once(command: Command) -> None:
    """Who asks sees for a moment that the owner is another, and asks the same one again. That question is carried out
    and answered after the task of the first one looked for an answer, and before it does what it was asked."""

    async def play(fleet: Fleet) -> None:
        a, b = await fleet.start("a"), await fleet.start("b")
        run_id = await begin(a)
        looks, carrier, looked = a._ledger.read, b._engine.leases.carrier, asyncio.Event()

        async def lapsed(run_id: str, *, take: bool) -> Carrier:
            if take:
                return await carrier(run_id, take=take)
            await looked.wait()
            b._engine.leases.carrier = carrier  # type: ignore[method-assign]
            return Carrier(NOBODY)

        async def slow(stream: str, start: int = 0, limit: int | None = None, **options: Any) -> list[Record]:
            found = await looks(stream, start, limit, **options)
            if stream == INBOX + "a" and limit is None and not looked.is_set():  # for an answer
                looked.set()
                await asyncio.shield(asking)
            return found

        a._ledger.read = slow  # type: ignore[method-assign]
        b._engine.leases.carrier = lapsed  # type: ignore[method-assign]
        async with asyncio.timeout(20):
            asking = asyncio.ensure_future(b._engine.inbox.ask(run_id, command))
            assert await asking is None
            while a._engine.inbox._under_way:
                await asyncio.sleep(0.01)
        happened = "forestay.signal.received" if isinstance(command, Signal) else "run.paused"
        assert await count(b, run_id, happened) == 1
        records = await b._ledger.read(INBOX + "a")
        assert [record.type for record in records[:2]] == ["command.asked", "command.asked"]
        answers = [msgspec.convert(record.attrs["answer"], Answer) for record in records[2:]]
        assert answers == [Answer()] * 3, "each question its own, and the second the first's"

    in_real_time(play)()


@in_real_time
async def test_who_closes_hands_over_at_once(fleet: Fleet) -> None:
    a, b = await fleet.start("a"), await fleet.start("b")
    run_id = await begin(a)
    await a.resolve_by_node(run_id, "gate", TENANT, YES, "ann")
    await begun(fleet)
    await a.close()
    await begun(fleet, 2)
    fleet.hold.set()
    assert (await b.wait(run_id, TENANT)).outputs == {"by": "b"}


@in_real_time
async def test_a_workflow_that_another_process_put_is_run_at_once(fleet: Fleet) -> None:
    a, b = await fleet.start("a"), await fleet.start("b")
    await a.put_workflow(workflow("v", [node("x")]), tenant=None)
    assert (await b.stored_workflow("v", TENANT)).ref.seq == 0
    await a.put_workflow(workflow("v", [node("x"), node("y")]), tenant=None)
    assert (await b.stored_workflow("v", TENANT)).ref.seq == 1

"""Budgets over a real ledger and real runs (B1 to B6 of `governance/budgets.py`)."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import Budgets, BudgetTable, Claim, Metering, ModelCall, Short, fit
from forestay.kernel import Budgets as Settings
from forestay.kernel import Ceiling, Draft, Ids, Price, Problem, SeededRandomness
from forestay.runs import CreateRun, Execution, NodeType, Runs, projections, standard_registry
from tests.runs.documents import edge, node, workflow
from tests.runs.patient import CountedLedger, PatientClock

TENANT = "acme"


class World:
    """Runs with budgets, on one file: opened again for a restart."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.clock = PatientClock()
        self.asked: list[tuple[str, int]] = []
        self.used = 40  # tokens of each answer
        self.usd: float | None = None
        self.gate: asyncio.Event | None = None
        self.lives = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Runs, Budgets]]:
        self.lives += 1
        ids = Ids(self.clock, SeededRandomness(self.lives))
        tables = [*projections(), BudgetTable()]
        async with CountedLedger.open(self.folder / "l.db", projections=tables, clock=self.clock, ids=ids) as ledger:
            self.budgets = Budgets(ledger, self.settings, clock=self.clock)
            registry = standard_registry(sample_seams=True)
            registry.add(NodeType(type_id="test.ask", execute=self.ask))
            registry.add(NodeType(type_id="test.tool", execute=self.tool))
            registry.add(NodeType(type_id="test.gated", execute=self.gated))
            runs = Runs(
                ledger,
                clock=self.clock,
                ids=ids,
                randomness=SeededRandomness(1),
                secret=b"s" * 32,
                nodes=registry,
                governor=Metering(self.budgets),
                sweep_seconds=30.0,
                lease_seconds=3600.0,
            )
            async with runs:
                yield runs, self.budgets

    async def ask(self, ctx: Execution) -> dict[str, Any]:
        async def call() -> dict[str, Any]:
            wanted = ModelCall(10, ctx.config.get("most", 100))
            model = ctx.config.get("model", "acme:small")
            asked = self.budgets.model_call(ctx, "call", model, lambda: wanted, ctx.config.get("agent"))
            async with asked as (most, spent):
                most = most or wanted.max_output_tokens
                self.asked.append((ctx.run_id, most))
                if self.gate is not None:
                    await self.gate.wait()
                answer = min(most, self.used)
                cost = self.budgets.cost(model, 10, answer)
                spent.amounts = {"tokens": 10 + answer, **({"cost": cost} if cost else {})}
                usage: dict[str, Any] = {"provider": "acme", "model": model, "inputTokens": 10, "outputTokens": answer}
                ctx.emit("provider.usage", usage | ({"costEstimateUsd": cost / 1e6} if cost else {}))
            return {"tokens": answer}

        return await ctx.effect("call", call)

    async def tool(self, ctx: Execution) -> dict[str, Any]:
        await self.budgets.tool_call(ctx, "tool")
        ctx.emit("agent.toolCalled", {"callId": "c"})
        return {}

    async def gated(self, ctx: Execution) -> dict[str, Any]:
        """A call that is charged, and then waits before anybody has it on record."""

        async def call() -> dict[str, Any]:
            await self.budgets.tool_call(ctx, f"{ctx.place}tool")
            await self.budgets.book.settled(TENANT)  # another run wrote, and the charge with it
            self.asked.append((ctx.run_id, 1))
            if self.gate is not None:
                await self.gate.wait()
            return {}

        return await ctx.effect("gate", call)


async def begin(runs: Runs, document: dict[str, Any], budget: dict[str, Any] | None = None) -> str:
    await runs.put_workflow(document, tenant=None)
    configurable = {} if budget is None else {"budget": budget}
    return (await runs.create_run(CreateRun(workflow_id=document["id"], configurable=configurable), TENANT)).run_id


async def told(runs: Runs, run_id: str, *prefixes: str) -> list[tuple[str, Any]]:
    page = await runs.poll(run_id, TENANT, -1, 0)
    return [(event.type, event.payload) for event in page.events if event.type.startswith(prefixes)]


def chain(name: str, count: int, type: str = "test.ask", **config: Any) -> dict[str, Any]:
    nodes = [node(f"n{at}", type, config=config) for at in range(count)]
    return workflow(name, nodes, [edge(f"n{at}", f"n{at + 1}") for at in range(count - 1)])


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    return lambda **settings: World(tmp_path, Settings(**settings))


async def test_b1_a_call_is_cut_to_the_room_and_the_next_one_is_refused(world: Callable[..., World]) -> None:
    made = world()
    made.used = 1000
    async with made.open() as (runs, _):
        run_id = await begin(runs, chain("w", 3), {"maxTokens": 150})
        ended = await runs.wait(run_id, TENANT)
        assert [most for _, most in made.asked] == [100, 30]  # 150 - 110 used - 10 of the question
        assert ended.error is not None
        assert ended.error.code == "budget_exhausted"
        events = await told(runs, run_id, "budget.", "cap.", "run.failed")
        assert [type for type, _ in events] == [
            "budget.reserved", "budget.consumed", "budget.consumed", "budget.exhausted", "cap.breached", "run.failed",
        ]  # fmt: skip
        assert events[0][1] == {"effectiveBudget": {"maxTokens": 150}, "scope": "run"}
        assert events[2][1] == {"dimension": "tokens", "consumed": 150, "limit": 150, "remaining": 0}


async def test_b1_tool_calls_are_counted_and_refused(world: Callable[..., World]) -> None:
    async with world().open() as (runs, _):
        run_id = await begin(runs, chain("w", 3, "test.tool"), {"maxToolCalls": 2})
        ended = await runs.wait(run_id, TENANT)
        assert ended.error is not None and ended.error.code == "budget_exhausted"
        assert len(await told(runs, run_id, "agent.toolCalled")) == 2


async def test_p2_a_denied_model_is_never_called(world: Callable[..., World]) -> None:
    made = world()
    async with made.open() as (runs, _):
        run_id = await begin(runs, chain("w", 1), {"modelAllow": ["*"], "modelDeny": ["small"]})
        ended = await runs.wait(run_id, TENANT)
        assert ended.error is not None and ended.error.code == "budget_model_denied"
        assert made.asked == []


@pytest.mark.parametrize(
    "budget", [{"maxTime": 1}, {"maxTokens": 0}, {"onExhaustion": "explode"}, 7, {"maxCostUsd": -1}]
)
async def test_a_budget_that_is_none_is_refused_before_the_run(world: Callable[..., World], budget: Any) -> None:
    async with world().open() as (runs, _):
        with pytest.raises(Problem) as caught:
            await begin(runs, chain("w", 1), budget)
        assert caught.value.key == "schema_mismatch"
        assert str(caught.value.details["at"]).startswith("$.configurable.budget")


async def test_p1_the_smallest_ceiling_of_all_scopes_holds(world: Callable[..., World]) -> None:
    made = world(
        ceilings=[
            Ceiling("project", max_tokens=500, max_tool_calls=9),
            Ceiling("workflow", "other", max_tokens=1),
            Ceiling("workflow", "w*", max_tokens=300, threshold_percent=50),
        ]
    )
    async with made.open() as (runs, _):
        asked = await begin(runs, chain("w", 1), {"maxTokens": 400, "maxToolCalls": 3})
        events = await told(runs, asked, "budget.reserved")
        assert events[0][1] == {"effectiveBudget": {"maxTokens": 300, "maxToolCalls": 3}, "scope": "run"}
        plain = await begin(runs, chain("w2", 1))
        assert (await told(runs, plain, "budget.reserved"))[0][1]["scope"] == "workflow"


async def test_b5_prices_are_in_no_record(world: Callable[..., World]) -> None:
    made = world(prices={"acme:*": Price(7.25, 31.75)})
    async with made.open() as (runs, budgets):
        run_id = await begin(runs, chain("w", 1), {"maxCostUsd": 1})
        await runs.wait(run_id, TENANT)
        lines = [line async for line in budgets._ledger.export("")]
        assert not [line for line in lines if b"7.25" in line or b"31.75" in line]
        consumed = [payload for type, payload in await told(runs, run_id, "budget.consumed")]
        assert consumed[-1]["consumed"] == pytest.approx((7.25 * 10 + 31.75 * 40 + 0.5) / 1e6)  # rounded up


async def test_an_advisory_host_tells_and_stops_nothing(world: Callable[..., World]) -> None:
    made = world(enforce="advisory")
    async with made.open() as (runs, _):
        run_id = await begin(runs, chain("w", 3), {"maxTokens": 60})
        assert (await runs.wait(run_id, TENANT)).status == "completed"
        assert len(await told(runs, run_id, "budget.exhausted")) == 1
        assert await told(runs, run_id, "cap.") == []


async def test_a_person_gives_more_and_the_run_goes_on(world: Callable[..., World]) -> None:
    made = world()
    async with made.open() as (runs, _):
        run_id = await begin(runs, chain("w", 3), {"maxTokens": 100, "onExhaustion": "interrupt"})
        await _until_asked(runs, run_id)
    async with made.open() as (runs, _):  # the question outlives the host
        (question,) = await runs.interrupts(run_id, TENANT)
        assert question.data["artifactData"] == {"dimension": "tokens", "limits": {"maxTokens": 100}}
        nothing = {"resumeValue": {"action": "accept", "budget": {"maxTokens": "much"}}}
        await runs.resolve_by_node(run_id, question.node_id, TENANT, nothing, "alice")
        await _until_asked(runs, run_id, 2)
        more = {"resumeValue": {"action": "accept", "budget": {"maxTokens": 60}}}
        await runs.resolve_by_node(run_id, question.node_id, TENANT, more, "alice")
        assert (await runs.wait(run_id, TENANT)).status == "completed"
        reserved = [payload["effectiveBudget"] for _, payload in await told(runs, run_id, "budget.reserved")]
        assert reserved == [{"maxTokens": 100}, {"maxTokens": 160}]


async def test_a_person_who_says_no_ends_the_run(world: Callable[..., World]) -> None:
    async with world().open() as (runs, _):
        run_id = await begin(runs, chain("w", 3), {"maxTokens": 100, "onExhaustion": "interrupt"})
        await _until_asked(runs, run_id)
        (question,) = await runs.interrupts(run_id, TENANT)
        await runs.resolve_by_node(run_id, question.node_id, TENANT, {"resumeValue": {"action": "reject"}}, "alice")
        ended = await runs.wait(run_id, TENANT)
        assert ended.error is not None and ended.error.code == "budget_exhausted"


async def _until_asked(runs: Runs, run_id: str, times: int = 1) -> None:
    async for event in runs.follow(run_id, TENANT):
        times -= event.type == "interrupt.requested"
        if not times:
            return


async def test_children_draw_on_the_budget_of_their_root(world: Callable[..., World]) -> None:
    made = world()
    async with made.open() as (runs, _):
        await runs.put_workflow(chain("child", 3), tenant=None)
        parent = workflow("parent", [node("c", "core.subWorkflow", config={"workflowId": "child"})])
        run_id = await begin(runs, parent, {"maxTokens": 70})
        assert (await runs.wait(run_id, TENANT)).status == "failed"
        assert len(made.asked) == 2  # the second call was cut to what the first left, the third refused
        assert made.asked[1][1] == 10


async def _killed(made: World, at: Path, type: str = "test.ask") -> tuple[World, str]:
    """A host killed while a call is under way: what its disk held at that moment."""
    made.gate = asyncio.Event()
    async with made.open() as (runs, _):
        run_id = await begin(runs, chain("w", 1, type))
        while not made.asked:
            await asyncio.sleep(0)
        shutil.copytree(made.folder, at)
        made.gate.set()
    return World(at, made.settings), run_id


async def test_b4_a_crash_leaks_no_reservation(world: Callable[..., World], tmp_path: Path) -> None:
    """The call that is repeated holds what it held before, and nothing is left of it at the end."""
    made, run_id = await _killed(world(ceilings=[Ceiling("project", per="day", max_tokens=200)]), tmp_path / "killed")
    made.gate = asyncio.Event()
    async with made.open() as (runs, budgets):
        while not made.asked:
            await asyncio.sleep(0)
        (standing,) = await budgets.standings(TENANT)
        assert (standing.held, standing.spent) == ({"tokens": 110}, {})
        made.gate.set()
        assert (await runs.wait(run_id, TENANT)).status == "completed"
        (standing,) = await budgets.standings(TENANT)
        assert (standing.held, standing.spent, standing.limits) == ({}, {"tokens": 50}, {"maxTokens": 200})


async def test_b4_a_run_that_ends_after_a_crash_gives_back_what_it_held(
    world: Callable[..., World], tmp_path: Path
) -> None:
    made, run_id = await _killed(world(ceilings=[Ceiling("project", per="day", max_tokens=110)]), tmp_path / "killed")
    async with CountedLedger.open(
        made.folder / "l.db", projections=[*projections(), BudgetTable()], clock=made.clock
    ) as ledger:  # before any engine takes the run up
        budgets = Budgets(ledger, made.settings, clock=made.clock)
        assert [standing.held for standing in await budgets.standings(TENANT)] == [{"tokens": 110}]
        cancelled = Draft("run.cancelled", {}, {"s": {"st": "cancelled", "i": "host"}})
        await ledger.append(f"run/{run_id}", [cancelled])
        assert [standing.held for standing in await budgets.standings(TENANT)] == [{}]


async def test_b4_a_call_under_way_counts_though_its_run_has_ended(world: Callable[..., World]) -> None:
    """A run fails beside its call: what the call holds is nobody's until it is over. Another process cannot know."""
    made = world(ceilings=[Ceiling("project", per="day", max_tokens=200)])
    made.gate = asyncio.Event()
    async with made.open() as (runs, budgets):
        run_id = await begin(runs, chain("w", 1))
        while not made.asked:
            await asyncio.sleep(0)
        cancelled = Draft("run.cancelled", {}, {"s": {"st": "cancelled", "i": "host"}})
        await budgets._ledger.append(f"run/{run_id}", [cancelled])
        other = Budgets(budgets._ledger, made.settings, clock=made.clock)
        assert [item.held for item in await budgets.standings(TENANT)] == [{"tokens": 110}]
        assert [item.held for item in await other.standings(TENANT)] == [{}]
        made.gate.set()
        async with asyncio.timeout(10):
            while not (standing := (await budgets.standings(TENANT))[0]).spent:
                await asyncio.sleep(0)
        assert (standing.held, standing.spent) == ({}, {"tokens": 50})


async def test_b6_a_tool_call_that_was_charged_when_the_host_died_is_charged_once(
    world: Callable[..., World], tmp_path: Path
) -> None:
    """With a ceiling of one call: repeated, it needs no room, because it was paid for."""
    settings: dict[str, Any] = {"ceilings": [Ceiling("project", per="day", max_tool_calls=1)]}
    made, run_id = await _killed(world(**settings), tmp_path / "killed", "test.gated")
    async with made.open() as (runs, budgets):
        assert (await runs.wait(run_id, TENANT)).status == "completed"
        assert made.asked == [(run_id, 1)], "it was decided again"
        (standing,) = await budgets.standings(TENANT)
        assert (standing.held, standing.spent) == ({}, {"toolCalls": 1})
        another = await begin(runs, chain("w", 1, "test.gated"))
        ended = await runs.wait(another, TENANT)
        assert ended.error is not None and ended.error.code == "budget_exhausted", "another call is another one"


async def test_b6_two_hosts_that_charge_one_call_charge_it_once(tmp_path: Path) -> None:
    clock = PatientClock()
    tables = [*projections(), BudgetTable()]
    async with CountedLedger.open(tmp_path / "l.db", projections=tables, clock=clock) as ledger:
        hosts = [Budgets(ledger, Settings(), clock=clock) for _ in range(2)]
        one: dict[Any, int] = {"toolCalls": 1}

        async def carry(host: Budgets, id: str) -> None:
            claim = Claim(
                id=id,
                tenant=TENANT,
                run_id="run_1",
                limits={"run/r": {}},
                reserve=lambda accounts: fit(accounts, one),
                once=True,
            )
            assert not isinstance(await host.book.hold(claim), Short)

        await asyncio.gather(*(carry(host, id) for id in ("a", "b", "c") for host in hosts for _ in range(3)))
        (standing,) = await hosts[0].standings(TENANT)
        assert (standing.held, standing.spent) == ({}, {"toolCalls": 3})


@pytest.mark.parametrize("seed", range(6))
async def test_b3_concurrent_calls_of_two_hosts_never_pass_a_ceiling(tmp_path: Path, seed: int) -> None:
    """Random programs of two services over one ledger, against a plain sum: what is spent is what was settled, and
    spent and held together never pass the ceiling."""
    chance = random.Random(seed)
    clock = PatientClock()
    tables = [*projections(), BudgetTable()]
    async with CountedLedger.open(tmp_path / "l.db", projections=tables, clock=clock) as ledger:
        runs = Runs(ledger, clock=clock, ids=Ids(clock), randomness=SeededRandomness(1), secret=b"s" * 32)
        async with runs:
            await runs.put_workflow(workflow("w", [node("n", "core.delay", config={"delayMs": 10**9})]), tenant=None)
            run_ids = [(await runs.create_run(CreateRun(workflow_id="w"), TENANT)).run_id for _ in range(3)]
            hosts = [Budgets(ledger, Settings(), clock=clock) for _ in range(2)]
            limits: dict[str, Any] = {"project/day/x": {"tokens": 300}, "run/r": {"tokens": 200}}
            spent, held, refused = 0, dict[str, int](), 0

            async def program(number: int) -> None:
                nonlocal spent, refused
                for step in range(8):
                    host, amount = chance.choice(hosts), chance.randint(1, 60)
                    id = f"{number}-{step}"
                    wanted: dict[Any, int] = {"tokens": amount}
                    claim = Claim(
                        id=id,
                        tenant=TENANT,
                        run_id=chance.choice(run_ids),
                        limits=limits,
                        reserve=lambda accounts, wanted=wanted: fit(accounts, wanted),
                    )
                    found = await host.book.hold(claim)
                    if isinstance(found, Short):
                        refused += 1
                        continue
                    held[id] = amount
                    assert spent + sum(held.values()) <= 200
                    for _ in range(chance.randint(0, 5)):
                        await asyncio.sleep(0)
                    used = chance.choice([None, chance.randint(0, amount)])
                    host.book.settle(found, None if used is None else {"tokens": used})
                    spent += used or 0
                    del held[id]

            await asyncio.gather(*(program(number) for number in range(8)))
            await hosts[1].standings(TENANT)  # what it settled is on disk then
            for standing in await hosts[0].standings(TENANT):
                assert (standing.held, standing.spent) == ({}, {"tokens": spent} if spent else {})
            assert spent <= 200
            assert refused, "the program never came to the ceiling: it proves nothing"


@pytest.mark.parametrize("seed", range(4))
async def test_b1_b3_random_workflows_that_run_together_never_pass_a_ceiling(
    world: Callable[..., World], seed: int
) -> None:
    """Real runs against a plain sum. Each call may use its question and its longest answer: with what was used before,
    that never passes the day's ceiling or the run's own. In the end the accounts hold what the sum says."""
    chance = random.Random(seed)
    made = world(ceilings=[Ceiling("project", per="day", max_tokens=900)])
    used, under_way = dict[str, int](), dict[object, tuple[str, int]]()
    limits: dict[str, int] = {}

    async def ask(ctx: Execution) -> dict[str, Any]:
        wanted, answer = ModelCall(10, ctx.config["most"]), ctx.config["answer"]
        async with made.budgets.model_call(ctx, "call", "acme:small", lambda: wanted) as (most, spent):
            assert most is not None
            under_way[token := object()] = (ctx.run_id, 10 + most)
            holding = Counter[str]()
            for run_id, amount in under_way.values():
                holding[run_id] += amount
            assert sum(used.values()) + holding.total() <= 900
            assert used.get(ctx.run_id, 0) + holding[ctx.run_id] <= limits[ctx.run_id]
            try:
                for _ in range(ctx.config["steps"]):
                    await asyncio.sleep(0)
            finally:  # also when the run ends beside it
                del under_way[token]
            if answer is not None:
                spent.amounts = {"tokens": 10 + min(most, answer)}
                used[ctx.run_id] = used.get(ctx.run_id, 0) + 10 + min(most, answer)
        return {}

    made.ask = ask  # type: ignore[method-assign]
    async with made.open() as (runs, budgets):
        for number in range(12):
            config = [
                {
                    "most": chance.randint(1, 120),
                    "answer": chance.choice([None, 20, 60, 200]),
                    "steps": chance.randint(0, 5),
                }
                for _ in range(chance.randint(1, 5))
            ]
            nodes = [node(f"n{at}", "test.ask", config=item) for at, item in enumerate(config)]
            edges = [edge(f"n{at}", f"n{at + 1}") for at in range(len(nodes) - 1) if chance.random() < 0.5]
            limit = chance.choice([60, 200, 400])
            run_id = f"run_{number}"
            limits[run_id] = limit
            await runs.put_workflow(workflow(f"w{number}", nodes, edges), tenant=None)
            request = CreateRun(workflow_id=f"w{number}", configurable={"budget": {"maxTokens": limit}})
            await runs.create_run(request, TENANT, run_id=run_id)
        ended = [await runs.wait(run_id, TENANT) for run_id in limits]
        assert {item.error.code for item in ended if item.error is not None} <= {"budget_exhausted"}
        assert {item.status for item in ended} == {"completed", "failed"}, "no run came to a ceiling, or none below it"
        standings = {item.account: item for item in await budgets.standings(TENANT)}
        found = {name.removeprefix("run/"): item.spent.get("tokens", 0) for name, item in standings.items()}
        assert {name: amount for name, amount in found.items() if amount and name in limits} == used
        assert [item.spent.get("tokens", 0) for name, item in standings.items() if name.startswith("project/")] == [
            sum(used.values())
        ]
        assert not [item for item in standings.values() if item.held]

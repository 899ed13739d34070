"""Budgets over a real ledger and real runs (B1 to B5 of `governance/budgets.py`)."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import Budgets, BudgetTable, Metering, ModelCall, Short, fit
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
        async with self.budgets.tool_call(ctx, "tool"):
            ctx.emit("agent.toolCalled", {"callId": "c"})
        return {}


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


async def _killed(made: World, at: Path) -> tuple[World, str]:
    """A host killed while a call is under way: what its disk held at that moment."""
    made.gate = asyncio.Event()
    async with made.open() as (runs, _):
        run_id = await begin(runs, chain("w", 1))
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
                    found = await host.hold(
                        TENANT,
                        chance.choice(run_ids),
                        id,
                        limits,
                        lambda accounts, wanted=wanted: fit(accounts, wanted),
                    )
                    if isinstance(found, Short):
                        refused += 1
                        continue
                    held[id] = amount
                    assert spent + sum(held.values()) <= 200
                    for _ in range(chance.randint(0, 5)):
                        await asyncio.sleep(0)
                    used = chance.choice([None, chance.randint(0, amount)])
                    await host.settle(found, None if used is None else {"tokens": used})
                    spent += used or 0
                    del held[id]

            await asyncio.gather(*(program(number) for number in range(8)))
            for standing in await hosts[0].standings(TENANT):
                assert (standing.held, standing.spent) == ({}, {"tokens": spent} if spent else {})
            assert spent <= 200
            assert refused, "the program never came to the ceiling: it proves nothing"

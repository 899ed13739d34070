"""One SQL text for two databases (D1 to D6): a real host on SQLite, and its log and its questions on PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import Claim, Short, fit
from forestay.host import Host
from forestay.kernel import ManualClock, Record
from forestay.runs.schedules import ScheduleSpec
from forestay.runs.types import CreateRun, ForkRequest, RunFilter
from forestay.runs.views import SORTS
from tests.kernel.ledger.on_postgres import built, empty_schema
from tests.postgres import new_ledger
from tests.runs.documents import edge, node, workflow
from tests.runs.test_webhooks import TENANT, finish, opened, receiving, settled

Rows = list[tuple[Any, ...]]
SOURCE = Path(__file__).parents[2] / "src" / "forestay"
CHILD = workflow("small", [node("n")])
PARENT = workflow("large", [node("a"), node("b", "core.subWorkflow", config={"workflowId": "small"})], [edge("a", "b")])


@pytest.fixture
def postgres() -> Iterator[Any]:
    """A ledger's schema with nothing in it."""
    with empty_schema() as database:
        yield database


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(threshold=0.02)


async def play(host: Host, receiver: Any) -> None:
    """Something of everything that has a table."""
    for document in (CHILD, PARENT):
        await host.runs.put_workflow(document, tenant=None)
    made = await host.webhooks.register(TENANT, receiver.url, ["run.completed", "run.started"])
    tagged = await host.webhooks.register(TENANT, receiver.url, ["run.completed"], ["blue"])
    run_id = await finish(host, "large", tags=["red", "blue"], callback_url=receiver.url)
    await settled(host, receiver, 6)
    branch = ForkRequest(mode="branch", from_seq=2, run_options_overlay={"tags": ["green"]})
    await host.runs.fork(run_id, TENANT, branch)
    await host.webhooks.rotate(made.webhook_id, TENANT)
    receiver.answers = [500] * 9
    await finish(host, tags=["blue"], scope_id="s")
    await host.webhooks.remove(tagged.webhook_id, TENANT)
    waits = await host.runs.create_run(CreateRun(workflow_id="suite-approval", tags=["blue"]), TENANT)
    await host.runs.pause(waits.run_id, TENANT)
    spec = ScheduleSpec(workflow_id="suite-noop", cron="* * * * *")
    schedules = [await host.schedules.create(spec, TENANT, "me") for _ in range(2)]
    await host.schedules.pause(schedules[0].schedule_id, TENANT)
    await host.schedules.backfill(schedules[0].schedule_id, TENANT, 0, 60_000)
    async for record in host.ledger.follow(f"schedule/{schedules[1].schedule_id}"):
        if record.type == "schedule.fired":
            break
    await host.schedules.update(schedules[1].schedule_id, TENANT, spec)
    limits: dict[str, Any] = {"run/x": {"tokens": 9}}
    book = host.budgets.book

    def claim(run_id: str, id: str, **more: Any) -> Claim:
        two: dict[Any, int] = {"tokens": 2}
        fitting: dict[str, Any] = {"limits": limits, "reserve": lambda found: fit(found, two), **more}
        return Claim(id=id, tenant=TENANT, run_id=run_id, **fitting)

    for number, id in enumerate((run_id, waits.run_id)):
        held = await book.hold(claim(id, f"hold-{number}"))
        assert not isinstance(held, Short)
        if number == 0:
            book.settle(held, {"tokens": 1})
            await book.hold(claim(id, "charge", once=True))
    session = await host.relay.init("app")
    await session.ingest("The Aurora lies at berth 7.", "note")
    await (await host.relay.init("other")).close()
    budget = {"budget": {"maxTokens": 1_000_000}}
    asks = CreateRun(workflow_id="forestay-ask", inputs={"question": "Where is the Aurora?"}, configurable=budget)
    run_id = (await host.runs.create_run(asks, TENANT)).run_id
    await host.runs.wait(run_id, TENANT)
    await book.hold(claim(run_id, "held", limits={"project": {"tokens": 9}}))
    await host.budgets.standings(TENANT)
    await host.sessions.fork((await host.sessions.create(TENANT, "talk")).id, tenant=TENANT)
    await host.sessions.list(TENANT)
    subscribed = await host.triggers.subscriptions.subscribe(TENANT, "queue", "suite-noop")
    twice = [await host.triggers.offer(TENANT, subscribed.subscription_id, "event", {}) for _ in range(2)]
    assert twice[0].delivery_id == twice[1].delivery_id
    await host.triggers.deliver_due()
    await host.triggers.deliveries(TENANT)
    for number, expires in enumerate((None, 10**15)):
        await host.memories.put(TENANT, "notes", f"The Aurora lies at berth {number}.", expires_ms=expires)
    gone = await host.memories.put(TENANT, "notes", "Forget this.")
    await host.memories.forget(TENANT, gone.memory_id)
    assert len(await host.memories.search(TENANT, "Where does the Aurora lie?")) == 2
    await host.memories.sweep()


async def ask(host: Host) -> None:
    """Every question that is asked of the tables."""
    filters = RunFilter(status=["completed"], tag="blue", created_after="2020-01-01T00:00:00Z", scope_id="s")
    page = await host.runs.list_runs(filters, TENANT, limit=1)
    assert len(page.runs) == 1
    page = await host.runs.list_runs(RunFilter(), TENANT, limit=1)
    await host.runs.list_runs(RunFilter(workflow_id="small", parent_run_id="x"), TENANT, page.next_cursor)
    await host.runs.count_runs(TENANT)
    await host.runs.count_questions(TENANT)
    for sort in SORTS:
        assert (await host.runs.search(TENANT, filters, "blue", sort=sort)).total == 1
    assert sum(span.runs for span in await host.runs.trend(TENANT, 0, 10**12, 10)) > 5
    await finish(host, "large")
    await host.runs._engine._sweep()
    for webhook in await host.webhooks.subscriptions(TENANT):
        await host.webhooks.deliveries(webhook.webhook_id, TENANT)
    await host.webhooks._start_due()
    await host.budgets.standings(TENANT)
    await host.relay.sessions()
    await host.relay.sessions("app")


@pytest.mark.sweep
async def test_a_host_works_on_postgresql_and_finds_everything_again(tmp_path: Path, clock: ManualClock) -> None:
    address = new_ledger()
    async with receiving() as receiver:
        async with opened(tmp_path, clock, receiver, ledger=address, max_attempts=2) as host:
            await play(host, receiver)
            await ask(host)
            before = await host.runs.count_runs(TENANT)
        async with opened(tmp_path, clock, receiver, ledger=address, max_attempts=2) as host:
            assert await host.runs.count_runs(TENANT) == before
            await finish(host, "large")
            assert (await host.ledger.verify()).ok
    assert not (tmp_path / "ledger.db").exists()


async def test_what_a_host_keeps_and_asks_is_the_same_on_postgresql(
    tmp_path: Path, clock: ManualClock, postgres: Any
) -> None:
    asked: dict[str, Sequence[Any]] = {}
    async with receiving() as receiver, opened(tmp_path, clock, receiver, max_attempts=2) as host:
        ledger: Any = host.ledger
        look_up = ledger.look_up

        async def noted(sql: str, parameters: Sequence[Any] = ()) -> Rows:
            asked[sql] = parameters
            return await look_up(sql, parameters)  # type: ignore[no-any-return]

        ledger.look_up, ledger.query = noted, noted
        await play(host, receiver)
        await ask(host)
        projections = ledger._writer.projections
        await host.schedules.close()
        await host.webhooks.close()
        await host.runs.close()
        pages = {
            prefix: await _all(host, prefix)
            for prefix in {"", *(p.prefix for p in projections)}
            if isinstance(prefix, str)
        }
        for projection in projections:
            for name in built(postgres, projection, partial(_page, pages)):
                rows = await look_up(f"SELECT * FROM {name}")
                assert rows, f"{name} is empty: nothing was tried"
                assert _sorted(postgres.execute(f"SELECT * FROM {name}").fetchall()) == _sorted(rows), name
        assert len(asked) >= 15
        for sql, parameters in asked.items():
            found = postgres.execute(sql, parameters).fetchall()
            assert _sorted(found) == _sorted(await look_up(sql, parameters)), sql


async def _all(host: Host, prefix: str) -> list[tuple[int, Record]]:
    return [item for after in range(0, await host.ledger.position(), 1000)
            for item in await host.ledger.read_all(prefix, after, 1000) if item[0] <= after + 1000]  # fmt: skip


def _page(pages: dict[str, list[tuple[int, Record]]], prefix: str, after: int) -> list[tuple[int, Record]]:
    return [item for item in pages[prefix] if item[0] > after]


def _sorted(rows: Rows) -> Rows:
    return sorted((tuple(row) for row in rows), key=repr)


ONE_DATABASE_ONLY = re.compile(
    r"INSERT OR|WITHOUT ROWID|json_each|json_extract|GLOB|LIMIT -1|\bINTEGER\b|AUTOINCREMENT|ILIKE|::text|unnest|PRAGMA"
)


def test_no_statement_outside_the_backends_is_for_one_database_only() -> None:
    found = []
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "ledger" and path.name.startswith(("sqlite", "postgres")):
            continue
        text = path.read_text("utf-8")
        if re.search(r"\b(SELECT|INSERT INTO|CREATE TABLE|UPDATE) ", text):
            found += [f"{path.name}: {match[0]}" for match in ONE_DATABASE_ONLY.finditer(text)]
        if match := re.search(r"^\s*(?:import|from) (sqlite3|psycopg)", text, re.MULTILINE):
            found.append(f"{path.name} imports {match[1]}")
    assert not found

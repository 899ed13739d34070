"""What the account book has in memory (B2 to B6 of `governance/account_book.py`, L1 and L2 of `balances.py`)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import BudgetTable, Claim, Short, fit
from forestay.governance.account_book import AccountBook, Hold
from forestay.governance.accounts import Account
from forestay.governance.balances import Balance, Balances
from forestay.kernel import Ids, Ledger, SeededRandomness
from forestay.runs import CreateRun, Runs, projections
from tests.runs.documents import node, workflow
from tests.runs.patient import CountedLedger, PatientClock

TENANT = "acme"
LIMITS: dict[str, Any] = {"project/day/x": {"tokens": 300, "toolCalls": 40}, "run/r": {"tokens": 200}}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Ledger, Runs, list[str]]]:
    """A ledger with runs that wait."""
    clock = PatientClock()
    tables = [*projections(), BudgetTable()]
    async with CountedLedger.open(folder / "l.db", projections=tables, clock=clock) as ledger:
        runs = Runs(ledger, clock=clock, ids=Ids(clock), randomness=SeededRandomness(1), secret=b"s" * 32)
        async with runs:
            await runs.put_workflow(workflow("w", [node("n", "core.delay", config={"delayMs": 10**9})]), tenant=None)
            made = [await runs.create_run(CreateRun(workflow_id="w"), TENANT) for _ in range(4)]
            yield ledger, runs, [run.run_id for run in made]


def claim(id: str, run_id: str, amounts: dict[Any, int], *, once: bool = False) -> Claim:
    own = "run/r"
    return Claim(
        id=id,
        tenant=TENANT,
        run_id=run_id,
        limits=LIMITS,
        reserve=lambda accounts: fit(accounts, amounts),
        once=once,
        own=own,
    )


async def reserve(book: AccountBook, wanted: Claim, fails: str = "") -> Hold | Short:
    """Reserve; the call `fails` to begin before that is on disk, or after."""
    found = await book.reserve(wanted)
    if fails == "after":
        await book.settled(TENANT)
    if fails and isinstance(found, Hold):
        book.settle(found, None)
    return found


async def seen(book: AccountBook, id: str, run_id: str) -> list[Account]:
    """The accounts as the call `id` would find them."""
    found: list[Account] = []

    def look(accounts: Sequence[Account]) -> Short:
        found.extend(accounts)
        return Short("", "tokens")

    looking = Claim(id=id, tenant=TENANT, run_id=run_id, limits=LIMITS, reserve=look)
    await book.reserve(looking)
    return [Account(item.name, item.limits, _plain(item.spent), _plain(item.held)) for item in found]


def _plain(amounts: Any) -> Any:
    return {name: amount for name, amount in amounts.items() if amount}


@pytest.mark.parametrize("seed", range(8))
async def test_l1_memory_says_what_the_tables_say(tmp_path: Path, seed: int) -> None:
    """Random programs: calls that reserve and settle, fail before or after the reservation is on disk, are charged once
    or again, runs that end, and processes that die with calls under way. After each step a book that knows
    nothing agrees."""
    chance = random.Random(seed)
    async with opened(tmp_path) as (ledger, runs, run_ids):
        book = AccountBook(ledger)
        under_way: list[Hold] = []
        charged: set[str] = set()
        for step in range(60):
            run_id, amounts = chance.choice(run_ids), {"tokens": chance.randint(1, 40)}
            match chance.choice(["call", "call", "settle", "settle", "charge", "before", "after", "die", "end"]):
                case "call":
                    held = await reserve(book, claim(f"call-{step}", run_id, amounts))
                    under_way += [held] if isinstance(held, Hold) else []
                case "settle" if under_way:
                    used: dict[Any, int] = {"tokens": chance.randint(0, 5)}
                    book.settle(under_way.pop(chance.randrange(len(under_way))), chance.choice([None, used]))
                case "charge":
                    id = f"charge-{chance.randint(0, 9)}"
                    held = await reserve(book, claim(id, run_id, {"toolCalls": 1}, once=True))
                    assert isinstance(held, Hold)
                    assert (held.accounts == ()) == (id in charged), "it is charged once"
                    charged.add(id)
                case "before" | "after" as fails:
                    await reserve(book, claim(f"call-{step}", run_id, amounts), fails)
                case "die":
                    await book.settled(TENANT)
                    book, under_way = AccountBook(ledger), []
                case "end" if len(run_ids) > 1 and run_id not in {hold.run_id for hold in under_way}:
                    await runs.cancel(run_id, TENANT)
                    run_ids.remove(run_id)
            asking = chance.choice([f"call-{step}", "another"])
            in_memory = await seen(book, asking, run_id)
            await book.settled(TENANT)
            assert in_memory == await seen(AccountBook(ledger), asking, run_id)
        assert charged


async def test_l1_known_accounts_are_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as (ledger, _, (run_id, *_)):
        asked: list[str] = []
        look_up: Callable[..., Any] = ledger.look_up

        async def counted(sql: str, parameters: Any = ()) -> Any:
            asked.append(sql)
            return await look_up(sql, parameters)

        monkeypatch.setattr(ledger, "look_up", counted)
        book = AccountBook(ledger)
        for number in range(3):
            held = await reserve(book, claim(f"call-{number}", run_id, {"tokens": 5}))
            assert isinstance(held, Hold)
            book.settle(held, {"tokens": 2})
            await reserve(book, claim(f"tool-{number}", run_id, {"toolCalls": 1}, once=True))
        assert len(asked) == 1
        await reserve(book, claim("fails", run_id, {"tokens": 5}), "after")
        await reserve(book, claim("call-9", run_id, {"tokens": 5}))
        assert len(asked) == 1


def test_l2_those_that_nobody_asked_for_the_longest_go() -> None:
    known = Balances(most=2)
    for name in ("a", "b"):
        known.keep(TENANT, name, Balance({}, {}))
    assert known.find(TENANT, "a") is not None
    known.keep(TENANT, "c", Balance({}, {}))
    assert [name for name in "abc" if known.find(TENANT, name) is not None] == ["a", "c"]
    known.drop("another")
    assert known.find(TENANT, "a") is not None
    known.drop(TENANT)
    assert known.find(TENANT, "a") is None

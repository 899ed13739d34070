"""A host that closes in good order writes down what was done: only a crash leaves an effect to be repeated (F2, G6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from forestay.kernel import Append, Ids, Record, SeededRandomness
from forestay.runs.nodes.core import standard_registry
from forestay.runs.service import Runs, projections
from tests.runs.documents import finish, node, start, workflow
from tests.runs.patient import CountedLedger, PatientClock

PAYS = workflow("pays", [node("pay", "test.pay")])


class SlowLedger(CountedLedger):
    """A disk that answers when it is let: a commit of an effect waits at the gate."""

    gate: asyncio.Event | None = None

    async def commit(self, *appends: Append) -> list[Record]:
        effect = any(draft.type == "forestay.effect.recorded" for item in appends for draft in item.drafts)
        if self.gate is not None and effect:
            await self.gate.wait()
        return await super().commit(*appends)


class Shop:
    """A node type that counts what it did to the outside."""

    def __init__(self, path: Path, clock: PatientClock) -> None:
        self.clock = clock
        self.ids = Ids(clock, SeededRandomness(7))
        self.ledger = SlowLedger(path / "ledger.db", projections=projections(), clock=clock, ids=self.ids)
        self.paid = 0
        self.did = asyncio.Event()

    def open(self) -> Runs:
        types = standard_registry(custom=False)

        @types.node("test.pay")
        async def pay(ctx: Any) -> dict[str, Any]:
            async def work() -> int:
                self.paid += 1
                self.did.set()
                return self.paid

            paid = await ctx.effect("charge", work)
            await asyncio.sleep(3)
            return {"paid": paid}

        return Runs(
            self.ledger,
            clock=self.clock,
            ids=self.ids,
            randomness=SeededRandomness(7),
            secret=b"s" * 32,
            nodes=types,
            sweep_seconds=30.0,
            lease_seconds=3600.0,
        )


async def test_g6_an_effect_that_waits_for_its_turn_is_recorded_when_the_engine_closes(
    tmp_path: Path, clock: PatientClock
) -> None:
    shop = Shop(tmp_path, clock)
    async with shop.open() as runs:
        run_id = await start(runs, PAYS)
        await shop.did.wait()  # the effect is done; its record waits in the run's inbox
    async with shop.open() as runs:
        assert (await finish(runs, run_id)).status == "completed"
    shop.ledger.close()
    assert shop.paid == 1


async def test_g6_a_record_that_is_on_its_way_is_on_disk_when_the_engine_has_closed(
    tmp_path: Path, clock: PatientClock
) -> None:
    shop = Shop(tmp_path, clock)
    shop.ledger.gate = asyncio.Event()
    async with shop.open() as runs:
        run_id = await start(runs, PAYS)
        await shop.did.wait()
        for _ in range(8):
            await asyncio.sleep(0)  # the run has handed the record to the ledger
        closing = asyncio.create_task(runs.close())
        for _ in range(8):
            await asyncio.sleep(0)
        assert not closing.done(), "a slow disk"
        shop.ledger.gate.set()
        await closing
    async with shop.open() as runs:
        assert (await finish(runs, run_id)).status == "completed"
    shop.ledger.close()
    assert shop.paid == 1

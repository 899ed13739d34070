"""The moments of schedule subscriptions (V1 to V3), on a real ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import SourceSettings, Subscription, TriggerClock
from forestay.kernel import Problem
from tests.governance.test_triggers import TENANT, WORK, World

MINUTE = 60_000
EVERY_MINUTE = SourceSettings(cron="* * * * *", inputs={"order": "daily"})


def at(world: World, ms: int) -> None:
    """Set the clock."""
    world.clock.advance((ms - world.clock.now_ms()) / 1000)


async def subscribed(world: World, **options: Any) -> Subscription:
    return await world.triggers.subscriptions.subscribe(
        TENANT, "schedule", WORK["id"], settings=EVERY_MINUTE, **options
    )


def clock_of(world: World) -> TriggerClock:
    return TriggerClock(world.ledger, world.triggers, clock=world.clock)


async def test_v1_a_moment_starts_one_run_however_often_and_by_whomever_it_is_seen(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.open():
        made = await subscribed(world, dedup=False)
        first = (made.since_ms // MINUTE + 1) * MINUTE
        assert 0 <= await clock_of(world).tick() <= 60 and await world.started() == []
        at(world, first + 1)
        await asyncio.gather(clock_of(world).tick(), clock_of(world).tick())
        await world.triggers.deliver_due()
        (run_id,) = await world.started()
        run = await world.runs.get_run(run_id, TENANT)
        assert run.inputs["order"] == "daily" and run.inputs["scheduledFor"].endswith("00.000Z")
    async with world.open():  # another life sees the same moment again
        await clock_of(world).tick()
        await world.triggers.deliver_due()
        assert await world.started() == [run_id]


async def test_v2_a_pause_skips_its_moments(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.open():
        made = await subscribed(world)
        second = (made.since_ms // MINUTE + 2) * MINUTE
        await world.triggers.subscriptions.pause(TENANT, made.subscription_id)
        at(world, second - 1)
        await clock_of(world).tick()
        at(world, second + 5)
        await world.triggers.subscriptions.resume(TENANT, made.subscription_id)
        await clock_of(world).tick()
        assert await world.triggers.deliveries(TENANT) == []
        at(world, second + MINUTE)
        await clock_of(world).tick()
        assert len(await world.triggers.deliveries(TENANT)) == 1


async def test_v3_a_moment_that_nobody_was_there_for_is_let_go(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.open():
        made = await subscribed(world)
        at(world, (made.since_ms // MINUTE + 10) * MINUTE + 1)
        await clock_of(world).tick()
        assert len(await world.triggers.deliveries(TENANT)) == 1  # the newest, which is a millisecond old


async def test_a_schedule_that_never_ticks_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.open():
        for wrong in (SourceSettings(), SourceSettings(cron="0 0 31 2 *"), SourceSettings("* * * * *", "Nowhere/City")):
            with pytest.raises(Problem) as refused:
                await world.triggers.subscriptions.subscribe(TENANT, "schedule", WORK["id"], settings=wrong)
            assert refused.value.key == "schema_mismatch"

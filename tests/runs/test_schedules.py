"""Schedules (T1 to T5): a real host on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host, Options, open_host
from forestay.kernel import ManualClock, Problem, SeededRandomness, iso
from forestay.runs.schedules import Schedule, ScheduleSpec
from forestay.runs.types import RunFilter, RunSummary
from tests.contracts.openwop.documents import DOCUMENTS

TENANT = "default"
HOUR = 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(threshold=0.002)


@asynccontextmanager
async def opened(data: Path, clock: ManualClock) -> AsyncIterator[Host]:
    async with open_host(Options(data=data, clock=clock, randomness=SeededRandomness(1))) as host:
        for name in ("noop", "approval", "identity"):
            await host.runs.put_workflow(DOCUMENTS[name], tenant=None)
        yield host


async def every_minute(host: Host, workflow: str = "suite-noop", **options: Any) -> Schedule:
    return await host.schedules.create(ScheduleSpec(workflow_id=workflow, cron="* * * * *", **options), TENANT, "me")


async def hourly(host: Host, workflow: str = "suite-noop", **options: Any) -> Schedule:
    return await host.schedules.create(ScheduleSpec(workflow_id=workflow, cron="0 * * * *", **options), TENANT, "me")


async def runs_of(host: Host, schedule: Schedule) -> list[RunSummary]:
    page = await host.runs.list_runs(RunFilter(), TENANT, None, 200)
    return page.runs[::-1]


async def story(host: Host, schedule: Schedule) -> list[str]:
    records = await host.ledger.read(f"schedule/{schedule.schedule_id}")
    return [record.type.removeprefix("schedule.") for record in records]


async def until(host: Host, schedule: Schedule, wanted: list[str]) -> None:
    """Let time pass until the schedule's stream reads so."""
    async with asyncio.timeout(100 * HOUR):
        async for _ in host.ledger.follow(f"schedule/{schedule.schedule_id}"):
            if await story(host, schedule) == wanted:
                while host.schedules._states[schedule.schedule_id].seq < len(wanted) - 1:
                    await asyncio.sleep(0)  # the record is on disk; the loop that wrote it has yet to hear so
                return


async def test_runs_start_at_their_moments_and_say_so(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host, tags=["nightly"])
        first = schedule.next_at
        await until(host, schedule, ["created", "fired", "fired", "fired"])
        found = await runs_of(host, schedule)
        assert len(found) == 3 and all(run.tags == ["nightly"] for run in found)
        run = await host.runs.get_run(found[0].run_id, TENANT)
        assert run.metadata == {"scheduleId": schedule.schedule_id, "scheduledFor": first}
        assert run.owner is not None and run.owner.principal == "me"
        assert (await host.schedules.get(schedule.schedule_id, TENANT)).last_run_id == found[-1].run_id


async def test_t1_the_moments_of_schedules_share_no_keys_with_callers(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host)
        await until(host, schedule, ["created", "fired"])
        assert not await host.ledger.streams("idem/") and not await host.ledger.streams("dedup/")


async def test_t1_a_crash_between_run_and_record_starts_no_second_run(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host)
        await until(host, schedule, ["created", "fired"])
        state = host.schedules._states[schedule.schedule_id]
        at = state.done_ms + 60_000
        lost = await host.schedules._begin(state, at)  # the run is there, its record is not
    clock.advance(60)
    async with opened(tmp_path, clock) as host:
        await until(host, schedule, ["created", "fired", "fired"])
        found = await runs_of(host, schedule)
        assert [run.run_id for run in found].count(lost) == 1 and len(found) == 2


@pytest.mark.parametrize(("catch_up", "fired", "skipped"), [("skip", 0, 5), ("latest", 1, 4), ("all", 5, 0)])
async def test_t2_missed_moments_are_treated_as_asked(
    tmp_path: Path, clock: ManualClock, catch_up: Any, fired: int, skipped: int
) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await hourly(host, catch_up=catch_up)
    clock.advance(5.5 * HOUR)
    async with opened(tmp_path, clock) as host:
        await until(host, schedule, ["created", *["skipped"] * skipped, *["fired"] * fired])
        assert len(await runs_of(host, schedule)) == fired
        view = await host.schedules.get(schedule.schedule_id, TENANT)
        assert view.next_at == iso((clock.now_ms() // 3_600_000 + 1) * 3_600_000)


@pytest.mark.parametrize("at_once", [2, 3, 7])
async def test_t2_the_latest_is_one_however_many_were_missed(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("forestay.runs.schedules._CATCH_UP_MOST", at_once)
    async with opened(tmp_path, clock) as host:
        schedule = await hourly(host)
    clock.advance(6.5 * HOUR)
    async with opened(tmp_path, clock) as host:
        await until(host, schedule, ["created", *["skipped"] * 5, "fired"])
        assert len(await runs_of(host, schedule)) == 1


async def test_t3_skip_leaves_out_while_the_run_before_is_active(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host, "suite-approval")
        await until(host, schedule, ["created", "fired", "skipped", "skipped"])
        (run,) = await runs_of(host, schedule)
        await host.runs.resolve_by_node(run.run_id, "gate", TENANT, {"resumeValue": {"action": "accept"}})
        await until(host, schedule, ["created", "fired", "skipped", "skipped", "fired"])


async def test_t3_queue_keeps_one_and_starts_it_after(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host, "suite-approval", overlap="queue")
        await until(host, schedule, ["created", "fired", "queued", "skipped"])
        queued = (await host.schedules.get(schedule.schedule_id, TENANT)).queued_at
        (run,) = await runs_of(host, schedule)
        await host.runs.resolve_by_node(run.run_id, "gate", TENANT, {"resumeValue": {"action": "accept"}})
        await until(host, schedule, ["created", "fired", "queued", "skipped", "fired"])
        found = await runs_of(host, schedule)
        second = await host.runs.get_run(found[1].run_id, TENANT)
        assert second.metadata["scheduledFor"] == queued
        assert (await host.schedules.get(schedule.schedule_id, TENANT)).queued_at is None


async def test_t3_what_is_queued_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host, "suite-approval", overlap="queue")
        await until(host, schedule, ["created", "fired", "queued"])
    async with opened(tmp_path, clock) as host:
        (run,) = await runs_of(host, schedule)
        await host.runs.resolve_by_node(run.run_id, "gate", TENANT, {"resumeValue": {"action": "accept"}})
        await until(host, schedule, ["created", "fired", "queued", "fired"])


async def test_t3_allow_and_cancel_previous(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        both = await every_minute(host, "suite-approval", overlap="allow")
        await until(host, both, ["created", "fired", "fired"])
        await host.schedules.delete(both.schedule_id, TENANT)
        assert {run.status for run in await runs_of(host, both)} == {"waiting-approval"}
        one = await every_minute(host, "suite-approval", overlap="cancel-previous")
        await until(host, one, ["created", "fired", "fired"])
        found = await runs_of(host, one)
        async for _ in host.runs.follow(found[2].run_id, TENANT):
            pass
        assert (await host.runs.get_run(found[2].run_id, TENANT)).status == "cancelled"


async def test_t4_a_paused_schedule_rests_and_goes_on_with_the_next_moment(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host, catch_up="all")
        paused = await host.schedules.pause(schedule.schedule_id, TENANT)
        assert (paused.state, paused.next_at) == ("paused", None)
        await asyncio.sleep(300)
        assert await story(host, schedule) == ["created", "paused"]
        await host.schedules.resume(schedule.schedule_id, TENANT)
        await until(host, schedule, ["created", "paused", "resumed", "fired"])
        assert len(await runs_of(host, schedule)) == 1


async def test_t5_a_run_that_cannot_start_is_put_down_and_the_schedule_goes_on(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host)
        required = DOCUMENTS["identity"]  # the workflow changes: now it asks for an input
        await host.runs.put_workflow({**required, "id": "suite-noop"}, tenant=None)
        await until(host, schedule, ["created", "failed", "failed"])
        records = await host.ledger.read(f"schedule/{schedule.schedule_id}", 1, 1)
        assert records[0].payload["error"]["code"] == "validation_error"


async def test_t5_a_schedule_whose_runs_could_not_start_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        with pytest.raises(Problem) as caught:
            await every_minute(host, "suite-identity")  # its required input is missing
        assert caught.value.details["at"].startswith("$.inputs.")
        assert await host.schedules.schedules(TENANT) == []


async def test_backfill_fills_each_moment_once(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await hourly(host)
        now = clock.now_ms()
        first = await host.schedules.backfill(schedule.schedule_id, TENANT, now - 4 * HOUR * 1000, now)
        again = await host.schedules.backfill(schedule.schedule_id, TENANT, now - 6 * HOUR * 1000, now)
        assert len(first) == 5 and len(again) == 7 and again[-5:] == first
        assert len(await runs_of(host, schedule)) == 7
        with pytest.raises(Problem) as caught:
            await host.schedules.backfill(schedule.schedule_id, TENANT, 0, now)
        assert caught.value.details["limit"] == 1000


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (-62_135_596_800_000, -62_135_500_000_000),  # the year 1
        (-1, 0),
        (253_402_200_000_000, 253_402_300_799_000),  # the year 9999
        (0, 10**13),
        (2, 1),
    ],
)
async def test_backfill_is_of_the_past(tmp_path: Path, clock: ManualClock, start: int, end: int) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await hourly(host, timezone="America/New_York")
        with pytest.raises(Problem) as refused:
            await host.schedules.backfill(schedule.schedule_id, TENANT, start, end)
        assert refused.value.key == "out_of_range"
        assert await runs_of(host, schedule) == [] and await story(host, schedule) == ["created"]


async def test_k4_a_schedule_whose_answer_was_lost_is_told_again(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        spec = ScheduleSpec(workflow_id="suite-noop", cron="0 * * * *")
        made, again = [await host.schedules.create(spec, TENANT, schedule_id="sch_reserved") for _ in range(2)]
        assert made == again and await host.schedules.schedules(TENANT) == [made]


async def test_what_is_deleted_takes_no_change_that_waited(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await hourly(host)
        name, schedules = schedule.schedule_id, host.schedules
        changes = [
            schedules.delete(name, TENANT),
            schedules.delete(name, TENANT),
            schedules.pause(name, TENANT),
            schedules.backfill(name, TENANT, 0, 3_600_000),
            schedules.update(name, TENANT, schedule.spec),
        ]
        ended = await asyncio.gather(*changes, return_exceptions=True)
        refused = [item.key if isinstance(item, Problem) else "" for item in ended]
        told = await story(host, schedule)
        if not host.ledger.shared:  # there they wait in the order in which they came
            assert refused == ["", *["not_found"] * 4] and told == ["created", "deleted"]
        assert sorted(refused[:2]) == ["", "not_found"] and set(refused) == {"", "not_found"}
        assert told.count("deleted") == 1
        assert not {"paused", "updated", "backfilled"} & set(told[told.index("deleted") :])


async def test_schedules_belong_to_a_tenant(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host)
        assert await host.schedules.schedules("other") == []
        for method in ("get", "pause", "resume", "delete"):
            with pytest.raises(Problem) as caught:
                result = getattr(host.schedules, method)(schedule.schedule_id, "other")
                await result
            assert caught.value.key == "not_found"


async def test_an_update_moves_the_next_moment(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as host:
        schedule = await every_minute(host)
        spec = ScheduleSpec(workflow_id="suite-noop", cron="30 12 * * *", timezone="Asia/Tokyo")
        changed = await host.schedules.update(schedule.schedule_id, TENANT, spec)
        assert changed.next_at is not None and changed.next_at[11:16] == "03:30"
        with pytest.raises(Problem):
            await host.schedules.update(schedule.schedule_id, TENANT, ScheduleSpec(workflow_id="x", cron="no"))
    async with opened(tmp_path, clock) as host:
        assert (await host.schedules.get(schedule.schedule_id, TENANT)).spec == spec

"""Following a run: polls, followers and those who wait for its end (L8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs.types import RunEvent
from tests.runs.conftest import Host
from tests.runs.documents import node, start, workflow


async def test_poll_waits_for_the_next_event_and_says_when_it_is_over(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a", "core.delay", config={"delayMs": 5000})]))
        first = await runs.poll(run_id, "acme", -1, 1)
        assert first.events and not first.is_complete
        last = first.events[-1].sequence
        empty = await runs.poll(run_id, "acme", last, 1)
        assert empty.events == [] and not empty.is_complete
        rest = await runs.poll(run_id, "acme", last, 30)
        assert rest.is_complete
        assert rest.events[-1].type == "run.completed"
        assert (await runs.poll(run_id, "acme", rest.events[-1].sequence, 30)).is_complete


async def test_poll_loses_nothing_of_a_run_that_ends_while_it_reads(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a", "core.delay", config={"delayMs": 5000})]))
        last = (await runs.poll(run_id, "acme", -1, 1)).events[-1].sequence
        read = runs.events

        async def read_and_let_it_end(*asked: Any) -> list[RunEvent]:
            found = await read(*asked)
            monkeypatch.setattr(runs, "events", read)
            await runs.wait(run_id, "acme")
            return found

        monkeypatch.setattr(runs, "events", read_and_let_it_end)
        page = await runs.poll(run_id, "acme", last, 30)
        assert page.is_complete and page.events[-1].type == "run.completed"


async def test_l8_many_followers_and_a_slow_one_get_everything(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("x", "core.waitForEvent", config={"event": "end"})]))

        async def follow(pause: float) -> list[int]:
            seen = []
            async for event in runs.follow(run_id, "acme"):
                seen.append(event.sequence)
                if pause and event.sequence % 500 == 0:
                    await asyncio.sleep(pause)
            return seen

        followers = [asyncio.create_task(follow(5.0 if index == 0 else 0)) for index in range(20)]
        await asyncio.sleep(1)
        for _ in range(30):
            await asyncio.gather(*(runs.signal(run_id, "acme", "tick") for _ in range(100)))
        await runs.signal(run_id, "acme", "end")
        results = await asyncio.gather(*followers)
        count = len(await runs.events(run_id, "acme"))
        assert count > 3000
        assert all(seen == list(range(count)) for seen in results)
        assert not runs._ledger._feeds._by_stream


async def test_a_follower_that_goes_away_leaves_nothing_behind(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("g", "core.approvalGate")]))
        stream = runs.follow(run_id, "acme", 99)
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(1)
        assert runs._ledger._feeds._by_stream
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await stream.aclose()
        assert not runs._ledger._feeds._by_stream


async def test_waiting_for_a_run_ends_with_it_wherever_it_is(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("gate", "core.approvalGate")]))
        with pytest.raises(Problem, match="no such run"):
            await runs.wait(run_id, "somebody-else")
        waiting_for = asyncio.create_task(runs.wait(run_id, "acme"))
        await asyncio.sleep(0.1)
        assert not waiting_for.done()
        await runs.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "accept"}}, "ann")
        assert (await waiting_for).status == "completed"
        assert (await runs.wait(run_id, "acme")).status == "completed", "ended before it was asked for"


async def test_waiting_for_a_run_does_not_outlive_the_engine(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("gate", "core.approvalGate")]))
        waiting_for = asyncio.create_task(runs.wait(run_id, "acme"))
        await asyncio.sleep(0.1)
        await runs.drain(1.0)  # a run that rests holds nothing up, watched or not
        await runs.close()
        with pytest.raises(Problem, match="closing"):
            await waiting_for

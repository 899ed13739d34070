"""What brings runs back when something else is wrong: a damaged run, a clock that jumps, a disk that fails (G3)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Ids, Problem, Record, SeededRandomness
from forestay.kernel.ledger.sqlite import SqliteLedger
from forestay.runs.service import Runs, projections
from tests.kernel.ledger.tampering import unlock
from tests.runs.documents import finish, node, start, workflow
from tests.runs.patient import PatientClock

HOUR = 3600.0


class SetClock(PatientClock):
    """A machine whose clock can be set: its timers do not notice."""

    skew_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.skew_ms


def waits(name: str, ms: int) -> dict[str, Any]:
    return workflow(name, [node("wait", "core.delay", config={"delayMs": ms})])


def damage(folder: Path, run_id: str, payload: str) -> None:
    with sqlite3.connect(folder / "ledger.db") as db:
        stream = db.execute("SELECT id FROM streams WHERE name = ?", (f"run/{run_id}",)).fetchone()
        unlock(db)
        db.execute("UPDATE records SET payload = ? WHERE stream = ? AND seq = 1", (payload.encode(), *stream))
    db.close()


@pytest.mark.parametrize("payload", ['{"cut', '"not an event"'])
async def test_g3_a_run_that_cannot_be_read_keeps_no_other_from_going_on(
    tmp_path: Path, clock: PatientClock, host: Any, payload: str
) -> None:
    async with host() as runs:
        bad, good = [await start(runs, waits("w", 5_000)) for _ in range(2)]
    for run_id in sorted((bad, good))[:1]:  # the one that a sweep meets first
        bad, good = run_id, ({bad, good} - {run_id}).pop()
    damage(tmp_path, bad, payload)
    async with host() as runs:
        assert (await finish(runs, good)).status == "completed"
        again = await start(runs, waits("w", 5_000))
        assert (await finish(runs, again)).status == "completed"
        with pytest.raises(Problem):
            await runs.get_run(bad, "acme")


class TestClock:
    @pytest.fixture
    def clock(self) -> SetClock:
        return SetClock()

    async def test_g3_what_fell_due_while_the_machine_slept_goes_on_at_once(self, clock: SetClock, host: Any) -> None:
        async with host(sweep_seconds=1.0) as runs:
            run_id = await start(runs, waits("w", 3_600_000))
            await asyncio.sleep(10)
            clock.skew_ms = 3_600_000
            began = clock.monotonic()
            assert (await finish(runs, run_id)).status == "completed"
            assert clock.monotonic() - began < 60, "not when the timer of the sleeping machine would have rung"

    @pytest.mark.parametrize("jump", [-HOUR, HOUR, 12 * HOUR])
    async def test_a_clock_that_was_set_between_two_lives_changes_no_end(
        self, clock: SetClock, host: Any, jump: float
    ) -> None:
        async with host() as runs:
            run_id = await start(runs, waits("w", 5_000))
        clock.skew_ms = round(jump * 1000)
        async with host() as runs:
            assert (await finish(runs, run_id)).status == "completed"
            events = await runs.events(run_id, "acme")
            assert [event.timestamp for event in events] == sorted(event.timestamp for event in events)
            again = await start(runs, waits("w", 5_000))
            assert (await finish(runs, again)).status == "completed"


async def test_a_follower_is_told_when_the_log_cannot_be_read(tmp_path: Path, clock: PatientClock) -> None:
    class Failing(SqliteLedger):
        async def follow(self, *_: Any, **__: Any) -> AsyncGenerator[Record, None]:
            await asyncio.sleep(1)
            raise Problem("ledger_io", "The disk failed.")
            yield

    async with Failing.open(tmp_path / "ledger.db", projections=projections(), clock=clock) as ledger:
        ids = Ids(clock, SeededRandomness(1))
        async with Runs(ledger, clock=clock, ids=ids, randomness=SeededRandomness(1), secret=b"s" * 32) as runs:
            run_id = await start(runs, waits("w", 5_000))
            told = await asyncio.gather(finish(runs, run_id), finish(runs, run_id), return_exceptions=True)
        assert [getattr(item, "key", item) for item in told] == ["ledger_io", "ledger_io"]

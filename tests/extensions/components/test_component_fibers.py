"""A call begins on the event loop's thread when its like was short, and goes on elsewhere when it is not (E4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.extensions.components.guests import ECHO, RELAY

from forestay.extensions.components import driver, fibers, instance
from forestay.extensions.components.driver import ComponentDriver
from forestay.extensions.components.pace import SHORT, Pace
from forestay.extensions.components.values import set_deadline
from forestay.extensions.engine.limits import Limits
from forestay.extensions.evidence import stream_of
from forestay.kernel import Problem

pytestmark = pytest.mark.skipif(not fibers.SUPPORTED, reason="this Python has no calls on fibers (F3)")
ENDLESS = "(loop $on (br $on)) (unreachable)"
LONG = f"""
  (local $turn i64)
  (if (i32.eq (local.get 3) (i32.const 2))
    (then (loop $on
      (local.set $turn (i64.add (local.get $turn) (i64.const 1)))
      (br_if $on (i64.lt_u (local.get $turn) (i64.const 60000000))))))
  {ECHO}"""
"""`{}` takes as long as 60 million turns take, which no machine does within a tick; anything else is answered."""
STUCK = f"""
  (if (i32.eq (local.get 3) (i32.const 2)) (then (loop $on (br $on))))
  {ECHO}"""


class Seen:
    """How often the event loop's thread was left; and whether the epoch ticks, so that calls can come back."""

    def __init__(self) -> None:
        self.threads = 0
        self.ticks = False


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found, real = Seen(), ComponentDriver._do

    async def counted(self: ComponentDriver, work: Any, timeout: float) -> Any:
        found.threads += 1
        return await real(self, work, timeout)

    def deadline(context: int, ticks: int) -> None:
        set_deadline(context, ticks if found.ticks else 1 << 30)

    # How long a call takes is the machine's affair. Here each one is short, until a test lets the epoch tick.
    monkeypatch.setattr(ComponentDriver, "_do", counted)
    monkeypatch.setattr(Pace, "took", lambda self, _seconds: _took(self, 0.0))
    monkeypatch.setattr(driver, "AT_ONCE", 3600.0)
    monkeypatch.setattr(instance, "set_deadline", deadline)
    return found


_took = Pace.took


@given(st.lists(st.sampled_from(["short", "long", "ended", "moved"]), max_size=60))
def test_a_pace_is_short_only_after_a_short_call(happened: list[str]) -> None:
    pace, last, away = Pace(), "long", 0
    for one in happened:
        if one in ("short", "long"):
            pace.took(0.0 if one == "short" else SHORT)
            last, away = one, max(0, away - 1)
        elif one == "ended":
            pace.ended()
        else:
            before, away = away, 0
            pace.moved()
            away = pace._away
            assert 2 <= away <= 64 and before <= 64
        assert pace.is_short == (last == "short" and away == 0)


async def test_e4_short_calls_stay_on_the_thread_of_the_event_loop(running: Any, seen: Seen) -> None:
    async with running() as it:
        await it.guest.call_tool("echo", {"n": 0})
        seen.threads = 0
        for number in range(50):
            assert (await it.guest.call_tool("echo", {"n": number})).details == {"n": number}
        assert seen.threads == 0


async def test_e4_a_look_at_a_file_is_answered_there_and_a_read_is_not(running: Any, seen: Seen) -> None:
    async with running(world={"grants": ["read"]}, tool=RELAY) as it:
        (it.world.project / "a.txt").write_text("hello")
        seen.threads = 0
        looks = [await it.guest.call_tool("fs", {"op": "exists", "path": "a.txt"}) for _ in range(21)]
        assert [outcome.details for outcome in looks] == [{"exists": True}] * 21
        assert seen.threads == 1  # the first
        seen.threads = 0
        assert (await it.guest.call_tool("fs", {"op": "read", "path": "a.txt", "encoding": "utf8"})).details == {
            "text": "hello"
        }
        assert seen.threads == 1  # begun here, and moved
        it.world.evidence.flush()
        found = await it.world.ledger.read(stream_of("ext.test"))
        records = [record for record in found if record.type.startswith(("host_call.", "policy."))]
        told = [(record.type, _same(record.payload)) for record in records]
        assert len(told) == 66 and told[:3] * 21 == told[:63]  # on a thread or not, the same stands on record
        assert [record.attrs["host_call_id"] for record in records[::3]] == [f"ext.test/1.{n}" for n in range(1, 23)]


async def test_e4_a_refused_look_is_refused_in_the_same_way(running: Any, seen: Seen) -> None:
    async with running(tool=RELAY) as it:
        outcomes = [await it.guest.call_tool("fs", {"op": "exists", "path": "a.txt"}) for _ in range(4)]
        assert [outcome.hostcall for outcome in outcomes] == ["denied"] * 4
        assert len({str(outcome.content) for outcome in outcomes}) == 1
        broken = [await it.guest.call_tool("fs", {"op": "nothing"}) for _ in range(2)]
        assert {outcome.hostcall for outcome in broken} == {"invalid_request"}


async def test_e4_what_a_person_decides_is_not_waited_for_on_the_loop(running: Any, seen: Seen) -> None:
    async with running(world={"mode": "prompt", "grants": ["read:open.txt"]}, tool=RELAY) as it:
        for _ in range(3):
            await it.guest.call_tool("fs", {"op": "exists", "path": "open.txt"})
        seen.threads = 0
        outcome = await it.guest.call_tool("fs", {"op": "exists", "path": "other.txt"})
        assert seen.threads == 1 and outcome.is_error  # a question waits on a thread; here nobody answers it


async def test_e4_a_tick_that_comes_early_moves_nothing(running: Any, seen: Seen) -> None:
    async with running(tool=LONG, deadline=60.0, limits=Limits(slice_ms=60_000)) as it:
        for number in range(3):
            await it.guest.call_tool("echo", {"n": number})
        seen.threads, seen.ticks = 0, True
        assert (await it.guest.call_tool("echo", {})).details == {} and seen.threads == 0


async def test_e4_a_call_that_turns_out_to_be_long_is_moved_and_answers(
    running: Any, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tool=LONG, deadline=60.0, limits=Limits(slice_ms=60_000)) as it:
        for number in range(3):
            await it.guest.call_tool("echo", {"n": number})
        turns, seen.ticks = 0, True
        monkeypatch.setattr(driver, "AT_ONCE", 0.0)

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        seen.threads = 0
        outcome = await it.guest.call_tool("echo", {})
        beside.cancel()
        assert outcome.details == {} and seen.threads == 1 and turns > 1
        assert (await it.guest.call_tool("echo", {"n": 9})).details == {"n": 9} and it.guest.traps == 0


async def test_e4_one_that_never_ends_is_moved_and_stopped(
    running: Any, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tool=STUCK, deadline=0.3) as it:
        for number in range(3):
            await it.guest.call_tool("echo", {"n": number})
        seen.threads, seen.ticks = 0, True
        monkeypatch.setattr(driver, "AT_ONCE", 0.0)
        with pytest.raises(Problem) as caught:
            await it.guest.call_tool("echo", {})
        assert caught.value.key == "extension_timeout" and seen.threads == 1
        assert (await it.guest.call_tool("echo", {"n": 4})).details == {"n": 4}  # another instance


@pytest.mark.parametrize("tool", [RELAY, ENDLESS, "(unreachable)"])
async def test_f3_without_fibers_everything_is_the_same(
    running: Any, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    said = []
    for supported in (True, False):
        monkeypatch.setattr(fibers, "SUPPORTED", supported)
        async with running(world={"grants": ["read"]}, tool=tool, deadline=0.3) as it:
            for _ in range(3):
                try:
                    outcome = await it.guest.call_tool("fs", {"op": "exists", "path": "a.txt"})
                    said.append((supported, outcome.details, outcome.is_error))
                except Problem as problem:
                    said.append((supported, problem.key, problem.message))
    half = len(said) // 2
    assert [item[1:] for item in said[:half]] == [item[1:] for item in said[half:]]


def _same(payload: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key != "duration_ms"}

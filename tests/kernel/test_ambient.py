"""Time and identity are objects: they jump, they repeat, they sort."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forestay.kernel.ambient import (
    Ids,
    ManualClock,
    SeededRandomness,
    SystemClock,
    SystemRandomness,
    bound_of,
    iso,
    moment_of,
    parse_iso,
)
from forestay.kernel.problems import Problem


async def test_a_manual_clock_jumps_to_the_next_deadline(clock: ManualClock) -> None:
    order: list[tuple[str, float]] = []

    async def wait(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append((name, clock.monotonic()))

    await asyncio.gather(wait("day", 86400), wait("hour", 3600), wait("minute", 60))
    assert order == [("minute", 60.0), ("hour", 3600.0), ("day", 86400.0)]
    assert clock.now_ms() - ManualClock().now_ms() == 86400_000


async def test_a_timeout_fires_in_the_clocks_time(clock: ManualClock) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()
    assert clock.monotonic() == 3600.0


async def test_the_clock_waits_for_other_threads_before_it_jumps(clock: ManualClock) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set)).start()
    async with asyncio.timeout(10):
        await done.wait()
    assert clock.monotonic() == 0.0


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="back"):
        ManualClock().advance(-1)


@given(st.integers(0, 4_102_444_800_000))
def test_times_read_back(ms: int) -> None:
    assert parse_iso(iso(ms)) == ms


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        parse_iso("2026-01-01T00:00:00")


@given(st.datetimes(timezones=st.timezones() | st.sampled_from([timezone(timedelta(hours=h)) for h in (-23, 23)])))
@example(datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC))
@example(datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-1))))
@example(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))))
def test_a_time_that_is_read_can_be_written(moment: datetime) -> None:
    try:
        written = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:  # no year of ours in UTC
        with pytest.raises(ValueError, match="years"):
            parse_iso(moment.isoformat())
        return
    assert iso(parse_iso(moment.isoformat())) == written


@pytest.mark.parametrize("text", ["", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "yesterday", "1" * 5000])
def test_a_time_that_a_caller_sent_and_that_is_none_is_a_problem_at_its_place(text: str) -> None:
    with pytest.raises(Problem) as refused:
        moment_of(text, "$.from")
    assert (refused.value.key, refused.value.details["at"]) == ("schema_mismatch", "$.from")
    assert refused.value.message == "from is not an RFC 3339 time with a zone."


def test_ids_of_one_maker_increase_strictly_and_repeat_with_the_seed() -> None:
    def make() -> list[str]:
        maker = Ids(ManualClock(), SeededRandomness(7))
        return [maker.new("run") for _ in range(1000)]

    first = make()
    assert first == make()
    assert sorted(set(first)) == first
    assert all(len(item) == 30 and item.startswith("run_") for item in first)


@pytest.mark.parametrize("count", [1, 3, 2500])
def test_ids_in_a_row_are_the_numbers_from_the_first_on(count: int) -> None:
    class Last:
        """A randomness whose number is one before the last two digits are full."""

        def bytes(self, count: int) -> bytes:
            return ((1 << 80) - 4).to_bytes(10, "big")

        def uniform(self) -> float:
            raise AssertionError("ids need no such number")

    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    made = Ids(ManualClock(start_ms=1_700_000_000_000), Last()).several(count)
    first = (1_700_000_000_000 << 80) | ((1 << 79) - 2)
    assert made == [
        "".join(digits[(number >> shift) & 31] for shift in range(125, -1, -5))
        for number in range(first, first + count)
    ]


def test_ids_of_later_milliseconds_sort_later(clock: ManualClock, ids: Ids) -> None:
    before = ids.new()
    clock.advance(0.001)
    assert before < ids.new()


def test_system_randomness_and_clock_are_the_machines() -> None:
    random = SystemRandomness()
    assert random.bytes(16) != random.bytes(16)
    assert all(0 <= random.uniform() < 1 for _ in range(100))
    assert abs(SystemClock().now_ms() - parse_iso(iso(SystemClock().now_ms()))) < 1000
    assert len(Ids().uuid4()) == 36
    assert len(Ids().token(16)) == 32


def test_an_id_carries_its_time_so_ids_of_different_makers_sort_by_it(clock: ManualClock) -> None:
    earlier = Ids(clock, SeededRandomness(1)).new()
    clock.advance(0.001)
    later = Ids(clock, SeededRandomness(2)).new()
    assert earlier < later and earlier[:10] != later[:10]
    same = Ids(clock, SeededRandomness(3))
    first = same.new()
    clock.advance(1)
    assert first[:10] != same.new()[:10]
    assert len(same.token()) == 64


def test_a_bound_in_the_first_and_the_last_year_is_a_time_in_every_zone() -> None:
    assert bound_of("0001-01-01T00:00:00+09:41", "$.a") == parse_iso("0001-01-01T00:00:00Z")
    assert bound_of("9999-12-31T23:59:59-05:00", "$.a") == parse_iso("9999-12-31T23:59:59Z")
    assert bound_of("2026-01-01T00:00:00+01:00", "$.a") == parse_iso("2025-12-31T23:00:00Z")
    for text in ("0001-01-01T00:00:00", "never", "9999-99-01T00:00:00Z"):
        with pytest.raises(Problem) as caught:
            bound_of(text, "$.a")
        assert caught.value.details["at"] == "$.a"

"""The arithmetic of many databases: more of everything is more in use, and its page says what it makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.thousand import COSTS, STEPS, Fleet, rows, uses
from hypothesis import given
from hypothesis import strategies as st

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "a-thousand-workers.md"
FLEETS = st.builds(Fleet, st.integers(1, 10_000), st.integers(1, 100), st.floats(1e3, 1e10))


def shares(fleet: Fleet) -> dict[str, float]:
    return dict(uses(fleet))


@given(FLEETS, st.floats(1, 100))
def test_more_records_use_no_less_of_anything(fleet: Fleet, times: float) -> None:
    less, more = shares(fleet), shares(fleet._replace(records=fleet.records * times))
    assert all(more[name] >= share * (1 - 1e-9) for name, share in less.items())


@given(FLEETS)
def test_ten_times_everything_with_ten_times_the_databases_is_the_same(fleet: Fleet) -> None:
    """Shards have nothing in common. A database has one worker at least."""
    fleet = fleet._replace(workers=max(fleet.workers, fleet.databases))
    grown = Fleet(fleet.workers * 10, fleet.databases * 10, fleet.records * 10)
    assert shares(grown) == pytest.approx(shares(fleet))


def test_a_hundred_databases_carry_a_billion_records_and_one_does_not() -> None:
    assert all(use.share < 0.5 for use in uses(STEPS[-1]))
    assert uses(Fleet(1_000, 1, 1e9))[0].share > 1


def test_the_page_says_what_the_program_makes() -> None:
    text = PAGE.read_text("utf-8")
    for row in rows():
        assert f"| {' | '.join(row)} |" in text
    told = (
        f"{1000 * COSTS.worker_record:.2f} ms of the worker's processor, {1000 * COSTS.database_record:.2f} ms",
        f"{COSTS.record_bytes:,.0f} bytes",
        f"| {COSTS.group:.0f} |",
        f"{1000 * COSTS.beat:.2f} ms",
        f"{1000 * COSTS.look:.2f} ms",
        f"{1000 * COSTS.hint:.3f} ms",
    )
    assert all(item in text for item in told)

"""Cron in time zones."""

from __future__ import annotations

import pytest

from forestay.kernel import Problem, iso, parse_iso
from forestay.runs import cron


def moments(expression: str, zone: str, after: str, count: int) -> list[str]:
    found = cron.ticks(expression, zone, parse_iso(after))
    return [iso(next(found))[:16] for _ in range(count)]


def test_the_next_moment_is_strictly_after() -> None:
    assert moments("*/15 * * * *", "UTC", "2026-01-01T00:00:00Z", 2) == ["2026-01-01T00:15", "2026-01-01T00:30"]
    assert moments("0 0 * * *", "UTC", "2026-01-01T00:00:00.500Z", 1) == ["2026-01-02T00:00"]


def test_zones_move_moments() -> None:
    assert moments("0 9 * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", 1) == ["2026-01-01T08:00"]
    assert moments("0 9 * * *", "Europe/Berlin", "2026-07-01T00:00:00Z", 1) == ["2026-07-01T07:00"]
    assert moments("0 9 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", 1) == ["2026-01-01T03:30"]


def test_an_hour_that_does_not_exist_comes_once_and_a_repeated_one_too() -> None:
    spring = moments("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2)
    assert spring == ["2026-03-29T01:00", "2026-03-30T00:30"]  # 02:30 is skipped; cron runs right after the gap
    autumn = moments("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2)
    assert autumn == ["2026-10-25T00:30", "2026-10-26T01:30"]


def test_a_range_is_bounded() -> None:
    start, end = parse_iso("2026-01-01T00:00:00Z"), parse_iso("2026-01-01T01:00:00Z")
    assert len(cron.between("* * * * *", "UTC", start, end, 1000)) == 60
    assert len(cron.between("* * * * *", "UTC", start, end, 7)) == 7
    assert cron.between("0 0 1 1 *", "UTC", start, end, 7) == []


@pytest.mark.parametrize(
    "expression", ["", "* * * *", "61 * * * *", "nonsense", "0 0 30 2 *", "@daily", "* * * * * * *"]
)
def test_bad_expressions_are_refused(expression: str) -> None:
    with pytest.raises(Problem) as caught:
        cron.check(expression, "UTC")
    assert caught.value.details["at"] == "$.cron"


@pytest.mark.parametrize("zone", ["", "Mars/Base", "../etc/passwd", "/etc/passwd", "UTC\0", "Asia" + "/ia" * 1000])
def test_bad_zones_are_refused(zone: str) -> None:
    with pytest.raises(Problem) as caught:
        cron.check("* * * * *", zone)
    assert caught.value.details["at"] == "$.timezone"

"""A bar tells whether a figure holds, and how far the limit is, whichever direction is the better one."""

from __future__ import annotations

import pytest
from benchmarks.bars.__main__ import main
from benchmarks.bars.bar import Bar, Measured, figure, row, table


def bar(goal: float, *, more: bool = False, unit: str = "ms") -> Bar:
    return Bar("name", "what", unit, None, goal, lambda: Measured(0.0, 0.0, ""), more)


def test_less_is_better_or_more_is() -> None:
    fast, many = bar(0.010), bar(100, more=True, unit="/s")
    assert fast.holds(0.010) and not fast.holds(0.011)
    assert many.holds(100) and not many.holds(99)
    assert fast.distance(Measured(0.02, 0.01, "")) == pytest.approx(2)
    assert many.distance(Measured(50, 200, "")) == pytest.approx(4)


def test_a_row_tells_everything() -> None:
    told = row(bar(0.010), Measured(0.0125, 0.005, "the disk"))
    assert told == "| what | - | 12.5 ms | at most 10.0 ms | no | 5.00 ms: the disk | 2.5 times |"
    before = bar(100, more=True, unit="/s")._replace(before=50.0)
    assert row(before, Measured(120, 1200, "it")) == (
        "| what | 50.0/s | 120/s | at least 100/s | yes | 1,200/s: it | 10.0 times |"
    )


def test_what_was_not_measured_says_why() -> None:
    head, line, told = table([(bar(1.0, unit="s"), "no corpus")])
    assert told == "| what | - | not measured: no corpus | at most 1.00 s | - | - | - |"
    assert head.count("|") == line.count("|") == told.count("|")


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [(90e-6, "us", "90.0 us"), (0.4, "s", "0.40 s"), (70, "MiB", "70.0 MiB"), (4, "times", "4.00 times")],
)
def test_figures_are_for_readers(value: float, unit: str, told: str) -> None:
    assert figure(value, unit) == told


def test_a_name_that_no_bar_has_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bars", "one", "nosuch"])
    assert main() == 2
    told = capsys.readouterr()
    assert told.out == "" and "No bar is called nosuch. There are: build, scan," in told.err

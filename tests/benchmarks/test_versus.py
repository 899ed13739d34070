"""How a figure of a benchmark is read, and which of two is the better one."""

from __future__ import annotations

import pytest
from benchmarks.versus import Figure, figure


@pytest.mark.parametrize(
    ("text", "value", "more"),
    [
        ("3,575/s", 3575, True),
        ("201 runs/s", 201, True),
        ("2.21 MB/s", 2.21, True),
        ("397 runs/s, 1985 steps/s", 397, True),
        ("p50 31.6 us, p95 83.3 us", 31.6e-6, False),
        ("4.4 µs", 4.4e-6, False),
        ("0.76 s", 0.76, False),
        ("83 MiB", 83, False),
        ("p50 1.01 ms, p95 1.29 ms", 1.01e-3, False),
    ],
)
def test_the_first_number_of_a_row_is_its_figure(text: str, value: float, more: bool) -> None:
    found = figure(text)
    assert found is not None and found.more is more
    assert found.value == pytest.approx(value)


@pytest.mark.parametrize("text", ["not measured", "0 MB", ""])
def test_a_row_without_a_figure_is_not_compared(text: str) -> None:
    assert figure(text) is None


def test_better_and_times_go_by_what_is_measured() -> None:
    slow, fast = Figure(2.0, "2 s", False), Figure(1.0, "1 s", False)
    assert slow.better(fast) == fast.better(slow) == fast and fast.times(slow) == 2.0
    few, many = Figure(100, "100/s", True), Figure(150, "150/s", True)
    assert few.better(many) == many.better(few) == many and many.times(few) == 1.5

"""A bar, its measurement, and both as a row of a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "/s": 1.0, "MiB": 1.0, "times": 1.0}


class Measured(NamedTuple):
    """A figure in seconds, items per second, MiB or times; the machine's limit for it, and what sets that limit."""

    value: float
    limit: float
    limited_by: str


class Bar(NamedTuple):
    """A goal for a figure. `before` is the figure of 0.1, None when it was not measured. `more`: higher is better."""

    name: str
    what: str
    unit: str
    before: float | None
    goal: float
    measure: Callable[[], Measured]
    more: bool = False

    def holds(self, value: float) -> bool:
        return value >= self.goal if self.more else value <= self.goal

    def distance(self, found: Measured) -> float:
        """Return how many times as good as the figure the limit is."""
        return found.limit / found.value if self.more else found.value / found.limit


Answer = Measured | str
"""A measurement, or the reason why there is none."""


def table(rows: Sequence[tuple[Bar, Answer]]) -> list[str]:
    lines = ["| what | before | now | bar | holds | the limit | distance |", "|---|---|---|---|---|---|---|"]
    return [*lines, *(row(bar, answer) for bar, answer in rows)]


def row(bar: Bar, answer: Answer) -> str:
    sign = "at least" if bar.more else "at most"
    before = "-" if bar.before is None else figure(bar.before, bar.unit)
    goal = f"{sign} {figure(bar.goal, bar.unit)}"
    if isinstance(answer, str):
        return f"| {bar.what} | {before} | not measured: {answer} | {goal} | - | - | - |"
    holds = "yes" if bar.holds(answer.value) else "no"
    limit = f"{figure(answer.limit, bar.unit)}: {answer.limited_by}"
    now = figure(answer.value, bar.unit)
    return f"| {bar.what} | {before} | {now} | {goal} | {holds} | {limit} | {bar.distance(answer):.1f} times |"


def figure(value: float, unit: str) -> str:
    """Format a figure in `unit`; `value` is in seconds for a time."""
    shown = value * _UNITS[unit]
    digits = 0 if shown >= 100 else 1 if shown >= 10 else 2
    return f"{shown:,.{digits}f}{'' if unit == '/s' else ' '}{unit}"

"""Draws scores of evaluations as SVG: a series over time, and two compared."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import msgspec

_WIDTH, _HEIGHT, _LEFT, _TOP, _FOOT = 560, 132, 28, 12, 32
_BAR, _ROW = 220, 12


class Scored(msgspec.Struct, frozen=True):
    """One point of a chart: its time, label, score and link."""

    at: str
    label: str
    score: float
    passed: bool
    link: str


def over_time(title: str, points: Sequence[Scored]) -> str:
    """Draw the scores from 0 to 1 in order of time, each a link to its run."""
    step = (_WIDTH - _LEFT - 16) / max(1, len(points) - 1)
    places = [(_LEFT + 8 + at * step, _y(one.score)) for at, one in enumerate(points)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots, last = "", None
    for (x, y), one in zip(places, points, strict=True):
        said = f"{one.label}: {one.score:.2f}, {'passed' if one.passed else 'not passed'}, {_minute(one.at)}"
        look = "good" if one.passed else "bad"
        dots += (
            f'<a href="{escape(one.link)}" aria-label="{escape(said)}"><title>{escape(said)}</title>'
            f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="5"/></a>'
        )
        if one.label != last:  # name a version where it begins
            side = "end" if x > _WIDTH - 60 else "start" if x < _LEFT + 40 else "middle"
            dots += f'<text class="time" x="{x:.1f}" y="{_HEIGHT + 14}" text-anchor="{side}">{escape(one.label)}</text>'
        last = one.label
    grid = "".join(
        f'<path class="tick" d="M{_LEFT} {_y(value):.1f}H{_WIDTH}"/>'
        f'<text class="time" x="0" y="{_y(value) + 4:.1f}">{value:.1f}</text>'
        for value in (0.0, 0.5, 1.0)
    )
    ends = "".join(
        f'<text class="time" x="{x}" y="{_HEIGHT + 28}" text-anchor="{side}">{escape(_minute(at))}</text>'
        for x, side, at in ((_LEFT, "start", points[0].at), (_WIDTH, "end", points[-1].at))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT + _FOOT}" role="group" '
        f'aria-label="{escape(title)}">{grid}<polyline class="trend" points="{line}"/>{dots}{ends}</svg>'
    )


def pair(first: float | None, second: float | None) -> str:
    """Draw two scores of one task as two bars, the earlier one above."""
    bars = "".join(
        f'<rect class="{look}" x="0" y="{at * _ROW}" width="{max(1.0, value * _BAR):.1f}" height="{_ROW - 3}"/>'
        for at, (look, value) in enumerate((("off", first), ("accent", second)))
        if value is not None
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart pair" viewBox="0 0 {_BAR} {2 * _ROW}" '
        f'aria-hidden="true"><path class="tick" d="M{_BAR} 0V{2 * _ROW}"/>{bars}</svg>'
    )


def _y(score: float) -> float:
    return _TOP + (1 - score) * (_HEIGHT - _TOP)


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")

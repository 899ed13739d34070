"""Draws a soak for the documentation: memory, files and latency over time, as SVG. Pure.

A thin vertical line is a restart of the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from benchmarks.measure import percentile
from benchmarks.soak.verdict import Soak

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _GAP = 720, 130, 56, 96, 44, 46
_MOST_POINTS = 120
_LOOKS = ("#1b6ca8", "#c0562f", "#3d8b4f", "#7a4fa3", "#a8841b", "#555555", "#c23b7a")


class Line(NamedTuple):
    """A name and its points: seconds from the start, and a value."""

    name: str
    points: Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """One set of axes."""

    title: str
    lines: Sequence[Line]


def panels(soak: Soak) -> list[Panel]:
    """Return the picture's panels; each point of latency is the p99 of an equal part of the time."""
    held = [item for item in soak.samples if 0 <= item.at - soak.began <= soak.seconds]
    held = held[:: max(1, len(held) // _MOST_POINTS)]
    times = [item.at - soak.began for item in held]

    def line(name: str, values: Iterable[float]) -> Line:
        return Line(name, list(zip(times, values, strict=True)))

    return [
        Panel(
            "memory, MiB",
            [line("resident", (item.resident for item in held)), line("own", (item.private for item in held))],
        ),
        Panel("open files", [line("files", (float(item.files) for item in held))]),
        Panel(
            "files on disk, MiB",
            [
                line("ledger", (item.ledger for item in held)),
                line("its log", (item.log for item in held)),
                line("others", (item.other for item in held)),
            ],
        ),
        Panel(f"{soak.measured} p99, ms", [Line(kind, _latencies(soak, kind)) for kind in soak.kinds]),
    ]


def _latencies(soak: Soak, kind: str) -> list[tuple[float, float]]:
    parts = max(4, min(_MOST_POINTS, round(soak.seconds / 30)))
    length = soak.seconds / parts
    by_part: list[list[float]] = [[] for _ in range(parts)]
    for item in soak.done:
        at = int((item.due - soak.began) // length)
        if item.kind == kind and 0 <= at < parts and not soak.met(item):
            by_part[at].append(item.seconds * 1000)
    return [((at + 0.5) * length, percentile(taken, 0.99)) for at, taken in enumerate(by_part) if taken]


def picture(soak: Soak, title: str) -> str:
    """Return the whole picture as SVG."""
    drawn = panels(soak)
    height = _TOP + len(drawn) * (_PANEL + _GAP)
    away = [item.at - soak.began for item in soak.restarts]
    tops = [_TOP + number * (_PANEL + _GAP) for number in range(len(drawn))]
    body = "".join(_panel(panel, top, soak.seconds, away) for panel, top in zip(drawn, tops, strict=True))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="{_LEFT}" y="22" font-size="14" fill="#222222">{escape(title)}</text>{body}</svg>\n'
    )


def _panel(panel: Panel, top: int, seconds: float, away: Sequence[float]) -> str:
    most = _rounded(max((value for line in panel.lines for _, value in line.points), default=1.0))
    wide = _WIDTH - _LEFT - _RIGHT
    parts = [f'<text x="{_LEFT}" y="{top - 6}" fill="#222222">{escape(panel.title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = top + _PANEL * (1 - share)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555555">{most * share:g}</text>')
    for share in (0.0, 0.5, 1.0):
        words = f"{seconds * share / 3600:.3g} h" if seconds > 2 * 3600 else f"{seconds * share / 60:.3g} min"
        parts.append(
            f'<text x="{_LEFT + wide * share:.1f}" y="{top + _PANEL + 15}" text-anchor="middle" fill="#555555">{words}'
            "</text>"
        )
    for at in away:
        x = _LEFT + wide * at / seconds
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + _PANEL}" stroke="#bbbbbb"/>')
    for number, line in enumerate(panel.lines):
        look = _LOOKS[number % len(_LOOKS)]
        places = " ".join(
            f"{_LEFT + wide * at / seconds:.1f},{top + _PANEL * (1 - value / most):.1f}" for at, value in line.points
        )
        parts.append(f'<polyline points="{places}" fill="none" stroke="{look}" stroke-width="1.5"/>')
        y = top + 12 + number * 16
        parts.append(f'<text x="{_LEFT + wide + 10}" y="{y}" fill="{look}">{escape(line.name)}</text>')
    return "".join(parts)


def _rounded(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten, for an axis that people can read."""
    step = 1.0
    while step * 10 <= value:
        step *= 10
    return next((step * times for times in (1, 2, 5) if step * times >= value), step * 10)

"""Charts of runs over time, as SVG: runs and failures, tokens, cost and latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import msgspec
from starlette.responses import Response

from forestay.console.render import count, dollars, lasted
from forestay.console.visit import Visit, page
from forestay.runs import Span

_HOUR = 60 * 60 * 1000
_WIDTH, _HEIGHT, _FOOT = 560, 150, 18


class Window(msgspec.Struct, frozen=True):
    """A period of time, in equal spans."""

    label: str
    span_ms: int
    spans: int


WINDOWS = {
    "day": Window("the last day", _HOUR, 24),
    "week": Window("the last week", 6 * _HOUR, 28),
    "month": Window("the last 30 days", 24 * _HOUR, 30),
    "year": Window("the last year", 7 * 24 * _HOUR, 52),
}


class Series(msgspec.Struct, frozen=True):
    """One series of a chart: its label, its CSS class, and its value in each span."""

    label: str
    look: str
    values: list[float]


class Chart(msgspec.Struct, frozen=True):
    """A picture with its title and a sentence that sums it up."""

    title: str
    said: str
    svg: str


@page("/charts", "charts", "runs:read")
async def show(visit: Visit) -> Response:
    """Runs, failures, tokens, cost and latency over time."""
    name = visit.asked("over") if visit.asked("over") in WINDOWS else "week"
    window = WINDOWS[name]
    now = visit.host.clock.now_ms()
    since = (now // window.span_ms + 1 - window.spans) * window.span_ms
    spans = await visit.host.runs.trend(visit.tenant, since, window.span_ms, window.spans)
    return visit.page("charts.html", charts=charts(spans), spans=spans, window=name, windows=WINDOWS)


def charts(spans: Sequence[Span]) -> list[Chart]:
    """Return the four charts of a period."""
    runs, failed = [float(one.runs) for one in spans], [float(one.failed) for one in spans]
    well = [all_ - bad for all_, bad in zip(runs, failed, strict=True)]
    read, written = [float(one.input_tokens) for one in spans], [float(one.output_tokens) for one in spans]
    cost = [one.cost_usd for one in spans]
    middle, slow = [float(one.middle_ms or 0) for one in spans], [float(one.slow_ms or 0) for one in spans]
    times = [one.at for one in spans]
    return [
        _chart("Runs", times, [Series("not failed", "good", well), Series("failed", "bad", failed)], whole,
               f"{whole(sum(runs))} runs, {whole(sum(failed))} failed"),
        _chart("Tokens", times, [Series("in", "busy", read), Series("out", "accent", written)], whole,
               f"{whole(sum(read))} in, {whole(sum(written))} out"),
        _chart("Cost", times, [Series("USD", "wait", cost)], dollars, dollars(sum(cost))),
        _chart("Latency", times, [Series("median", "busy", middle), Series("95th percentile", "off", slow)], lasted,
               f"slowest part: {lasted(max(slow, default=0))} at the 95th percentile", stacked=False),
    ]  # fmt: skip


def whole(value: float) -> str:
    return count(round(value))


def _chart(
    title: str, times: list[str], series: list[Series], told: Callable[[float], str], said: str, *, stacked: bool = True
) -> Chart:
    columns = list(zip(*(one.values for one in series), strict=True))
    top = max((sum(column) if stacked else max(column) for column in columns), default=0)
    step = _WIDTH / max(1, len(columns))
    bars = [
        _column(series, column, times[at], at * step, step, top, told, stacked) for at, column in enumerate(columns)
    ]
    foot = "".join(
        f'<text class="time" x="{x}" y="{_HEIGHT + 14}" text-anchor="{side}">{escape(text)}</text>'
        for x, side, text in ((0, "start", _day(times[0])), (_WIDTH, "end", _day(times[-1])))
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT + _FOOT}" role="img" '
        f'aria-label="{escape(title)}: {escape(said)}"><path class="tick" d="M0 {_HEIGHT}H{_WIDTH}"/>'
        f'<text class="time" x="0" y="10">{escape(told(top))}</text>{"".join(bars)}{foot}</svg>'
    )
    return Chart(title, said, svg)


def _column(
    series: list[Series],
    values: tuple[float, ...],
    at: str,
    x: float,
    step: float,
    top: float,
    told: Callable[[float], str],
    stacked: bool,
) -> str:
    """Draw the bars of one span: stacked, or side by side."""
    if not any(values):
        return ""
    gap, below, drawn = min(2.0, step / 5), 0.0, ""
    width = (step - gap) / (1 if stacked else len(values))
    for place, (one, value) in enumerate(zip(series, values, strict=True)):
        height = value / top * (_HEIGHT - 16) if top else 0
        left = x if stacked else x + place * width
        drawn += (
            f'<rect class="{one.look}" x="{left:.1f}" y="{_HEIGHT - below - height:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}"/>'
        )
        below += height if stacked else 0
    said = ", ".join(f"{told(value)} {one.label}" for one, value in zip(series, values, strict=True))
    return f"<g><title>{escape(_minute(at))}: {escape(said)}</title>{drawn}</g>"


def _day(at: str) -> str:
    return at[:10]


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")

"""Draws a workflow as one SVG element, which runs no script and fetches nothing."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from html import escape
from typing import Any

from forestay.runs import graph_layout
from forestay.runs.graph import COLOURS, GATES, Edge, edges_of, group, nodes_of, short
from forestay.runs.graph_layout import HEIGHT, WIDTH, Layout, Point

_TITLE, _SMALL = 13.0, 10.5  # text sizes
_INSIDE = WIDTH - 14  # the width of a box's text
_LINE = 13
# A separate file follows the reader's dark mode; the console has its own colours.
_DARK = {
    "": ("#1c2329", "#8a96a0"),
    "completed": ("#17301f", "#6cc788"),
    "failed": ("#3b1d1b", "#f2857c"),
    "skipped": ("#22282d", "#7b858d"),
    "cancelled": ("#22282d", "#7b858d"),
    "running": ("#17263f", "#7fb0ff"),
    "waiting": ("#38290c", "#e8b44c"),
}


def svg(
    document: Mapping[str, Any],
    status: Mapping[str, str] | None = None,
    *,
    alone: bool = False,
    link: Callable[[str], str] | None = None,
) -> str:
    """Return the picture; `alone` makes it a separate file with colours for light and dark mode.

    `link` gives the address that a node leads to.
    """
    nodes = {str(node["id"]): node for node in nodes_of(document)}
    edges = edges_of(document)
    laid = _laid(tuple(nodes), tuple(graph_layout.Edge(one.source, one.target, one.loopback) for one in edges))
    lines = [_line(edge, path) for edge, path in zip(edges, laid.paths, strict=True) if path is not None]
    labels, width = _labels(edges, laid)
    boxes = [_box(node, laid.boxes[name], (status or {}).get(name, "")) for name, node in nodes.items()]
    if link is not None:
        boxes = [f'<a href="{escape(link(name))}">{box}</a>' for name, box in zip(nodes, boxes, strict=True)]
    title = escape(short(str(document.get("name") or document.get("id") or "workflow"), 120))
    size = f'viewBox="0 0 {width} {laid.height}" width="{width}" height="{laid.height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'class="graph" role="{"img" if link is None else "group"}" aria-label="{title}" '
        'font-family="system-ui, sans-serif">'
        f"<title>{title}</title>{_style() if alone else ''}"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="#6b7680"/></marker></defs>{"".join(lines + boxes + labels)}</svg>\n'
    )


@lru_cache(maxsize=64)
def _laid(names: tuple[str, ...], edges: tuple[graph_layout.Edge, ...]) -> graph_layout.Layout:
    """Compute a layout once for the same nodes and edges, for every state of a run."""
    return graph_layout.layout(names, edges)


def _style() -> str:
    rules = [
        f".graph .{name or 'idle'} rect{{fill:{fill};stroke:{stroke}}}"
        f".graph .{name or 'idle'} text+text{{fill:{stroke}}}"
        for name, (fill, stroke) in _DARK.items()
    ]
    page = ".graph{background:#12171b}.graph text{fill:#e4e8eb}.graph>text{fill:#b4bdc4;stroke:#12171b}"
    lines = ".graph>path,.graph marker path{stroke:#8a96a0}.graph marker path{fill:#8a96a0}"
    return f"<style>.graph{{background:#fff}}@media(prefers-color-scheme:dark){{{page}{lines}{''.join(rules)}}}</style>"


def _line(edge: Edge, path: str) -> str:
    dash = ' stroke-dasharray="5 4"' if edge.loopback else ""
    return f'<path d="{path}" fill="none" stroke="#6b7680" stroke-width="1.4"{dash} marker-end="url(#tip)"/>'


def _labels(edges: list[Edge], laid: Layout) -> tuple[list[str], int]:
    """Draw the labels of edges; return the picture's width with them. A target's rule is written once."""
    # A label is near the end of its edge that fewer edges share.
    leaving, arriving = _counts(edge.source for edge in edges), _counts(edge.target for edge in edges)
    ruled: set[str] = set()
    taken: list[tuple[float, int]] = []
    drawn, width = [], laid.width
    for edge, ends in zip(edges, laid.ends, strict=True):
        rule = edge.rule if edge.target not in ruled else ""
        said = " · ".join(part for part in (edge.condition, rule, "loop" if edge.loopback else "") if part)
        if ends is None or not said:
            continue
        ruled.add(edge.target)
        text = fitted(said, WIDTH + 30, _SMALL)
        half = _breadth(text, _SMALL) / 2
        if edge.loopback:
            x, y = _free(ends[1][0] + 8 + half, (ends[0][1] + ends[1][1]) // 2, _LINE, half, taken)
        elif leaving[edge.source] > arriving[edge.target] or rule:
            x, y = _free(max(ends[1][0], half + 4), ends[1][1] - 12, -_LINE, half, taken)
        else:
            x, y = _free(max(ends[0][0], half + 4), ends[0][1] + 20, _LINE, half, taken)
        taken.append((x, y))
        width = max(width, round(x + half) + 12)
        whole = f"<title>{escape(short(said, 400))}</title>" if text != said else ""
        drawn.append(
            f'<text x="{round(x)}" y="{y}" text-anchor="middle" font-size="{_SMALL}" fill="#44505c" '
            f'stroke="#fff" stroke-width="3" paint-order="stroke">{whole}{escape(text)}</text>'
        )
    return drawn, width


def _counts(names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found


def _free(x: float, y: int, step: int, half: float, taken: list[tuple[float, int]]) -> tuple[float, int]:
    """Return the place, or the nearest free line above or below it."""
    for row in range(4):
        at = y + row * step
        if all(abs(at - other_y) >= _LINE or abs(x - other_x) > 2 * half for other_x, other_y in taken):
            return x, at
    return x, y


def _box(node: Mapping[str, Any], place: Point, state: str) -> str:
    x, y = place
    fill, stroke = COLOURS[group(state)]
    kind = str(node.get("typeId", ""))
    round_by = 26 if GATES.search(kind) else 8
    name = str(node.get("name") or node["id"])
    ending = f" · {state}" if state else ""
    title = escape(fitted(name, _INSIDE, _TITLE))  # the tooltip has the whole name
    said = escape(fitted(kind, _INSIDE - _breadth(ending, _SMALL), _SMALL) + ending)
    return (
        f'<g class="{group(state) or "idle"}"><title>{escape(short(name, 200))}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="{round_by}" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="1.5"/><text x="{x + WIDTH // 2}" y="{y + 24}" text-anchor="middle" font-size="{_TITLE}" '
        f'font-weight="600" fill="#1f2830">{title}</text><text x="{x + WIDTH // 2}" y="{y + 42}" '
        f'text-anchor="middle" font-size="{_SMALL}" fill="{stroke}">{said}</text></g>'
    )


def _breadth(text: str, size: float) -> float:
    """Estimate the width of a text, a little more than most fonts need. Titles are bold."""
    letter = size * (0.6 if size == _TITLE else 0.56)
    return sum(size if unicodedata.east_asian_width(one) in "WF" else letter for one in text)


def fitted(text: str, room: float, size: float) -> str:
    """Return as much of a text as fits into `room`."""
    text = short(text, 400)
    if _breadth(text, size) <= room:
        return text
    while text and _breadth(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"

"""A workflow as a picture: nodes in layers from left to right, coloured by how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 150, 44, 60, 22


def draw(definition: Mapping[str, Any], states: Mapping[str, str]) -> str:
    """An SVG of the definition. Colours come from the page's style: each node carries its state as a class."""
    nodes = [node for node in definition.get("nodes", ()) if isinstance(node, Mapping) and "id" in node]
    edges = [
        (edge["sourceNodeId"], edge["targetNodeId"], edge.get("label") == "loopback")
        for edge in definition.get("edges", ())
        if isinstance(edge, Mapping) and "sourceNodeId" in edge and "targetNodeId" in edge
    ]
    if not nodes or len(nodes) > 200:
        return ""
    places = _places([str(node["id"]) for node in nodes], edges)
    width = max(x for x, _ in places.values()) + _WIDTH + 20
    height = max(y for _, y in places.values()) + _HEIGHT + 20
    parts = [
        f'<svg class="graph" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="The workflow, {len(nodes)} nodes">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
    ]
    parts += [
        _edge(places, source, target, back) for source, target, back in edges if source in places and target in places
    ]
    parts += [_node(node, places[str(node["id"])], states) for node in nodes]
    return "".join([*parts, "</svg>"])


def _places(names: list[str], edges: list[tuple[str, str, bool]]) -> dict[str, tuple[int, int]]:
    """Each node one layer after its last source; loopbacks do not count."""
    layer = dict.fromkeys(names, 0)
    for _ in names:
        moved = False
        for source, target, back in edges:
            if not back and source in layer and target in layer and layer[target] <= layer[source]:
                layer[target] = layer[source] + 1
                moved = True
        if not moved:
            break
    filled: dict[int, int] = {}
    places = {}
    for name in names:
        row = filled.get(layer[name], 0)
        filled[layer[name]] = row + 1
        places[name] = (10 + layer[name] * (_WIDTH + _GAP_X), 10 + row * (_HEIGHT + _GAP_Y))
    return places


def _node(node: Mapping[str, Any], place: tuple[int, int], states: Mapping[str, str]) -> str:
    x, y = place
    name, kind = _short(str(node.get("name") or node["id"])), _short(str(node.get("typeId", "")), 24)
    state = "".join(letter for letter in states.get(str(node["id"]), "pending") if letter.isalnum() or letter == "-")
    return (
        f'<g class="node {escape(state)}"><title>{escape(str(node["id"]))}: {escape(state)}</title>'
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>'
        f'<text x="{x + _WIDTH // 2}" y="{y + 19}">{escape(name)}</text>'
        f'<text class="kind" x="{x + _WIDTH // 2}" y="{y + 35}">{escape(kind)}</text></g>'
    )


def _edge(places: Mapping[str, tuple[int, int]], source: str, target: str, back: bool) -> str:
    (x1, y1), (x2, y2) = places[source], places[target]
    x1, y1, y2 = x1 + _WIDTH, y1 + _HEIGHT // 2, y2 + _HEIGHT // 2
    bend = max(30, abs(x2 - x1) // 2)
    style = ' class="back"' if back else ""
    return f'<path{style} d="M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}" marker-end="url(#tip)"/>'


def _short(text: str, most: int = 18) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

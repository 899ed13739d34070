"""A workflow as a picture: Mermaid text, or SVG laid out here. Pure functions of the document.

Layers by longest path from the roots, order in a layer by the mean of the neighbours; loopbacks go around.
`status` colours nodes by where a run stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 56, 46, 64, 24
_COLOURS = {
    "completed": ("#e6f4ea", "#1e7a3c"),
    "failed": ("#fce8e6", "#b3261e"),
    "skipped": ("#f1f3f4", "#8a9095"),
    "cancelled": ("#f1f3f4", "#8a9095"),
    "running": ("#e8f0fe", "#1a56c4"),
    "waiting": ("#fff6e0", "#9a6400"),
    "": ("#ffffff", "#44505c"),
}
# What neither XML nor a line of text can carry.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_GATES = re.compile(r"Gate$|interrupt$", re.IGNORECASE)


class _Edge:
    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.source = str(raw.get("sourceNodeId", ""))
        self.target = str(raw.get("targetNodeId", ""))
        self.loopback = raw.get("label") == "loopback"
        self.label = _label(raw)


def mermaid(document: Mapping[str, Any], status: Mapping[str, str] | None = None) -> str:
    """The workflow as a Mermaid flowchart."""
    names = {str(node["id"]): f"n{index}" for index, node in enumerate(_nodes(document))}
    lines = ["flowchart TD"]
    for node in _nodes(document):
        title = _mermaid_text(f"{node.get('name') or node['id']}")
        kind = _mermaid_text(str(node.get("typeId", "")))
        left, right = ("{{", "}}") if _GATES.search(str(node.get("typeId", ""))) else ("[", "]")
        lines.append(f'  {names[str(node["id"])]}{left}"{title}<br/><small>{kind}</small>"{right}')
    for edge in _edges(document):
        if edge.source in names and edge.target in names:
            arrow = "-.->" if edge.loopback else "-->"
            label = f'|"{_mermaid_text(edge.label)}"|' if edge.label else ""
            lines.append(f"  {names[edge.source]} {arrow}{label} {names[edge.target]}")
    for name, colour in _COLOURS.items():
        members = [names[node] for node, state in (status or {}).items() if node in names and _group(state) == name]
        if members and name:
            lines.append(f"  classDef {name} fill:{colour[0]},stroke:{colour[1]}")
            lines.append(f"  class {','.join(members)} {name}")
    return "\n".join(lines) + "\n"


def svg(document: Mapping[str, Any], status: Mapping[str, str] | None = None) -> str:
    """The workflow as one SVG element, without scripts and without anything fetched."""
    places, width, height = _layout(document)
    title = escape(_short(str(document.get("name") or document.get("id") or "workflow"), 120))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'class="graph" role="img" aria-label="{title}" font-family="system-ui, sans-serif">',
        f"<title>{title}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#6b7680"/></marker></defs>',
    ]
    parts += [_edge_svg(edge, places, width) for edge in _edges(document) if {edge.source, edge.target} <= set(places)]
    parts += [
        _node_svg(node, places[str(node["id"])], (status or {}).get(str(node["id"]), "")) for node in _nodes(document)
    ]
    return "".join(parts) + "</svg>\n"


def _nodes(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [node for node in document.get("nodes") or [] if isinstance(node, Mapping) and "id" in node]


def _edges(document: Mapping[str, Any]) -> list[_Edge]:
    return [_Edge(edge) for edge in document.get("edges") or [] if isinstance(edge, Mapping)]


def _label(raw: Mapping[str, Any]) -> str:
    condition = raw.get("condition")
    said = ""
    if isinstance(condition, Mapping):
        if condition.get("type") == "expression":
            said = str(condition.get("expression", ""))
        else:
            said = f"{condition.get('left', '')} {condition.get('type', '')} {condition.get('right', '')}".strip()
    rule = str(raw.get("triggerRule") or "")
    parts = [said, rule if rule not in ("", "all_success") else "", "loop" if raw.get("label") == "loopback" else ""]
    return " · ".join(part for part in parts if part)


def _group(state: str) -> str:
    if state in _COLOURS:
        return state
    waiting = ("suspended", "approval", "input", "external", "sleeping", "waiting", "retrying", "child")
    return "waiting" if state.startswith(waiting) else "running" if state == "started" else ""


def _mermaid_text(text: str) -> str:
    return escape(_short(text, 80), quote=False).replace('"', "#quot;").replace("|", "#124;").replace("`", "#96;")


def _layout(document: Mapping[str, Any]) -> tuple[dict[str, tuple[int, int]], int, int]:
    """Where each node stands, and how large the picture is."""
    ids = [str(node["id"]) for node in _nodes(document)]
    forward = [(edge.source, edge.target) for edge in _edges(document) if not edge.loopback]
    layers = _ordered(_layers(ids, forward), forward)
    widest = max((len(layer) for layer in layers), default=1)
    inner = widest * (_WIDTH + _GAP_X) - _GAP_X
    places = {}
    for row, layer in enumerate(layers):
        start = _MARGIN + (inner - (len(layer) * (_WIDTH + _GAP_X) - _GAP_X)) // 2
        for column, name in enumerate(layer):
            places[name] = (start + column * (_WIDTH + _GAP_X), _MARGIN + row * (_HEIGHT + _GAP_Y))
    room = 60 if any(edge.loopback for edge in _edges(document)) else 0
    height = len(layers) * (_HEIGHT + _GAP_Y) - _GAP_Y if layers else _HEIGHT
    return places, inner + 2 * _MARGIN + room, height + 2 * _MARGIN


def _layers(ids: list[str], edges: list[tuple[str, str]]) -> list[list[str]]:
    """Each node one layer below its lowest source; what stands in a cycle goes to the end, in the order given."""
    known = set(ids)
    sources: dict[str, set[str]] = {name: set() for name in ids}
    targets: dict[str, list[str]] = {name: [] for name in ids}
    for source, target in edges:
        if source in known and target in known and source not in sources[target]:
            sources[target].add(source)
            targets[source].append(target)
    depth = dict.fromkeys(ids, 0)
    missing = {name: len(items) for name, items in sources.items()}
    ready = [name for name in ids if missing[name] == 0]
    for name in ready:
        for target in targets[name]:
            depth[target] = max(depth[target], depth[name] + 1)
            missing[target] -= 1
            if missing[target] == 0:
                ready.append(target)
    last = max(depth.values(), default=0)
    for name in ids:
        if missing[name]:
            last += 1
            depth[name] = last
    found: dict[int, list[str]] = {}
    for name in ids:
        found.setdefault(depth[name], []).append(name)
    return [found[level] for level in sorted(found)]


def _ordered(layers: list[list[str]], edges: list[tuple[str, str]]) -> list[list[str]]:
    """Nodes near their neighbours, so that fewer edges cross: a few sweeps down and up."""
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for source, target in edges:
        above.setdefault(target, []).append(source)
        below.setdefault(source, []).append(target)
    for sweep in range(4):
        neighbours = above if sweep % 2 == 0 else below
        order = range(1, len(layers)) if sweep % 2 == 0 else range(len(layers) - 2, -1, -1)
        for level in order:
            place = {name: column for layer in layers for column, name in enumerate(layer)}
            layers[level] = sorted(layers[level], key=lambda name: _mean(neighbours.get(name, ()), place, place[name]))
    return layers


def _mean(names: Any, place: Mapping[str, int], own: int) -> float:
    known = [place[name] for name in names if name in place]
    return sum(known) / len(known) if known else float(own)


def _edge_svg(edge: _Edge, places: Mapping[str, tuple[int, int]], width: int) -> str:
    (x1, y1), (x2, y2) = places[edge.source], places[edge.target]
    sx, sy, tx, ty = x1 + _WIDTH // 2, y1 + _HEIGHT, x2 + _WIDTH // 2, y2
    if edge.loopback:
        right = width - _MARGIN // 2
        path = (
            f"M{x1 + _WIDTH} {y1 + _HEIGHT // 2} C{right} {y1} {right} {y2 + _HEIGHT} {x2 + _WIDTH} {y2 + _HEIGHT // 2}"
        )
        middle = (right - 40, (y1 + y2 + _HEIGHT) // 2)
    else:
        bend = max(30, (ty - sy) // 2)
        path = f"M{sx} {sy} C{sx} {sy + bend} {tx} {ty - bend} {tx} {ty}"
        middle = ((sx + tx) // 2, (sy + ty) // 2)
    dash = ' stroke-dasharray="5 4"' if edge.loopback else ""
    drawn = f'<path d="{path}" fill="none" stroke="#6b7680" stroke-width="1.4"{dash} marker-end="url(#tip)"/>'
    if edge.label:
        text = escape(_short(edge.label, 34))
        drawn += (
            f'<text x="{middle[0]}" y="{middle[1]}" text-anchor="middle" font-size="10.5" fill="#44505c" '
            f'stroke="#fff" stroke-width="3" paint-order="stroke">{text}</text>'
        )
    return drawn


def _node_svg(node: Mapping[str, Any], place: tuple[int, int], state: str) -> str:
    x, y = place
    fill, stroke = _COLOURS[_group(state)]
    round_by = 26 if _GATES.search(str(node.get("typeId", ""))) else 8
    name, kind = str(node.get("name") or node["id"]), str(node.get("typeId", ""))
    title = escape(_short(name, 22))  # what the box is wide enough for; the whole name is told on pointing at it
    said = escape(_short(f"{_short(kind, 20)} · {state}" if state else kind, 32))
    return (
        f'<g class="{_group(state) or "idle"}"><title>{escape(_short(name, 200))}</title>'
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="{round_by}" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="1.5"/><text x="{x + _WIDTH // 2}" y="{y + 24}" text-anchor="middle" font-size="13" '
        f'font-weight="600" fill="#1f2830">{title}</text><text x="{x + _WIDTH // 2}" y="{y + 42}" text-anchor="middle" '
        f'font-size="10.5" fill="{stroke}">{said}</text></g>'
    )


def _short(text: str, most: int) -> str:
    text = _UNSHOWN.sub(" ", text[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"

"""Computes the places of a graph's nodes and the paths of its edges. Pure functions over names.

L1  A node is one layer below its lowest source; edges that go back do not count.
L2  No two boxes of a layer overlap.
L3  An edge over several layers has its own place in each of them, so it passes beside boxes and never behind one.
L4  An edge that goes back leaves below its source, goes up at the right of all boxes, and arrives above its target.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

WIDTH, HEIGHT = 190, 56
_GAP_X, _GAP_Y, _MARGIN, _PASS, _LANE = 46, 64, 24, 24, 22
_SWEEPS = 6
_MOST_PASSES = 20_000  # when edges have used this many places in layers, further ones are drawn straight
_BEND = 8

Point = tuple[int, int]
# A box by its name, or the place where edge number `n` passes layer `m`.
Item = str | tuple[int, int]


class Edge(msgspec.Struct, frozen=True):
    source: str
    target: str
    back: bool = False


class Layout(msgspec.Struct, frozen=True):
    """The upper left corners of the boxes, the paths of the edges (None: an end is unknown), and the picture's size."""

    boxes: dict[str, Point]
    paths: list[str | None]
    ends: list[tuple[Point, Point] | None]  # the first and the last point of each edge
    width: int
    height: int


def layout(names: Sequence[str], edges: Sequence[Edge]) -> Layout:
    known = set(names)
    usable = [number for number, edge in enumerate(edges) if {edge.source, edge.target} <= known]
    forward = [edges[number] for number in usable if not edges[number].back]
    depth = _depths(names, [(edge.source, edge.target) for edge in forward])
    back = [
        number for number in usable if edges[number].back or depth[edges[number].target] <= depth[edges[number].source]
    ]
    down = [number for number in usable if number not in set(back)]
    layers, links = _layered(names, depth, edges, down)
    centres = _centres(_ordered(layers, links), links)
    above = _MARGIN + (_GAP_Y // 2 if any(depth[edges[number].target] == 0 for number in back) else 0)
    boxes = {name: (centres[name] - WIDTH // 2, above + depth[name] * (HEIGHT + _GAP_Y)) for name in names}
    right = max((x + WIDTH for x, _ in boxes.values()), default=WIDTH)
    right = max([right, *(x + _PASS for item, x in centres.items() if not isinstance(item, str))])
    paths: list[str | None] = [None] * len(edges)
    ends: list[tuple[Point, Point] | None] = [None] * len(edges)
    for number in down:
        points = _through(number, edges[number], boxes, centres, depth, above)
        paths[number], ends[number] = _curve(points), (points[0], points[-1])
    for lane, number in enumerate(back):
        points = _around(edges[number], boxes, right + (lane + 1) * _LANE)
        paths[number], ends[number] = _rounded(points), (points[0], points[3])
    bottom = max((y + HEIGHT for _, y in boxes.values()), default=HEIGHT)
    below = _GAP_Y // 2 if any(boxes[edges[number].source][1] + HEIGHT == bottom for number in back) else 0
    return Layout(boxes, paths, ends, right + len(back) * _LANE + _MARGIN, bottom + below + _MARGIN)


def _depths(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each node (L1); nodes of a cycle come last, in the given order."""
    sources: dict[str, set[str]] = {name: set() for name in names}
    targets: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        if source not in sources[target]:
            sources[target].add(source)
            targets[source].append(target)
    depth = dict.fromkeys(names, 0)
    missing = {name: len(items) for name, items in sources.items()}
    ready = [name for name in names if missing[name] == 0]
    for name in ready:
        for target in targets[name]:
            depth[target] = max(depth[target], depth[name] + 1)
            missing[target] -= 1
            if missing[target] == 0:
                ready.append(target)
    last = max((depth[name] for name in ready), default=-1)
    for name in names:
        if missing[name]:
            last += 1
            depth[name] = last
    return depth


def _layered(
    names: Sequence[str], depth: Mapping[str, int], edges: Sequence[Edge], down: Sequence[int]
) -> tuple[list[list[Item]], list[tuple[Item, Item]]]:
    """Return the items of each layer, and the links between items of neighbouring layers (L3)."""
    layers: list[list[Item]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in names:
        layers[depth[name]].append(name)
    links: list[tuple[Item, Item]] = []
    left = _MOST_PASSES
    for number in down:
        edge = edges[number]
        between = range(depth[edge.source] + 1, depth[edge.target])
        left -= len(between)
        if left < 0:
            break
        before: Item = edge.source
        for level in between:
            layers[level].append((number, level))
            links.append((before, (number, level)))
            before = (number, level)
        links.append((before, edge.target))
    return layers, links


def _neighbours(links: Iterable[tuple[Item, Item]]) -> tuple[dict[Item, list[Item]], dict[Item, list[Item]]]:
    above: dict[Item, list[Item]] = {}
    below: dict[Item, list[Item]] = {}
    for upper, lower in links:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    return above, below


def _sweep(layers: Sequence[list[Item]], links: Iterable[tuple[Item, Item]], visit: Callable[..., None]) -> None:
    """Order the layers downwards by the layer above, then upwards by the layer below, a few times."""
    above, below = _neighbours(links)
    for turn in range(_SWEEPS):
        if turn % 2 == 0:
            for level in range(1, len(layers)):
                visit(level, above)
        else:
            for level in range(len(layers) - 2, -1, -1):
                visit(level, below)


def _ordered(layers: list[list[Item]], links: list[tuple[Item, Item]]) -> list[list[Item]]:
    """Order items near their neighbours, so that fewer edges cross."""
    place = {item: float(column) for layer in layers for column, item in enumerate(layer)}

    def visit(level: int, neighbours: Mapping[Item, list[Item]]) -> None:
        layers[level].sort(key=lambda item: _mean([place[one] for one in neighbours.get(item, ())], place[item]))
        place.update((item, float(column)) for column, item in enumerate(layers[level]))

    _sweep(layers, links, visit)
    return layers


def _centres(layers: list[list[Item]], links: list[tuple[Item, Item]]) -> dict[Item, int]:
    """Return the centre of each item: as near to its neighbours' as the boxes beside it allow (L2)."""
    centre: dict[Item, float] = {}
    for layer in layers:
        spread = _spread(layer)
        centre.update(zip(layer, [at - spread[-1] / 2 for at in spread], strict=True))

    def visit(level: int, neighbours: Mapping[Item, list[Item]]) -> None:
        layer = layers[level]
        wanted = [_mean([centre[one] for one in neighbours.get(item, ())], centre[item]) for item in layer]
        spread = _spread(layer)
        free = _rising([at - least for at, least in zip(wanted, spread, strict=True)])
        centre.update(zip(layer, [at + least for at, least in zip(free, spread, strict=True)], strict=True))

    _sweep(layers, links, visit)
    left = min((at - _span(item) / 2 for item, at in centre.items()), default=0.0)
    return {item: round(at - left) + _MARGIN for item, at in centre.items()}


def _span(item: Item) -> int:
    return WIDTH if isinstance(item, str) else _PASS


def _spread(layer: Sequence[Item]) -> list[float]:
    """Return the centres of a layer's items when each is as close to the one before as it may be."""
    found = [0.0]
    for before, item in itertools.pairwise(layer):
        found.append(found[-1] + (_span(before) + _span(item)) / 2 + _GAP_X)
    return found


def _rising(wanted: Sequence[float]) -> list[float]:
    """Return the non-decreasing sequence nearest to `wanted`: values that would decrease share their mean."""
    groups: list[tuple[float, int]] = []
    for value in wanted:
        total, count = value, 1
        while groups and groups[-1][0] / groups[-1][1] > total / count:
            more, others = groups.pop()
            total, count = total + more, count + others
        groups.append((total, count))
    return [total / count for total, count in groups for _ in range(count)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _through(
    number: int,
    edge: Edge,
    boxes: Mapping[str, Point],
    centres: Mapping[Item, int],
    depth: Mapping[str, int],
    above: int,
) -> list[Point]:
    """Return the points from the source's bottom, past each layer between, to the target's top (L3)."""
    (x1, y1), (x2, y2) = boxes[edge.source], boxes[edge.target]
    points = [(x1 + WIDTH // 2, y1 + HEIGHT)]
    for level in range(depth[edge.source] + 1, depth[edge.target]):
        if (x := centres.get((number, level))) is not None:
            y = above + level * (HEIGHT + _GAP_Y)
            points += [(x, y), (x, y + HEIGHT)]
    return [*points, (x2 + WIDTH // 2, y2)]


def _around(edge: Edge, boxes: Mapping[str, Point], lane: int) -> list[Point]:
    """Return the points below the source, up at the right of all boxes, and above the target (L4)."""
    (x1, y1), (x2, y2) = boxes[edge.source], boxes[edge.target]
    leave, arrive, step = x1 + WIDTH * 3 // 4, x2 + WIDTH * 3 // 4, _GAP_Y // 4
    low, high = y1 + HEIGHT + step, y2 - step
    return [(leave, y1 + HEIGHT), (leave, low), (lane, low), (lane, high), (arrive, high), (arrive, y2)]


def _curve(points: Sequence[Point]) -> str:
    """Draw a path that is curved between layers and straight beside a layer's boxes."""
    path, (x, y) = f"M{points[0][0]} {points[0][1]}", points[0]
    for to_x, to_y in points[1:]:
        if x == to_x:
            path += f" V{to_y}"
        else:
            middle = (y + to_y) // 2
            path += f" C{x} {middle} {to_x} {middle} {to_x} {to_y}"
        x, y = to_x, to_y
    return path


def _rounded(points: Sequence[Point]) -> str:
    """Draw straight lines with rounded corners."""
    path = f"M{points[0][0]} {points[0][1]}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before), _towards(corner, after)
        path += f" L{start[0]} {start[1]} Q{corner[0]} {corner[1]} {end[0]} {end[1]}"
    return path + f" L{points[-1][0]} {points[-1][1]}"


def _towards(corner: Point, other: Point) -> Point:
    """Return the point a short way from a corner towards the point before or after it."""
    (x, y), (to_x, to_y) = corner, other
    step_x, step_y = max(-_BEND, min(_BEND, to_x - x)), max(-_BEND, min(_BEND, to_y - y))
    return x + step_x, y + step_y

"""Workflows as pictures: every node and edge is in them, and no text of a workflow can break out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.runs.graph import mermaid
from forestay.runs.graph_layout import HEIGHT, WIDTH, Edge, layout
from forestay.runs.graph_svg import fitted, svg

SVG = "{http://www.w3.org/2000/svg}"


def workflow(*edges: tuple[str, str], nodes: Sequence[str] = "", **more: Any) -> dict[str, Any]:
    names = list(nodes or dict.fromkeys(name for edge in edges for name in edge))
    return {
        "id": "w",
        "name": "A workflow",
        "nodes": [{"id": name, "name": f"Node {name}", "typeId": "core.noop"} for name in names],
        "edges": [{"sourceNodeId": source, "targetNodeId": target, **more} for source, target in edges],
    }


def places(picture: str) -> dict[str, tuple[int, int]]:
    found = {}
    for group in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        rect, text = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
        assert rect is not None and text is not None and text.text is not None
        found[text.text.removeprefix("Node ")] = (int(rect.attrib["x"]), int(rect.attrib["y"]))
    return found


def test_layers_follow_the_edges() -> None:
    found = places(svg(workflow(("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d"))))
    assert found["a"][1] < found["b"][1] == found["c"][1] < found["d"][1]
    assert found["b"][0] != found["c"][0]


def test_no_two_nodes_overlap() -> None:
    edges = [(a, b) for a in "abcdefgh" for b in "abcdefgh" if a < b and (ord(a) * ord(b)) % 3]
    found = list(places(svg(workflow(*edges))).values())
    for index, (x1, y1) in enumerate(found):
        assert all(abs(x1 - x2) >= 190 or abs(y1 - y2) >= 56 for x2, y2 in found[index + 1 :])


def test_loopbacks_are_dashed_and_do_not_move_layers() -> None:
    document = workflow(("a", "b"), ("b", "c"))
    document["edges"].append({"sourceNodeId": "c", "targetNodeId": "a", "label": "loopback"})
    picture = svg(document)
    found = places(picture)
    assert found["a"][1] < found["b"][1] < found["c"][1]
    assert picture.count("stroke-dasharray") == 1
    assert "-.->" in mermaid(document)


def test_conditions_and_rules_are_labels() -> None:
    condition = {"type": "expression", "expression": "output.ok == true"}
    document = workflow(("a", "b"), condition=condition, triggerRule="any_failed")
    assert "output.ok == true · any_failed" in svg(document)
    assert '|"output.ok == true · any_failed"|' in mermaid(document)


def test_states_colour_nodes() -> None:
    text = mermaid(workflow(("a", "b"), ("b", "c")), {"a": "completed", "b": "suspended", "zz": "failed"})
    assert "class n0 completed" in text
    assert "class n1 waiting" in text
    assert "failed" not in text
    assert "#e6f4ea" in svg(workflow(("a", "b")), {"a": "completed"})


TEXT = st.text(max_size=30) | st.sampled_from(['"><script>alert(1)</script>', "]]>", "a|b", "end", "`${x}`", "\n\n"])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({"id": TEXT, "name": TEXT, "typeId": TEXT}), max_size=8, unique_by=lambda n: n["id"]
    ),
    st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=8),
)
def test_hostile_text_stays_text(nodes: list[dict[str, str]], edges: list[tuple[str, str, str]]) -> None:
    document = {
        "name": nodes[0]["name"] if nodes else "",
        "nodes": nodes,
        "edges": [
            {"sourceNodeId": a, "targetNodeId": b, "condition": {"type": "expression", "expression": c}}
            for a, b, c in edges
        ]
        + [{"sourceNodeId": a["id"], "targetNodeId": b["id"]} for a in nodes for b in nodes],
    }
    picture = svg(document)
    names = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(picture).iter()}
    assert names <= {"svg", "title", "defs", "marker", "path", "g", "rect", "text"}
    lines = mermaid(document).splitlines()
    assert lines[0] == "flowchart TD"
    assert all(re.match(r"  (n\d+|classDef|class) ?", line) for line in lines[1:] if line)


def test_a_thousand_nodes_in_a_row_are_drawn() -> None:
    names = [f"n{number}" for number in range(1000)]
    document = {
        "nodes": [{"id": name, "typeId": "core.noop"} for name in names],
        "edges": [{"sourceNodeId": a, "targetNodeId": b} for a, b in itertools.pairwise(names)],
    }
    assert len(places(svg(document))) == 1000


# The layout


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], list[Edge]]:
    """Nodes in a random order with edges down, over layers, and back."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 14)))]
    pairs = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=30))
    return draw(st.permutations(names)), [Edge(a, b, back=int(a[1:]) >= int(b[1:])) for a, b in pairs]


def uprights(path: str) -> list[tuple[int, int, int]]:
    """The vertical pieces of a path: where, from, to."""
    found, x, y = [], 0, 0
    for command, numbers in re.findall(r"([MCVLQ])([^MCVLQ]*)", path):
        values = [int(number) for number in numbers.split()]
        to_x, to_y = (x, values[0]) if command == "V" else (values[-2], values[-1])
        if to_x == x and command in "VL":
            found.append((x, min(y, to_y), max(y, to_y)))
        x, y = to_x, to_y
    return found


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_l2_l3_l4_boxes_stand_apart_and_edges_pass_beside_them(graph: tuple[list[str], list[Edge]]) -> None:
    names, edges = graph
    laid = layout(names, edges)
    boxes = list(laid.boxes.values())
    for (x1, y1), (x2, y2) in itertools.combinations(boxes, 2):
        assert y1 != y2 or abs(x1 - x2) >= WIDTH
    for path in laid.paths:
        assert path is not None
        for x, top, bottom in uprights(path):
            behind = [(left, y) for left, y in boxes if left < x < left + WIDTH and top < y + HEIGHT and bottom > y]
            assert not behind, (path, behind)
    assert all(x >= 0 and x + WIDTH <= laid.width and y >= 0 and y + HEIGHT <= laid.height for x, y in boxes)


def test_l4_an_edge_back_goes_around() -> None:
    laid = layout(["a", "b", "c"], [Edge("a", "b"), Edge("a", "c"), Edge("b", "a", back=True)])
    lane = max(x for x, _, _ in uprights(laid.paths[2] or ""))
    assert all(lane > x + WIDTH for x, _ in laid.boxes.values()) and lane < laid.width


def labels(picture: str) -> list[tuple[float, float, str]]:
    """The labels of edges: the middle, the line, the words."""
    texts = ElementTree.fromstring(picture).findall(f"{SVG}text")
    return [(float(text.attrib["x"]), float(text.attrib["y"]), [*text.itertext()][-1]) for text in texts]


def test_labels_of_a_wide_fan_do_not_cover_each_other() -> None:
    names = [f"w{number}" for number in range(12)]
    document = workflow(*(("s", name) for name in names))
    for number, edge in enumerate(document["edges"]):
        edge["condition"] = {"type": "expression", "expression": f"output.kind == 'a long name {number}'"}
    found = labels(svg(document))
    assert len(found) == 12
    for (x1, y1, _), (x2, y2, _) in itertools.combinations(found, 2):
        assert abs(y1 - y2) >= 13 or abs(x1 - x2) >= 200


def test_a_rule_is_written_once_at_its_node() -> None:
    picture = svg(workflow(("a", "d"), ("b", "d"), ("c", "d"), triggerRule="any_success"))
    assert [words for _, _, words in labels(picture)] == ["any_success"]


def test_a_label_stays_inside_the_picture() -> None:
    document = workflow(("a", "b"))
    back = {"type": "expression", "expression": "output.again == true && output.left > 0"}
    document["edges"].append({"sourceNodeId": "b", "targetNodeId": "a", "label": "loopback", "condition": back})
    picture = svg(document)
    width = float(ElementTree.fromstring(picture).attrib["width"])
    assert all(x + len(words) * 5.9 / 2 <= width for x, _, words in labels(picture))


def test_wide_letters_fit_their_box() -> None:
    assert fitted("計算する" * 8, 176, 13.0) == "計算する計算する計算する…"
    assert fitted("short", 176, 13.0) == "short"


def test_a_file_of_its_own_has_colours_for_the_dark() -> None:
    document = workflow(("a", "b"))
    assert "prefers-color-scheme:dark" in svg(document, alone=True)
    assert "<style" not in svg(document), "a page brings its own"

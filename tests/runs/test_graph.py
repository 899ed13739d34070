"""Workflows as pictures: every node and edge is in them, and no text of a workflow can break out."""

from __future__ import annotations

import itertools
import re
from typing import Any
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.runs.graph import mermaid, svg

SVG = "{http://www.w3.org/2000/svg}"


def workflow(*edges: tuple[str, str], nodes: str = "", **more: Any) -> dict[str, Any]:
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

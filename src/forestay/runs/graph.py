"""Draws a workflow as Mermaid text, and reads nodes and edges for both kinds of picture. Pure functions.

`status` has the states of a run's nodes, which give their colours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

COLOURS = {
    "completed": ("#e6f4ea", "#1e7a3c"),
    "failed": ("#fce8e6", "#b3261e"),
    "skipped": ("#f1f3f4", "#8a9095"),
    "cancelled": ("#f1f3f4", "#8a9095"),
    "running": ("#e8f0fe", "#1a56c4"),
    "waiting": ("#fff6e0", "#9a6400"),
    "": ("#ffffff", "#44505c"),
}
# Characters that neither XML nor a line of text can have.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
GATES = re.compile(r"Gate$|interrupt$", re.IGNORECASE)


class Edge:
    """An edge with its label: its condition, and the rule of its target."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.source = str(raw.get("sourceNodeId", ""))
        self.target = str(raw.get("targetNodeId", ""))
        self.loopback = raw.get("label") == "loopback"
        self.condition = _condition(raw)
        self.rule = _rule(raw)

    @property
    def label(self) -> str:
        return " · ".join(part for part in (self.condition, self.rule, "loop" if self.loopback else "") if part)


def mermaid(document: Mapping[str, Any], status: Mapping[str, str] | None = None) -> str:
    """Return the workflow as a Mermaid flowchart."""
    names = {str(node["id"]): f"n{index}" for index, node in enumerate(nodes_of(document))}
    lines = ["flowchart TD"]
    for node in nodes_of(document):
        title = _mermaid_text(f"{node.get('name') or node['id']}")
        kind = _mermaid_text(str(node.get("typeId", "")))
        left, right = ("{{", "}}") if GATES.search(str(node.get("typeId", ""))) else ("[", "]")
        lines.append(f'  {names[str(node["id"])]}{left}"{title}<br/><small>{kind}</small>"{right}')
    for edge in edges_of(document):
        if edge.source in names and edge.target in names:
            arrow = "-.->" if edge.loopback else "-->"
            label = f'|"{_mermaid_text(edge.label)}"|' if edge.label else ""
            lines.append(f"  {names[edge.source]} {arrow}{label} {names[edge.target]}")
    for name, colour in COLOURS.items():
        members = [names[node] for node, state in (status or {}).items() if node in names and group(state) == name]
        if members and name:
            lines.append(f"  classDef {name} fill:{colour[0]},stroke:{colour[1]}")
            lines.append(f"  class {','.join(members)} {name}")
    return "\n".join(lines) + "\n"


def nodes_of(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [node for node in document.get("nodes") or [] if isinstance(node, Mapping) and "id" in node]


def edges_of(document: Mapping[str, Any]) -> list[Edge]:
    return [Edge(edge) for edge in document.get("edges") or [] if isinstance(edge, Mapping)]


def _condition(raw: Mapping[str, Any]) -> str:
    condition = raw.get("condition")
    if not isinstance(condition, Mapping):
        return ""
    if condition.get("type") == "expression":
        return str(condition.get("expression", ""))
    return f"{condition.get('left', '')} {condition.get('type', '')} {condition.get('right', '')}".strip()


def _rule(raw: Mapping[str, Any]) -> str:
    rule = str(raw.get("triggerRule") or "")
    return rule if rule != "all_success" else ""


def group(state: str) -> str:
    if state in COLOURS:
        return state
    waiting = ("suspended", "approval", "input", "external", "sleeping", "waiting", "retrying", "child")
    return "waiting" if state.startswith(waiting) else "running" if state == "started" else ""


def _mermaid_text(text: str) -> str:
    return escape(short(text, 80), quote=False).replace('"', "#quot;").replace("|", "#124;").replace("`", "#96;")


def short(text: str, most: int) -> str:
    text = _UNSHOWN.sub(" ", text[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"

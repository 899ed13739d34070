"""Draws when each node of a run worked, waited and called tools: bars over one axis of time, as one SVG element.

The page's style colours the picture by class. Text beside it says the same to people who do not see it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import msgspec

from forestay.console.render import lasted
from forestay.kernel import parse_iso
from forestay.runs import NODE_ENDS, RunEvent

MOST_LANES = 120
_WIDTH, _LABEL, _ROW, _HEAD = 1000, 210, 22, 22
_MODEL = re.compile(r"agent/turn-(\d+)/model")
_RESTS = frozenset({"node.started", "node.resumed", "agent.promptResolved", "agent.toolReturned"})


class Bar(msgspec.Struct):
    """A period of time: a node's attempt, its waiting, a model's answer or a tool call."""

    kind: str  # node, wait, model or tool
    label: str
    start: int
    end: int | None = None
    state: str = "running"


class Lane(msgspec.Struct):
    """A node and its bars."""

    node: str
    bars: list[Bar] = []


class Gantt(msgspec.Struct, frozen=True):
    """The bars of a run between its first event and its last."""

    lanes: list[Lane]
    start: int
    end: int
    left_out: int = 0

    @property
    def span(self) -> int:
        return max(1, self.end - self.start)


def gantt(events: Sequence[RunEvent], now: int) -> Gantt | None:
    """Return the bars of a run; an open bar lasts until `now`. None when no node has begun."""
    lanes: dict[str, Lane] = {}
    rests: dict[str, int] = {}
    for event in events:
        if event.node_id is None:
            continue
        at = parse_iso(event.timestamp)
        lane = lanes.setdefault(event.node_id, Lane(event.node_id, []))
        _note(lane, event, at, rests)
    found = [lane for lane in lanes.values() if lane.bars]
    if not found:
        return None
    start = min(bar.start for lane in found for bar in lane.bars)
    still = any(bar.end is None for lane in found for bar in lane.bars)
    last = parse_iso(events[-1].timestamp)
    end = max(last, now) if still and not events[-1].type.startswith("run.") else last
    for lane in found:
        for bar in lane.bars:
            bar.end = bar.end if bar.end is not None else end
    return Gantt(found[:MOST_LANES], start, end, max(0, len(found) - MOST_LANES))


def _note(lane: Lane, event: RunEvent, at: int, rests: dict[str, int]) -> None:
    payload: dict[str, Any] = event.payload if isinstance(event.payload, dict) else {}
    kind = event.type
    if kind == "node.started":
        tried = payload.get("attempt", 1)
        lane.bars.append(Bar("node", lane.node if tried == 1 else f"{lane.node}, attempt {tried}", at))
    elif kind in NODE_ENDS:
        _close(lane, "wait", "", at, "completed")
        if not _close(lane, "node", "", at, NODE_ENDS[kind]):
            lane.bars.append(Bar("node", lane.node, at, at, NODE_ENDS[kind]))
    elif kind == "node.suspended":
        lane.bars.append(Bar("wait", f"waits ({payload.get('kind', '')})", at, state="waiting"))
    elif kind == "node.resumed":
        _close(lane, "wait", "", at, "completed")
    elif kind == "agent.toolCalled":
        lane.bars.append(Bar("tool", str(payload.get("toolName", "tool")), at))
    elif kind == "agent.toolReturned":
        _close(lane, "tool", str(payload.get("toolName", "tool")), at, _tool_state(payload))
    elif kind == "forestay.effect.recorded" and (turn := _MODEL.fullmatch(str(payload.get("key", "")))):
        lane.bars.append(Bar("model", f"turn {int(turn[1]) + 1}", rests.get(lane.node, at), at, "completed"))
    if kind in _RESTS:
        rests[lane.node] = at


def _tool_state(payload: dict[str, Any]) -> str:
    return "completed" if payload.get("status") == "ok" else "failed"


def _close(lane: Lane, kind: str, label: str, at: int, state: str) -> bool:
    """End the last open bar of this kind; whether there was one."""
    for bar in reversed(lane.bars):
        if bar.kind == kind and bar.end is None and label in ("", bar.label):
            bar.end, bar.state = at, state
            return True
    return False


def drawn(found: Gantt, link: Callable[[str], str]) -> str:
    """Draw a row for each node, and one below it for its tool calls and model answers."""
    rows, y = [], _HEAD
    for lane in found.lanes:
        inner = [bar for bar in lane.bars if bar.kind in ("model", "tool")]
        label = lane.node if len(lane.node) <= 28 else lane.node[:27] + "…"
        name = escape(label)
        rows.append(
            f'<a href="{escape(link(lane.node))}"><text class="lane" x="0" y="{y + 15}">{name}</text></a>'
            + "".join(_bar(found, bar, y + 3, 15) for bar in lane.bars if bar.kind in ("node", "wait"))
        )
        y += _ROW
        if inner:
            rows.append("".join(_bar(found, bar, y, 11) for bar in inner))
            y += _ROW - 5
    axis = "".join(_tick(found, part, y) for part in range(5))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="gantt" viewBox="0 0 {_WIDTH} {y + 6}" role="group" '
        f'aria-label="When each node worked">{axis}{"".join(rows)}</svg>'
    )


def _x(found: Gantt, at: int) -> float:
    return _LABEL + (at - found.start) / found.span * (_WIDTH - _LABEL - 6)


def _bar(found: Gantt, bar: Bar, y: int, height: int) -> str:
    left = _x(found, bar.start)
    end = bar.end if bar.end is not None else found.end
    width = max(2.0, _x(found, end) - left)
    said = escape(f"{bar.label}: {lasted(end - bar.start)}" + ("" if bar.state == "completed" else f", {bar.state}"))
    return (
        f'<rect class="{bar.kind} {bar.state}" x="{left:.1f}" y="{y}" width="{width:.1f}" height="{height}" rx="3">'
        f"<title>{said}</title></rect>"
    )


def _tick(found: Gantt, part: int, height: int) -> str:
    at = found.start + found.span * part // 4
    x = _x(found, at)
    side = "start" if part == 0 else "end" if part == 4 else "middle"
    return (
        f'<path class="tick" d="M{x:.1f} {_HEAD - 4}V{height}"/>'
        f'<text class="time" x="{x:.1f}" y="13" text-anchor="{side}">{lasted(at - found.start)}</text>'
    )

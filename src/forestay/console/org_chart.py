"""Draws the org chart: departments as boxes with their members, each below its parent department."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import msgspec

from forestay.governance import OrgChart, RosterEntry

_WIDTH, _GAP, _DOWN = 200, 18, 30
_HEAD, _LINE, _MOST = 30, 32, 8


class Seat(msgspec.Struct, frozen=True):
    """A member in a department: its name, its role and whom it reports to."""

    name: str
    about: str


class Branch(msgspec.Struct, frozen=True):
    """A department with its members and the departments below it."""

    name: str
    seats: list[Seat]
    below: list[Branch]

    @property
    def width(self) -> int:
        inside = sum(item.width for item in self.below) + _GAP * max(0, len(self.below) - 1)
        return max(_WIDTH, inside)

    @property
    def height(self) -> int:
        """The height of the department's own box."""
        return _HEAD + _LINE * min(len(self.seats), _MOST) + (18 if len(self.seats) > _MOST else 4)

    @property
    def depth(self) -> int:
        return self.height + max((_DOWN + item.depth for item in self.below), default=0)


def branches(chart: OrgChart, roster: Mapping[str, RosterEntry], parent: str | None = None) -> list[Branch]:
    """Return the departments below `parent`, each with its own below it; this ends, because a chart has no cycle."""
    roles = {role.role_id: role.name for item in chart.departments for role in item.roles}

    def name(roster_id: str) -> str:
        return roster[roster_id].persona if roster_id in roster else roster_id

    def seats(department: str) -> list[Seat]:
        return [
            Seat(
                f"{name(item.roster_id)} ({item.roster_id})",
                roles[item.role_id] + (f", reports to {name(item.reports_to)}" if item.reports_to else ""),
            )
            for item in chart.members
            if item.department_id == department
        ]

    return [
        Branch(item.name, seats(item.department_id), branches(chart, roster, item.department_id))
        for item in chart.departments
        if item.parent_department_id == parent
    ]


def drawn(tops: list[Branch]) -> str:
    """Draw all departments as one SVG; the page lists them as text too."""
    width = sum(item.width for item in tops) + _GAP * max(0, len(tops) - 1)
    height = max((item.depth for item in tops), default=0)
    parts, left = "", 0
    for item in tops:
        parts += _tree(item, left, 0)
        left += item.width + _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="org" width="{width + 2}" height="{height + 2}" '
        f'viewBox="-1 -1 {width + 2} {height + 2}" role="img" aria-label="Org chart">{parts}</svg>'
    )


def _tree(item: Branch, left: int, top: int) -> str:
    """Draw a department centred above its child departments, with a line to each."""
    x, middle, bottom = left + (item.width - _WIDTH) / 2, left + item.width / 2, top + item.height
    parts = _box(item, x, top)
    taken = sum(one.width for one in item.below) + _GAP * max(0, len(item.below) - 1)
    at = left + (item.width - taken) // 2
    for one in item.below:
        to = at + one.width / 2
        parts += f'<path d="M{middle:.0f} {bottom}V{bottom + _DOWN // 2}H{to:.0f}V{bottom + _DOWN}"/>'
        parts += _tree(one, at, bottom + _DOWN)
        at += one.width + _GAP
    return parts


def _box(item: Branch, x: float, y: int) -> str:
    shown = f'<rect x="{x:.0f}" y="{y}" width="{_WIDTH}" height="{item.height}" rx="8"/>'
    shown += _text(item.name, x, y + 20, 22, "name")
    for place, seat in enumerate(item.seats[:_MOST]):
        shown += _text(seat.name, x, y + _HEAD + 12 + place * _LINE, 25, "")
        shown += _text(seat.about, x, y + _HEAD + 26 + place * _LINE, 30, "soft")
    if len(item.seats) > _MOST:
        shown += _text(f"and {len(item.seats) - _MOST} more", x, y + item.height - 6, 34, "soft")
    return f"<g>{shown}</g>"


def _text(text: str, x: float, y: int, most: int, look: str) -> str:
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return f'<text class="{look}" x="{x + 12:.0f}" y="{y}">{escape(cut)}<title>{escape(text)}</title></text>'

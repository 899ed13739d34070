"""The roster of standing agents and its org chart (OpenWOP RFC 0086, RFC 0087). Pure.

- R1  An entry belongs to a tenant and refers to an agent by an exact version or by a channel, never by both.
- R2  `reportsTo` and the parents of departments have no cycle; everything that a chart names exists.
- R3  A position gives no authority: a chart has no field for it, and no decision about authority reads the chart.
- R4  A disabled member is listed, and its triggers start nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from forestay.kernel import Problem, canonical

T = TypeVar("T")
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Tenant = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_RosterId = Annotated[str, msgspec.Meta(pattern=r"^host:[a-z0-9][a-z0-9._-]*$", min_length=6, max_length=128)]


class _Closed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """An object of the contract that accepts no other field, so none can carry authority (R3)."""


class Owner(_Closed, frozen=True):
    tenant_id: _Tenant
    workspace_id: _Tenant | None = None


class AgentRef(_Closed, frozen=True):
    """An agent by its id, and by a version or a channel."""

    agent_id: Annotated[str, msgspec.Meta(min_length=3, max_length=256)]
    version: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    channel: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None


class RosterEntry(_Closed, frozen=True):
    """A standing agent: its name, its agent, and the workflows that it is responsible for."""

    roster_id: _RosterId
    persona: _Name
    agent_ref: AgentRef
    owner: Owner
    workflows: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=1000)] = ()
    enabled: bool = True
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    description: Annotated[str, msgspec.Meta(max_length=500)] | None = None


class Role(_Closed, frozen=True):
    role_id: _Id
    name: _Name


class Department(_Closed, frozen=True):
    department_id: _Id
    name: _Name
    roles: tuple[Role, ...]
    parent_department_id: _Id | None = None


class Member(_Closed, frozen=True, omit_defaults=False):
    """A roster entry's place in the chart. `reports_to` is null for a root."""

    roster_id: _RosterId
    department_id: _Id
    role_id: _Id
    reports_to: _RosterId | None


class OrgChart(_Closed, frozen=True, omit_defaults=False):
    owner: Owner
    departments: tuple[Department, ...] = ()
    members: tuple[Member, ...] = ()


class Responsibilities(_Closed, frozen=True, omit_defaults=False):
    """A department with its members and their workflows."""

    department: Department
    members: list[Member]
    responsibilities: list[str]


def read_entry(document: Any, tenant: str) -> RosterEntry:
    """Read an entry of a tenant; a located Problem when it is not valid (R1)."""
    entry = _read(document, RosterEntry)
    if entry.owner.tenant_id != tenant:
        raise Problem("permission_denied", "The entry belongs to another tenant.", at="$.owner.tenantId")
    if entry.agent_ref.version is not None and entry.agent_ref.channel is not None:
        raise Problem("schema_mismatch", "An agent may have a version or a channel, not both.", at="$.agentRef")
    if len(set(entry.workflows)) < len(entry.workflows):
        raise Problem("schema_mismatch", "A workflow is listed twice.", at="$.workflows")
    return entry


def read_chart(document: Any, tenant: str, roster: Mapping[str, RosterEntry]) -> OrgChart:
    """Read a chart of a tenant over its roster; a located Problem for an unknown name or a cycle (R2)."""
    chart = _read(document, OrgChart)
    if chart.owner.tenant_id != tenant:
        raise Problem("permission_denied", "The chart belongs to another tenant.", at="$.owner.tenantId")
    departments = _unique([item.department_id for item in chart.departments], "$.departments")
    roles = _unique([role.role_id for item in chart.departments for role in item.roles], "$.departments")
    members = _unique([item.roster_id for item in chart.members], "$.members")
    for index, department in enumerate(chart.departments):
        _known(department.parent_department_id, departments, f"$.departments[{index}].parentDepartmentId")
    for index, member in enumerate(chart.members):
        at = f"$.members[{index}]"
        _known(member.roster_id, roster.keys(), f"{at}.rosterId")
        _known(member.department_id, departments, f"{at}.departmentId")
        _known(member.role_id, roles, f"{at}.roleId")
        _known(member.reports_to, members, f"{at}.reportsTo")
    _acyclic({item.department_id: item.parent_department_id for item in chart.departments}, "$.departments")
    _acyclic({item.roster_id: item.reports_to for item in chart.members}, "$.members")
    return chart


def responsibilities(
    chart: OrgChart, roster: Mapping[str, RosterEntry], department_id: str, *, recursive: bool = True
) -> Responsibilities:
    """Return a department's workflows: those of its members and, if `recursive`, of the departments under it."""
    found = next((item for item in chart.departments if item.department_id == department_id), None)
    if found is None:
        raise Problem("not_found", "There is no such department.", departmentId=department_id[:128])
    inside = _subtree(chart, department_id) if recursive else {department_id}
    members = [item for item in chart.members if item.department_id in inside]
    named = (flow for item in members if item.roster_id in roster for flow in roster[item.roster_id].workflows)
    return Responsibilities(found, members, list(dict.fromkeys(named)))


def _subtree(chart: OrgChart, root: str) -> set[str]:
    under: dict[str | None, list[str]] = {}
    for item in chart.departments:
        under.setdefault(item.parent_department_id, []).append(item.department_id)
    found, waiting = set[str](), [root]
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting += under.get(name, ())
    return found


def _acyclic(parents: Mapping[str, str | None], at: str) -> None:
    """Refuse a cycle of parents."""
    safe: set[str] = set()
    for start in parents:
        walk: dict[str, None] = {}
        place: str | None = start
        while place is not None and place not in safe:
            if place in walk:
                raise Problem("schema_mismatch", f"{place!r} is above itself.", at=at)
            walk[place] = None
            place = parents[place]
        safe |= walk.keys()


def _unique(names: list[str], at: str) -> set[str]:
    found = set(names)
    if len(found) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Problem("schema_mismatch", f"{twice!r} is listed twice.", at=at)
    return found


def _known(name: str | None, known: Any, at: str) -> None:
    if name is not None and name not in known:
        raise Problem("schema_mismatch", f"There is no {name!r} here.", at=at)


def _read(document: Any, type: type[T]) -> T:
    try:
        return msgspec.convert(document, type)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$")
        raise Problem("schema_mismatch", f"{message}.", at=where) from error

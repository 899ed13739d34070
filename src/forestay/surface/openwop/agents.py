"""Reads the agents of a tenant (OpenWOP RFC 0072, RFC 0074), its roster (RFC 0086) and its org chart (RFC 0087).

A position gives no authority: nothing that decides about authority reads a chart.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from forestay.agents import AgentManifest
from forestay.governance import OrgChart, Responsibilities, RosterEntry
from forestay.host import Host
from forestay.surface.operations import Call, Operations, Query, Result, View

api = Operations[Host](scopes=("manifest:read",), tag="agents")
Dimension = Literal["read", "write", "search", "long-term-durability", "compaction", "attribution"]


class MemoryShapeView(View, frozen=True):
    scratchpad: bool
    conversation: bool
    long_term: bool


class RosterLine(View, frozen=True):
    roster_id: str
    persona: str
    workflows: list[str]


class AgentEntry(Result, frozen=True, omit_defaults=True):
    """An agent without its prompt, its schemas and anything secret."""

    agent_id: str
    persona: str
    label: str
    model_class: str
    pack_name: str
    pack_version: str
    tool_allowlist: list[str]
    has_handoff_schemas: bool
    description: str | None = None
    memory_shape: MemoryShapeView | None = None
    confidence_threshold: float | None = None
    memory_degraded: bool = False
    degraded_memory_dimensions: list[Dimension] = field(default_factory=list)
    roster: list[RosterLine] | None = None


class AgentInventory(View, frozen=True):
    agents: list[AgentEntry]
    total: int


class RosterQuery(Query, frozen=True):
    """A page of the roster: `limit` entries behind the id `after`. Without a limit, the whole of it."""

    after: Annotated[str, Meta(max_length=128)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None


class Roster(View, frozen=True):
    roster: list[RosterEntry]
    total: int


class DepartmentQuery(Query, frozen=True):
    recursive: Literal["true", "false"] = "true"


@api.get("/v1/agents", "agents.inventory", AgentInventory)
async def inventory(host: Host, call: Call) -> AgentInventory:
    """The agents that the caller's tenant may use, by id."""
    members = await host.staff.listed(call.tenant)
    found = [entry(manifest, members) for manifest in await host.directory.listed(call.tenant)]
    return AgentInventory(agents=found, total=len(found))


@api.get("/v1/agents/{agentId}", "agents.get", AgentEntry)
async def get(host: Host, call: Call) -> AgentEntry:
    """One agent; one that the caller's tenant does not have is not there."""
    manifest = await host.directory.get(call.tenant, call.path["agentId"])
    return entry(manifest, await host.staff.listed(call.tenant))


@api.get("/v1/agents/roster", "roster.list", Roster)
async def roster(host: Host, call: Call, query: RosterQuery) -> Roster:
    """The standing members of the caller's tenant, by id."""
    found = await host.staff.listed(call.tenant, query.after, query.limit)
    return Roster(roster=found, total=len(found))


@api.get("/v1/agents/roster/{rosterId}", "roster.get", RosterEntry)
async def member(host: Host, call: Call) -> RosterEntry:
    """One member; one of another tenant is not there."""
    return await host.staff.get(call.tenant, call.path["rosterId"])


@api.get("/v1/agents/org-chart", "org-chart.get", OrgChart)
async def chart(host: Host, call: Call) -> OrgChart:
    """Departments, roles and who reports to whom in the caller's tenant."""
    return await host.staff.chart(call.tenant)


@api.get("/v1/agents/org-chart/{departmentId}", "org-chart.department", Responsibilities)
async def department(host: Host, call: Call, query: DepartmentQuery) -> Responsibilities:
    """A department, its members, and the workflows that they are responsible for together."""
    return await host.staff.department(call.tenant, call.path["departmentId"], recursive=query.recursive == "true")


def entry(manifest: AgentManifest, members: list[RosterEntry]) -> AgentEntry:
    """Return an agent for the inventory, with the members of the roster that work as it."""
    shape = manifest.memory
    has_shape = shape.scratchpad or shape.conversation or shape.long_term
    # The host keeps memory within a run and long-term memory across runs, but no conversation memory.
    missing: list[Dimension] = ["read", "write"] if shape.conversation else []
    return AgentEntry(
        agent_id=manifest.agent_id,
        persona=manifest.persona,
        label=manifest.label or manifest.persona,
        model_class=manifest.model_class,
        pack_name=manifest.pack,
        pack_version=manifest.version,
        tool_allowlist=list(manifest.tool_allowlist),
        has_handoff_schemas=manifest.task_schema is not None or manifest.return_schema is not None,
        description=manifest.description or None,
        memory_shape=MemoryShapeView(
            scratchpad=shape.scratchpad, conversation=shape.conversation, long_term=shape.long_term
        )
        if has_shape
        else None,
        confidence_threshold=manifest.threshold,
        memory_degraded=bool(missing),
        degraded_memory_dimensions=missing,
        roster=[
            RosterLine(roster_id=item.roster_id, persona=item.persona, workflows=list(item.workflows))
            for item in members
            if item.agent_ref.agent_id == manifest.agent_id
        ],
    )

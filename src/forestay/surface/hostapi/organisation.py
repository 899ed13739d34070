"""`/host/v1/agent-packs`, `/host/v1/roster`, `/host/v1/org-chart`: a tenant's agents and its members."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from forestay.agents import PACK_SCHEMA, AgentPack
from forestay.governance import OrgChart, RosterEntry
from forestay.host import Host
from forestay.kernel import Problem
from forestay.surface.operations import Call, Operations, View

_CHANGE = ("schema_mismatch", "state_conflict", "permission_denied")
api = Operations[Host](scopes=("manifest:write",), contract="lafs", tag="organisation")
PackDocument = Annotated[dict[str, Any], Meta(extra_json_schema=PACK_SCHEMA)]


class PackView(View, frozen=True):
    name: str
    version: str
    agents: list[str]


class PackList(View, frozen=True):
    packs: list[PackView]


@api.post(
    "/host/v1/agent-packs",
    "agent-packs.install",
    {201: PackView},
    body_limit=4 * 1024 * 1024,
    problems=("agent_invalid", "state_conflict"),
)
async def install(host: Host, call: Call, body: PackDocument) -> PackView:
    """Install a pack of agents for the caller's tenant; a version that is there stays as it is."""
    return _view(await host.directory.install(call.tenant, body))


@api.get("/host/v1/agent-packs", "agent-packs.list", PackList, scopes=("manifest:read",))
async def packs(host: Host, call: Call) -> PackList:
    """The packs that the caller's tenant installed."""
    return PackList(packs=[_view(pack) for pack in await host.directory.packs(call.tenant)])


@api.put("/host/v1/roster/{rosterId}", "roster.put", RosterEntry, problems=_CHANGE)
async def put_member(host: Host, call: Call, body: RosterEntry) -> RosterEntry:
    """Keep a member of the roster, or change it."""
    if body.roster_id != call.path["rosterId"]:
        raise Problem("schema_mismatch", "The member has another id than the address.", at="$.rosterId")
    return await host.staff.put(call.tenant, body)


@api.delete("/host/v1/roster/{rosterId}", "roster.remove", {204: None}, problems=("state_conflict",))
async def remove_member(host: Host, call: Call) -> None:
    """Take a member off the roster; one that the org chart names stays."""
    await host.staff.remove(call.tenant, call.path["rosterId"])


@api.put("/host/v1/org-chart", "org-chart.put", OrgChart, problems=_CHANGE)
async def put_chart(host: Host, call: Call, body: OrgChart) -> OrgChart:
    """Keep the tenant's org chart; its members must be on the roster, and nobody may be above themselves."""
    return await host.staff.put_chart(call.tenant, body)


def _view(pack: AgentPack) -> PackView:
    return PackView(name=pack.name, version=pack.version, agents=[item.agent_id for item in pack.agents])

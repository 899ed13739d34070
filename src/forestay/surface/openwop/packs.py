"""The agent packs of a tenant (OpenWOP RFC 0003): the installed packs, and an export of its agents as a pack."""

from __future__ import annotations

from typing import Any

from forestay.agents import AgentPack, exported
from forestay.host import Host
from forestay.surface.operations import Call, Operations, View

api = Operations[Host](tag="agents")


class PackEntry(View, frozen=True):
    """An installed pack; its agents are AgentManifests, whose texts are named and not shown."""

    name: str
    version: str
    agents: list[dict[str, Any]]


class PackCatalogue(View, frozen=True):
    packs: list[PackEntry]


class AgentExport(View, frozen=True):
    """`agents` and `files` of a pack that holds the tenant's agents."""

    manifests: list[dict[str, Any]]
    files: dict[str, str]


@api.get("/v1/packs", "packs.list", PackCatalogue, scopes=("manifest:read",))
async def listed(host: Host, call: Call) -> PackCatalogue:
    """The packs of agents that the caller's tenant installed."""
    found = await host.directory.packs(call.tenant)
    return PackCatalogue(packs=[_entry(pack) for pack in found])


def _entry(pack: AgentPack) -> PackEntry:
    return PackEntry(name=pack.name, version=pack.version, agents=exported(pack.agents).manifests)


@api.get("/v1/packs/export", "packs.export", AgentExport, scopes=("manifest:write",))
async def export(host: Host, call: Call) -> AgentExport:
    """The agents of the caller's tenant with their prompts and schemas, in the newest version of each."""
    made = exported(await host.directory.listed(call.tenant))
    return AgentExport(manifests=made.manifests, files=made.files)

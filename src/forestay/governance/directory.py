"""`AgentDirectory`: the agents that a tenant may use, by id and version (OpenWOP RFC 0070, RFC 0072, RFC 0074).

Invariants:

- G1  A tenant's agents are those of the host and its project, and those of the packs that it installed itself. A pack
      of another tenant is not there.
- G2  What is installed stays as it is: a version of a pack never changes.
- G3  An agent belongs to one pack: no other pack, and no tenant, gives its id another meaning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forestay.agents import AgentManifest, AgentPack, Catalogue, newest, no_agent, precedence, read_pack
from forestay.governance.journal import Journal
from forestay.kernel import Draft, Ledger, Problem, Record


class _Shelf(msgspec.Struct):
    """What one tenant installed."""

    packs: dict[tuple[str, str], dict[str, Any]] = {}
    agents: dict[str, dict[str, AgentManifest]] = {}


class AgentDirectory:
    """The agents of every tenant of one ledger."""

    def __init__(self, ledger: Ledger, catalogue: Catalogue) -> None:
        self._ledger = ledger
        self._catalogue = catalogue
        self._shelves: dict[str, Journal[_Shelf]] = {}

    async def install(self, tenant: str, document: Any) -> AgentPack:
        """Keep a pack; a version that is there already must be the same (G2, G3)."""
        pack = read_pack(document)

        def decide(shelf: _Shelf) -> list[Draft]:
            known = shelf.packs.get((pack.name, pack.version))
            if known is not None and known != document:
                message = f"{pack.name} {pack.version} is there with other content: give it a new version."
                raise Problem("state_conflict", message, pack=pack.name)
            for manifest in pack.agents:
                self._check_owner(shelf, manifest)
            return [] if known is not None else [Draft("agents.installed", {"pack": document})]

        await self._shelf(tenant).change(decide)
        return pack

    async def packs(self, tenant: str) -> list[AgentPack]:
        """The packs that a tenant installed, by name and version."""
        found = (await self._shelf(tenant).value()).packs
        return [read_pack(found[key]) for key in sorted(found, key=lambda key: (key[0], precedence(key[1])))]

    async def listed(self, tenant: str) -> list[AgentManifest]:
        """The newest version of each agent, by id."""
        installed = (await self._shelf(tenant).value()).agents
        found = [*self._catalogue, *(newest(versions) for versions in installed.values())]
        return sorted(found, key=lambda manifest: manifest.agent_id)

    async def versions(self, tenant: str, agent_id: str) -> Mapping[str, AgentManifest]:
        """An agent's manifests by version; `not_found`."""
        if own := self._catalogue.versions(agent_id):  # no pack gives such an id another meaning (G3)
            return own
        installed = (await self._shelf(tenant).value()).agents
        found = installed.get(agent_id)
        if not found:
            raise no_agent(agent_id, [*(item.agent_id for item in self._catalogue), *installed])
        return found

    async def get(self, tenant: str, agent_id: str, version: str | None = None) -> AgentManifest:
        """An agent in a version, or in its newest one; `not_found`."""
        found = await self.versions(tenant, agent_id)
        if version is None:
            return newest(found)
        if version not in found:
            message = f"There is no version {version[:64]} of {agent_id}."
            raise Problem("not_found", message, known=sorted(found, key=precedence), fix="Use one of `known`.")
        return found[version]

    async def version(self, tenant: str, agent_id: str, version: str | None = None) -> str:
        """The version that is meant; `not_found`."""
        return (await self.get(tenant, agent_id, version)).version

    async def check_sources(self, tenant: str, refs: Iterable[Mapping[str, Any]]) -> None:
        """Refuse an AgentRef that says it comes of a manifest which the tenant does not have (RFC 0003)."""
        for ref in refs:
            if (source := ref.get("sourceManifestId")) is None:
                continue
            known = (await self._shelf(tenant).value()).agents
            if not self._catalogue.versions(source) and source not in known:
                message = f"{ref['agentId']} says that it comes of {source[:128]}, which no pack here has."
                raise Problem("schema_mismatch", message, at="$.agent.sourceManifestId", fix="Install its pack.")

    def _check_owner(self, shelf: _Shelf, manifest: AgentManifest) -> None:
        """Refuse an agent whose id is another pack's (G3)."""
        others = self._catalogue.versions(manifest.agent_id) or shelf.agents.get(manifest.agent_id, {})
        owner = next((item.pack for item in others.values() if item.pack != manifest.pack), None)
        if owner is not None:
            message = f"{manifest.agent_id} belongs to {owner}."
            raise Problem("state_conflict", message, agentId=manifest.agent_id)

    def _shelf(self, tenant: str) -> Journal[_Shelf]:
        if tenant not in self._shelves:
            stream = "agents/" + hashlib.sha256(tenant.encode()).hexdigest()[:32]
            self._shelves[tenant] = Journal(self._ledger, stream, _Shelf(), _take)
        return self._shelves[tenant]


def _take(shelf: _Shelf, record: Record) -> _Shelf:
    document = record.payload["pack"]
    pack = read_pack(document)
    shelf.packs = {**shelf.packs, (pack.name, pack.version): document}
    agents = {name: dict(versions) for name, versions in shelf.agents.items()}
    for manifest in pack.agents:
        agents.setdefault(manifest.agent_id, {})[manifest.version] = manifest
    shelf.agents = agents
    return shelf

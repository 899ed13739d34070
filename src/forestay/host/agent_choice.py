"""Which agent a node means: by id, by version, by a deployment channel, or by a member of the roster.

C1  What is chosen is an effect of the run where it could come out otherwise the next time: a resumed node, and a
    replay, have the agent that the node began with.
C2  A member of the roster is named where everybody can see it before the run starts: by the node's `agent`, or as the
    root of the run. The second record of a run that is a member's says whose it is, and only the host writes it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.agents import ASSISTANT, AgentManifest
from forestay.governance import MEMBER, AgentDirectory, AgentRef, Deployments, Staff
from forestay.kernel import Ledger, Problem
from forestay.runs import Execution, stream_of


class Choice(msgspec.Struct, frozen=True):
    """An agent in a version; `channel` says where the version came from, `member` on whose behalf it works."""

    agent_id: str
    version: str
    channel: str | None = None
    member: str | None = None
    persona: str | None = None
    exact: bool = False


class ChosenAgent(msgspec.Struct, frozen=True):
    manifest: AgentManifest
    channel: str | None = None
    member: str | None = None


class AgentChoice:
    """How nodes find their agents."""

    def __init__(self, ledger: Ledger, directory: AgentDirectory, staff: Staff, deployments: Deployments) -> None:
        self._ledger = ledger
        self._directory = directory
        self._staff = staff
        self._deployments = deployments

    async def of(self, ctx: Execution) -> ChosenAgent:
        """The agent that a node means; `not_found`, or `no_active_deployment`."""
        ref = await self._ref(ctx)
        plain = ref.version is None and ref.channel is None and not ref.agent_id.startswith(MEMBER)
        if plain:
            versions = await self._directory.versions(ctx.tenant, ref.agent_id)
            if len(versions) == 1:
                (only,) = versions.values()
                return ChosenAgent(only)

        async def choose() -> Any:
            return msgspec.to_builtins(await self._choice(ctx, ref))

        choice = msgspec.convert(await ctx.effect("agent/choice", choose, later=True), Choice)
        manifest = await self._manifest(ctx.tenant, choice)
        if choice.persona is not None:
            manifest = msgspec.structs.replace(manifest, persona=choice.persona)
        return ChosenAgent(manifest, choice.channel, choice.member)

    async def _ref(self, ctx: Execution) -> AgentRef:
        """The agent that the node's inputs, its `agent` or its configuration name."""
        given = ctx.inputs.get("agentId")
        if given is None and ctx.agent is not None:
            return AgentRef(ctx.agent["agentId"], ctx.agent.get("version"), ctx.agent.get("channel"))
        named = str(given or ctx.config.get("agentId") or ASSISTANT)
        if named.startswith(MEMBER) and not await self._is_of(ctx, named):
            message = "A member of the roster is named by the node's `agent`, or as the root of the run."
            raise Problem("schema_mismatch", message, at="$.inputs.agentId")
        return AgentRef(named, ctx.inputs.get("agentVersion"), ctx.inputs.get("agentChannel"))

    async def _is_of(self, ctx: Execution, roster_id: str) -> bool:
        """Whether the run began as a member's (C2)."""
        said = await self._ledger.read(stream_of(ctx.run_id), 1, 1)
        return bool(said) and said[0].type == "roster.run.initiated" and said[0].payload["rosterId"] == roster_id

    async def _choice(self, ctx: Execution, ref: AgentRef) -> Choice:
        member = persona = None
        if ref.agent_id.startswith(MEMBER):
            entry = await self._staff.get(ctx.tenant, ref.agent_id)
            member, persona, ref = entry.roster_id, entry.persona, entry.agent_ref
        version = ref.version
        if ref.channel is not None:
            version = await self._deployments.pinned(ctx.tenant, ref.agent_id, ref.channel, ctx.run_id)
        manifest = await self._directory.get(ctx.tenant, ref.agent_id, version)
        return Choice(manifest.agent_id, manifest.version, ref.channel, member, persona, version is not None)

    async def _manifest(self, tenant: str, choice: Choice) -> AgentManifest:
        """The version that was chosen; where nobody asked for it by name and it is gone, the newest one."""
        try:
            return await self._directory.get(tenant, choice.agent_id, choice.version)
        except Problem:
            if choice.exact:
                raise
            return await self._directory.get(tenant, choice.agent_id)

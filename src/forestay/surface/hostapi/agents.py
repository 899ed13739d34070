"""`/host/v1/agents`: the agents that this host knows; `/host/v1/health`: the host's health."""

from __future__ import annotations

from typing import Any

from msgspec import convert

import forestay
from forestay.host import Host, health
from forestay.surface.operations import Call, Operations, View

api = Operations[Host](scopes=("manifest:read",), contract="lafs", tag="agents")


class AgentLine(View, frozen=True):
    """An agent as every caller with a key may know it."""

    agent_id: str
    persona: str
    description: str
    model_class: str
    version: str


class AgentList(View, frozen=True):
    agents: list[AgentLine]


class AgentView(AgentLine, frozen=True):
    """The whole manifest: the operator's alone."""

    instructions: str
    tool_allowlist: list[str]
    turns: int
    task_schema: dict[str, Any] | None
    return_schema: dict[str, Any] | None
    requires_capabilities: list[str]
    long_term_memory: bool


class FindingView(View, frozen=True):
    name: str
    state: str
    detail: str


class HealthView(View, frozen=True):
    status: str
    version: str
    findings: list[FindingView]


@api.get("/host/v1/agents", "agents.list", AgentList)
async def list_agents(host: Host, call: Call) -> AgentList:
    """The agents that runs may name."""
    found = await host.directory.listed(call.tenant)
    return AgentList(agents=[convert(agent, AgentLine, from_attributes=True) for agent in found])


@api.get("/host/v1/agents/{agentId}", "agents.show", AgentView, operator=True)
async def show(host: Host, call: Call) -> AgentView:
    """An agent's manifest."""
    agent = await host.directory.get(call.tenant, call.path["agentId"])
    return AgentView(
        agent_id=agent.agent_id,
        persona=agent.persona,
        description=agent.description,
        model_class=agent.model_class,
        version=agent.version,
        instructions=agent.instructions,
        tool_allowlist=list(agent.tool_allowlist),
        turns=agent.turns,
        task_schema=agent.task_schema,
        return_schema=agent.return_schema,
        requires_capabilities=list(agent.requires),
        long_term_memory=agent.memory.long_term,
    )


@api.get("/host/v1/health", "host.health", HealthView, operator=True)
async def health_now(host: Host, call: Call) -> HealthView:
    """How the host is, looked at now: ledger, disk, engine, extensions, model."""
    found = await health(host)
    findings = convert(found.findings, list[FindingView], from_attributes=True)
    return HealthView(status=found.status, version=forestay.__version__, findings=findings)

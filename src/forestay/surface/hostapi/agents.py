"""`/host/v1/agents`: the agents that this host knows; `/host/v1/health`: how it is."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

import forestay
from forestay.agents import AgentManifest
from forestay.host import Host, health
from forestay.surface.operations import Call, Operation, Result


class AgentLine(Result, frozen=True, omit_defaults=False):
    """An agent as anybody with a key may know it."""

    agent_id: str
    persona: str
    description: str
    model_class: str


class AgentList(Result, frozen=True, omit_defaults=False):
    agents: list[AgentLine]


class AgentView(Result, frozen=True, omit_defaults=False):
    """The whole manifest: the operator's alone."""

    agent_id: str
    persona: str
    description: str
    model_class: str
    instructions: str
    tool_allowlist: list[str]
    turns: int
    task_schema: dict[str, Any] | None
    return_schema: dict[str, Any] | None
    requires_capabilities: list[str]
    long_term_memory: bool


class FindingView(Result, frozen=True, omit_defaults=False):
    name: str
    state: str
    detail: str


class HealthView(Result, frozen=True, omit_defaults=False):
    status: str
    version: str
    findings: list[FindingView]


def operations(host: Host) -> list[Operation]:
    async def list_(call: Call) -> Response:
        return call.answer(AgentList(agents=[_line(agent) for agent in host.agents]))

    async def show(call: Call) -> Response:
        call.caller.require_operator()
        return call.answer(_view(host.agents.get(call.path["agentId"])))

    async def how(call: Call) -> Response:
        call.caller.require_operator()
        found = await health(host)
        findings = [FindingView(**msgspec.structs.asdict(item)) for item in found.findings]
        return call.answer(HealthView(status=found.status, version=forestay.__version__, findings=findings))

    common: dict[str, Any] = {"method": "GET", "scopes": ("manifest:read",), "contract": "lafs", "tag": "agents"}
    return [
        Operation(
            name="agents.list",
            path="/host/v1/agents",
            perform=list_,
            summary="The agents that runs may name.",
            answers={200: AgentList},
            **common,
        ),
        Operation(
            name="agents.show",
            path="/host/v1/agents/{agentId}",
            perform=show,
            summary="An agent's manifest.",
            answers={200: AgentView},
            problems=("not_found",),
            **common,
        ),
        Operation(
            name="host.health",
            path="/host/v1/health",
            perform=how,
            summary="How the host is, looked at now: ledger, disk, engine, extensions, model.",
            answers={200: HealthView},
            **common,
        ),
    ]


def _line(agent: AgentManifest) -> AgentLine:
    return AgentLine(
        agent_id=agent.agent_id, persona=agent.persona, description=agent.description, model_class=agent.model_class
    )


def _view(agent: AgentManifest) -> AgentView:
    return AgentView(
        agent_id=agent.agent_id,
        persona=agent.persona,
        description=agent.description,
        model_class=agent.model_class,
        instructions=agent.instructions,
        tool_allowlist=list(agent.tool_allowlist),
        turns=agent.turns,
        task_schema=agent.task_schema,
        return_schema=agent.return_schema,
        requires_capabilities=list(agent.requires),
        long_term_memory=agent.memory.long_term,
    )

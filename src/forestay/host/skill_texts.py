"""The skills on this host's agent card: what another agent may ask of it, for one tenant."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.envelope import Operation, Operations
from forestay.host.agent_node import ASK
from forestay.host.opening import Host
from forestay.kernel import Problem
from forestay.runs import CreateRun

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}


def skills(host: Host, tenant: str) -> Operations:
    """Return the skills: ask an agent, start a workflow, show a run. Each acts as the tenant and sees only its runs."""

    async def ask(parameters: dict[str, Any]) -> Any:
        inputs = {"question": _text(parameters, "question")}
        if "agentId" in parameters:
            inputs["agentId"] = host.agents.get(_text(parameters, "agentId")).agent_id
        created = await host.runs.create_run(CreateRun(workflow_id=ASK["id"], inputs=inputs), tenant)
        async for event in host.runs.follow(created.run_id, tenant):
            if event.type == "node.suspended":
                break  # the run asks a person: the caller returns with runs.show
        return await _shown(created.run_id)

    async def start(parameters: dict[str, Any]) -> Any:
        inputs = parameters.get("inputs", {})
        if not isinstance(inputs, dict):
            raise Problem("schema_mismatch", "Inputs are a JSON object.", at="$.inputs")
        request = CreateRun(workflow_id=_text(parameters, "workflowId"), inputs=inputs)
        return await _shown((await host.runs.create_run(request, tenant)).run_id)

    async def show(parameters: dict[str, Any]) -> Any:
        return await _shown(_text(parameters, "runId"))

    async def agents(parameters: dict[str, Any]) -> Any:
        return {"agents": [{"agentId": item.agent_id, "description": item.description} for item in host.agents]}

    async def _shown(run_id: str) -> dict[str, Any]:
        run = msgspec.to_builtins(await host.runs.get_run(run_id, tenant))
        return {name: run[name] for name in ("runId", "workflowId", "status", "outputs", "error") if name in run}

    made = Operations(host.clock, host.ids)
    for operation in (
        Operation(
            name="agent.ask",
            function=ask,
            description="Ask an agent of this host a question; it uses what its tenant may use.",
            parameters=_schema(required=["question"], question=_TEXT, agentId=_TEXT),
            tags=("agent",),
        ),
        Operation(
            name="runs.start",
            function=start,
            description="Start a workflow of the tenant; returns the status of the run.",
            parameters=_schema(required=["workflowId"], workflowId=_TEXT, inputs={"type": "object"}),
            tags=("runs",),
        ),
        Operation(
            name="runs.show",
            function=show,
            description="Show the status of a run of the tenant, with its outputs when it has ended.",
            parameters=_schema(required=["runId"], runId=_TEXT),
            read_only=True,
            tags=("runs",),
        ),
        Operation(
            name="agents.list",
            function=agents,
            description="List the agents that answer questions.",
            read_only=True,
            tags=("agent",),
        ),
    ):
        made.add(operation)
    return made


def _schema(*, required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _text(parameters: dict[str, Any], name: str) -> str:
    value = parameters.get(name)
    if not isinstance(value, str) or not value:
        raise Problem("schema_mismatch", f"`{name}` must be a text that is not empty.", at=f"$.{name}")
    return value

"""What another agent may ask of this host: the skills of its card, for one tenant."""

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
    """Asking an agent, running a workflow, looking at a run: as the tenant, and nothing of another's."""

    async def ask(parameters: dict[str, Any]) -> Any:
        inputs = {"question": _text(parameters, "question")}
        if "agentId" in parameters:
            inputs["agentId"] = host.agents.get(_text(parameters, "agentId")).agent_id
        created = await host.runs.create_run(CreateRun(workflow_id=ASK["id"], inputs=inputs), tenant)
        async for event in host.runs.follow(created.run_id, tenant):
            if event.type == "node.suspended":
                break  # a person is asked: the caller comes back with runs.show
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
            description="An agent of this host answers a question, with what its tenant may use.",
            parameters=_schema(required=["question"], question=_TEXT, agentId=_TEXT),
            tags=("agent",),
        ),
        Operation(
            name="runs.start",
            function=start,
            description="Start a workflow of the tenant; the answer says how the run stands.",
            parameters=_schema(required=["workflowId"], workflowId=_TEXT, inputs={"type": "object"}),
            tags=("runs",),
        ),
        Operation(
            name="runs.show",
            function=show,
            description="How a run of the tenant stands, with its outputs when it has ended.",
            parameters=_schema(required=["runId"], runId=_TEXT),
            read_only=True,
            tags=("runs",),
        ),
        Operation(
            name="agents.list",
            function=agents,
            description="The agents that may be asked.",
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
        raise Problem("schema_mismatch", f"`{name}` is a text and must be given.", at=f"$.{name}")
    return value

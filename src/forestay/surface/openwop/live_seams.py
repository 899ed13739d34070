"""The test seam of the live runtime under `/v1/host/sample/`: an agent as a run's root, in a node or in a
conversation, with a model that plays given answers (OpenWOP RFC 0077)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from forestay.host import Host
from forestay.kernel import Problem
from forestay.runs import CreateRun
from forestay.surface.openwop.governance_seams import STEP
from forestay.surface.operations import Body, Call, Operations, Result

api = Operations[Host](tag="seams", scopes=("runs:create",))
_PLAIN, _STRICT = "local.sample.live", "local.sample.strict"
_MANIFEST = {"persona": "Sample", "modelClass": "general", "systemPrompt": "Answer briefly.", "toolAllowlist": []}
_SCHEMA = {"type": "object", "required": ["answer"], "properties": {"answer": {"type": "string"}}}
_PACK = {
    "name": "local.sample.live",
    "version": "1.0.0",
    "agents": [
        {**_MANIFEST, "agentId": _PLAIN},
        {**_MANIFEST, "agentId": _STRICT, "forestay": {"returnSchema": _SCHEMA, "repairs": 1}},
    ],
}
Name = Annotated[str, Meta(min_length=3, max_length=128)]


class LiveScenario(Body, frozen=True):
    agent_id: Name | None = None
    source: Literal["workflow-node", "run-api", "chat-mention"] = "run-api"
    return_schema_ref: Name | None = None
    force_invalid_result: bool = False
    attempt_tool: Name | None = None


class LiveRun(Result, frozen=True):
    run_id: str
    invocation_id: str
    outcome: str


@api.post("/v1/host/sample/agents/live-invoke", "seams.live", LiveRun, problems=("not_found", "state_conflict"))
async def invoke(host: Host, call: Call, body: LiveScenario) -> LiveRun:
    """Let an agent do a task; its model answers what the scenario wants, and asks for a tool first where one is
    named. With a return schema, the agent is one that has one."""
    await host.directory.install(call.tenant, _PACK)
    structured = body.return_schema_ref is not None or body.force_invalid_result
    agent_id = body.agent_id or (_STRICT if structured else _PLAIN)
    await host.directory.get(call.tenant, agent_id)
    request = await _request(host, call, agent_id, body.source, _mock(body))
    made = await host.runs.create_run(request, call.tenant, call.caller.principal, trusted=True)
    await host.runs.wait(made.run_id, call.tenant)
    for event in await host.runs.events(made.run_id, call.tenant):
        if event.type == "agent.invocation.completed":
            told = event.payload
            return LiveRun(run_id=made.run_id, invocation_id=told["invocationId"], outcome=told["outcome"])
    raise Problem("state_conflict", "The agent's invocation did not begin.", runId=made.run_id)


def _mock(body: LiveScenario) -> dict[str, Any]:
    said = "no JSON" if body.force_invalid_result else '{"answer": "yes"}'
    if body.attempt_tool is None:
        return {"id": "stream-text", "config": {"tokens": [said]}}
    return {"id": "tool-calls", "config": {"toolCalls": [{"name": body.attempt_tool}], "tokens": [said]}}


async def _request(host: Host, call: Call, agent_id: str, source: str, mock: dict[str, Any]) -> CreateRun:
    configurable = {"mockProvider": mock}
    if source == "run-api":
        wanted = CreateRun(agent_id=agent_id, inputs={"task": "Say yes."}, configurable=configurable)
        return (await host.roots.of(wanted, call.tenant)).request
    if source == "chat-mention":
        tree = await host.sessions.create(call.tenant)
        said = {"question": f"@{agent_id} Say yes.", "agentId": agent_id, "sessionId": tree.id, "source": "rpc"}
        return CreateRun(workflow_id="forestay-ask", inputs=said, configurable=configurable)
    node = {**STEP["nodes"][0], "typeId": "core.agent", "config": {"task": "Say yes."}, "agent": {"agentId": agent_id}}
    document = {**STEP, "id": "sample-live", "nodes": [node]}
    await host.runs.put_workflow(document, tenant=call.tenant)
    return CreateRun(workflow_id=document["id"], configurable=configurable)

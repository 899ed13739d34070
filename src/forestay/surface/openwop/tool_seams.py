"""The test seams of tools under `/v1/host/sample/`: a call is a run, and its pair of events comes from the run's log
(OpenWOP RFC 0064, RFC 0078)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from forestay.host import Host
from forestay.kernel import Problem
from forestay.runs import CreateRun
from forestay.surface.operations import Body, Call, Operations, Result

api = Operations[Host](tag="seams", scopes=("runs:create",))
_CALL = "forestay-tool"
_AGENT = "local.sample.session"
_NAME = Annotated[str, Meta(min_length=1, max_length=128)]


class SessionScenario(Body, frozen=True):
    tool_id: _NAME = "ls"


class SessionRun(Result, frozen=True):
    run_id: str


class ToolHook(Body, frozen=True):
    principal: _NAME
    tool_name: _NAME
    args: dict[str, Any] = field(default_factory=dict)


class ToolHooked(Result, frozen=True):
    run_id: str
    tool_called: dict[str, Any]
    tool_returned: dict[str, Any]


@api.post("/v1/host/sample/toolhooks/invoke", "seams.tool-hooks", ToolHooked, problems=("state_conflict",))
async def invoke(host: Host, call: Call, body: ToolHook) -> ToolHooked:
    """Call a tool in a node of a run, on behalf of a principal."""
    request = CreateRun(workflow_id=_CALL, inputs={"tool": body.tool_name, "arguments": body.args})
    made = await host.runs.create_run(request, call.tenant, body.principal)
    told: dict[str, dict[str, Any]] = {}
    async for event in host.runs.follow(made.run_id, call.tenant):
        told[event.type] = event.payload
        if event.type == "interrupt.requested":
            await host.runs.cancel(made.run_id, call.tenant, call.caller.name)
    if "agent.toolReturned" not in told:
        raise Problem("state_conflict", "The call waited for a person.", runId=made.run_id)
    return ToolHooked(
        run_id=made.run_id, tool_called=told["agent.toolCalled"], tool_returned=told["agent.toolReturned"]
    )


@api.post("/v1/host/sample/tools/session-run", "seams.tool-session", SessionRun, problems=("not_found",))
async def session(host: Host, call: Call, body: SessionScenario) -> SessionRun:
    """Let an agent call one tool twice; its model asks for what the scenario wants."""
    tool = await host.tools.describe(body.tool_id)
    if tool is None:
        raise Problem("not_found", "There is no such tool.", toolId=body.tool_id)
    manifest = {"agentId": _AGENT, "persona": "Sample", "modelClass": "general", "systemPrompt": "Answer briefly."}
    agents = [{**manifest, "toolAllowlist": ["*"]}]
    await host.directory.install(call.tenant, {"name": _AGENT, "version": "1.0.0", "agents": agents})
    wanted = {"name": tool.name, "arguments": dict.fromkeys(tool.parameters.get("required", ()), ".")}
    mock = {"id": "tool-calls", "config": {"toolCalls": [wanted, wanted], "tokens": ["Done."]}}
    request = CreateRun(agent_id=_AGENT, inputs={"task": "Use it."}, configurable={"mockProvider": mock})
    rooted = await host.roots.of(request, call.tenant)
    made = await host.runs.create_run(rooted.request, call.tenant, call.caller.principal, trusted=True)
    async for event in host.runs.follow(made.run_id, call.tenant):
        if event.type == "interrupt.requested":
            await host.runs.cancel(made.run_id, call.tenant, call.caller.name)
    return SessionRun(run_id=made.run_id)

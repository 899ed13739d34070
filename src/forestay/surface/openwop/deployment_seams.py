"""The test seam of deployments under `/v1/host/sample/`: installs and moves versions by the production path
(OpenWOP RFC 0082)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta

from forestay.governance import Deployment, Transition
from forestay.host import SAMPLE_GATED, Host
from forestay.kernel import Problem
from forestay.runs import CreateRun
from forestay.surface.operations import Body, Call, Operations, Result

api = Operations[Host](tag="seams", scopes=("runs:create",))
_AGENT = "local.sample.agent"
_PACK = "local.sample"
_DEPLOY = ("deploy:promote", "deploy:pause", "deploy:rollback")


class DeploymentScenario(Body, frozen=True):
    scenario: Literal["promote", "unauthorized", "eval-gate-unmet", "channel-pin"]
    agent_id: Annotated[str, Meta(min_length=3, max_length=128)] | None = None
    channel: Literal["stable", "canary"] = "stable"


class DeploymentRun(Result, frozen=True):
    run_id: str
    allowed: bool
    record: Deployment | None = None
    error: str | None = None
    resolved_agent_version: str | None = None


@api.post(
    "/v1/host/sample/agents/deployment-transition", "seams.deployment", DeploymentRun, problems=("agent_invalid",)
)
async def transition(host: Host, call: Call, body: DeploymentScenario) -> DeploymentRun:
    """Promote a new version to `active`, have a promotion refused, or run an agent through a channel."""
    agent_id = body.agent_id or (SAMPLE_GATED if body.scenario == "eval-gate-unmet" else _AGENT)
    if body.scenario == "channel-pin":
        return await _pinned(host, call, agent_id, body.channel)
    version = await _installed(host, call.tenant, agent_id)
    if body.scenario == "unauthorized":
        return await _moved(host, call, agent_id, Transition(version, "promote"), scopes=())
    return await _promoted(host, call, agent_id, version, body.channel)


async def _promoted(host: Host, call: Call, agent_id: str, version: str, channel: str) -> DeploymentRun:
    """Promote a version step by step up to `active`; the last step passes the gates."""
    while True:
        state = {item.version: item.state for item in await host.deployments.listed(call.tenant, agent_id)}.get(version)
        last = state in ("staged", "active", "paused")
        wanted = Transition(version, "promote", channel=channel if last else None)
        made = await _moved(host, call, agent_id, wanted, scopes=_DEPLOY)
        if last or not made.allowed:
            return made


async def _moved(
    host: Host, call: Call, agent_id: str, wanted: Transition, *, scopes: tuple[str, ...]
) -> DeploymentRun:
    made = await host.deployments.request(call.tenant, agent_id, wanted, principal=call.caller.name, scopes=scopes)
    try:
        settled = await host.deployments.settled(call.tenant, made.run_id)
    except Problem as problem:
        return DeploymentRun(run_id=made.run_id, allowed=False, error=problem.row.openwop)
    return DeploymentRun(run_id=made.run_id, allowed=settled.record is not None, record=settled.record)


async def _pinned(host: Host, call: Call, agent_id: str, channel: str) -> DeploymentRun:
    """Run the agent of a channel; first promote a version there when it has none."""
    deployed = await host.deployments.listed(call.tenant, agent_id)
    if not any(item.state == "active" and channel in item.channels for item in deployed):
        await _promoted(host, call, agent_id, await _installed(host, call.tenant, agent_id), channel)
    document = _bound(agent_id, channel)
    await host.runs.put_workflow(document, tenant=call.tenant)
    made = await host.runs.create_run(CreateRun(workflow_id=document["id"]), call.tenant, call.caller.principal)
    await host.runs.wait(made.run_id, call.tenant)
    for event in await host.runs.events(made.run_id, call.tenant):
        if event.type == "agent.invocation.started":
            version = event.payload.get("resolvedAgentVersion")
            return DeploymentRun(run_id=made.run_id, allowed=True, resolved_agent_version=version)
    return DeploymentRun(run_id=made.run_id, allowed=False, error="no_active_deployment")


async def _installed(host: Host, tenant: str, agent_id: str) -> str:
    """Install a new version of the seam's own agent and return it; for another agent, return its newest version."""
    try:
        known = await host.directory.versions(tenant, agent_id)
    except Problem:
        known = {}
    name = f"{_PACK}.{re.sub(r'[^a-z0-9]+', '-', agent_id.lower())}"
    if known and any(item.pack != name for item in known.values()):
        return (await host.directory.get(tenant, agent_id)).version
    version = f"1.{len(known)}.0"
    manifest = {"agentId": agent_id, "persona": "Sample", "modelClass": "general", "systemPrompt": "Answer briefly."}
    await host.directory.install(tenant, {"name": name, "version": version, "agents": [manifest]})
    return version


def _bound(agent_id: str, channel: str) -> dict[str, Any]:
    return {
        "id": f"sample-channel-{channel}",
        "name": "Run an agent that a channel gives",
        "version": "1.0.0",
        "nodes": [
            {
                "id": "agent",
                "typeId": "core.agent",
                "name": "Agent",
                "position": {"x": 0, "y": 0},
                "config": {"task": "Say hello."},
                "inputs": {},
                "agent": {"agentId": agent_id, "channel": channel},
            }
        ],
        "edges": [],
        "triggers": [{"id": "manual", "type": "manual"}],
        "variables": [],
        "metadata": {},
        "settings": {},
    }

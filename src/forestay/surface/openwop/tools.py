"""The tool catalogue (OpenWOP RFC 0078): every tool that the caller may use, of every source, as one kind of record.

It describes tools and never calls one. It omits tools that the caller cannot use: tools belong to the operator's
tenant, the caller must be allowed to start runs, and policy must not deny the tool.
"""

from __future__ import annotations

from typing import Any, Literal

from forestay.host import Host
from forestay.kernel import Decision, Problem
from forestay.surface.operations import Call, Operations, Query, Result
from forestay.tools import EffectClass, Tool

api = Operations[Host](scopes=("manifest:read",), tag="tools")
Source = Literal["node-pack", "workflow", "mcp", "connector", "host-extension"]
SafetyTier = Literal["pure", "read", "write", "exec"]
_INVOKE = "runs:create"
# Every other source is part of the host.
_SOURCES: dict[str, Source] = {"workflow": "workflow", "mcp": "mcp"}
_TIERS: dict[EffectClass, SafetyTier] = {"pure": "pure", "read": "read", "write": "write", "unsafe": "exec"}
Posture = Literal["none", "safe-fetch", "host-mediated", "host-owned"]
_EGRESS: dict[str, Posture] = {"ext": "host-mediated", "http": "safe-fetch"}


class ToolAuth(Result, frozen=True):
    scopes: list[str]


class ToolDescriptor(Result, frozen=True):
    tool_id: str
    source: Source
    safety_tier: SafetyTier
    title: str
    description: str
    input_schema: dict[str, Any]
    auth: ToolAuth
    approval: Literal["never", "conditional", "always"]
    replay_policy: Literal["deterministic", "idempotent", "non-deterministic"]
    egress: Posture | None = None


class ToolQuery(Query, frozen=True):
    source: Source | None = None


@api.get("/v1/tools", "tools.list", list[ToolDescriptor])
async def listed(host: Host, call: Call, query: ToolQuery) -> list[ToolDescriptor]:
    """The tools that the caller may use, by id."""
    return [item for item in await _offered(host, call) if query.source in (None, item.source)]


@api.get("/v1/tools/{toolId}", "tools.get", ToolDescriptor)
async def get(host: Host, call: Call) -> ToolDescriptor:
    """One tool; one that the caller may not use is not there."""
    wanted = call.path["toolId"]
    for item in await _offered(host, call):
        if item.tool_id == wanted:
            return item
    raise Problem("not_found", "There is no such tool.", toolId=wanted[:128])


async def _offered(host: Host, call: Call) -> list[ToolDescriptor]:
    if not call.caller.decide(_INVOKE).allowed:
        return []
    found = [describe(tool, decision) for tool, decision in await host.tools.offered(call.tenant)]
    return sorted(found, key=lambda item: item.tool_id)


def describe(tool: Tool, decision: Decision) -> ToolDescriptor:
    """Return the contract's descriptor of a tool. Only a tool that the host itself runs can be `exec` (RFC 0069)."""
    source = _SOURCES.get(tool.source, "host-extension")
    tier = _TIERS[tool.effect]
    return ToolDescriptor(
        tool_id=tool.id or tool.name,
        source=source,
        safety_tier="write" if tier == "exec" and source != "host-extension" else tier,
        title=tool.name,
        description=tool.description,
        input_schema=tool.parameters,
        auth=ToolAuth(scopes=[_INVOKE]),
        approval="never" if decision.effect == "allow" else "always",
        replay_policy=_replay(tool),
        egress=_egress(tool),
    )


def _replay(tool: Tool) -> Literal["deterministic", "idempotent", "non-deterministic"]:
    """Return what a repeated call would do; its results are recorded in any case."""
    if tool.effect == "pure":
        return "deterministic"
    return "idempotent" if tool.takes_key else "non-deterministic"


def _egress(tool: Tool) -> Posture | None:
    if tool.source == "forestay":
        return "host-owned" if tool.effect == "unsafe" else "none"
    return _EGRESS.get(tool.source)

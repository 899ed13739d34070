"""Agents: manifests, and the loop that turns a task into an answer through models and tools, step by durable step."""

from forestay.agents.driver import Agent, AgentResult
from forestay.agents.events import AgentEvent, Invocation
from forestay.agents.guarded import Guarded
from forestay.agents.manifest import AgentManifest, load, parse
from forestay.agents.ports import (
    ApprovalAnswer,
    ApprovalRequest,
    Approvals,
    EffectClass,
    Effects,
    Gate,
    Hooks,
    Memory,
    ModelCaller,
    Tool,
    ToolOutcome,
    ToolSource,
    Verdict,
)
from forestay.agents.recovery import recover

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentManifest",
    "AgentResult",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approvals",
    "EffectClass",
    "Effects",
    "Gate",
    "Guarded",
    "Hooks",
    "Invocation",
    "Memory",
    "ModelCaller",
    "Tool",
    "ToolOutcome",
    "ToolSource",
    "Verdict",
    "load",
    "parse",
    "recover",
]

"""Agents: manifests, and the loop that turns a task into an answer through models and tools, step by durable step."""

from holdfast.agents.driver import Agent, AgentResult
from holdfast.agents.events import AgentEvent, Invocation
from holdfast.agents.guarded import Guarded
from holdfast.agents.manifest import AgentManifest, load, parse
from holdfast.agents.ports import (
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
from holdfast.agents.recovery import recover

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

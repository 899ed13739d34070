"""The events of one agent invocation, in OpenWOP's words and order (RFC 0077); a run's node appends them.

Order: agent.invocation.started, agent.promptResolved, then for each turn provider.usage, agent.reasoned and a pair
agent.toolCalled, agent.toolReturned for each call, then agent.decided, agent.invocation.completed.

Payloads carry identifiers, counts and hashes, never content: no prompt, no argument, no result. The text that a model
writes before it calls tools appears only when the verbosity says so.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
import rfc8785

from holdfast.agents.manifest import AgentManifest
from holdfast.agents.ports import Tool
from holdfast.agents.steps import Answered, Outcome, Returned
from holdfast.kernel import canonical
from holdfast.kernel.redact import redact, redact_text
from holdfast.models import ToolCall, Usage

Source = Literal["workflow-node", "run-api", "chat-mention"]
Verbosity = Literal["off", "summary", "full"]

_SUMMARY_CHARACTERS = 1_000


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an agent. `id` is the caller's and stays the same when the invocation is resumed."""

    id: str
    task: Any
    node_id: str
    source: Source = "workflow-node"


class AgentEvent(msgspec.Struct, frozen=True):
    """An event to append. `key` is the same in every replay: who has it in the log does not append it again."""

    type: str
    payload: dict[str, Any]
    key: str
    caused_by: str | None = None


class Narrator:
    """Words the events of one invocation."""

    def __init__(self, invocation: Invocation, manifest: AgentManifest, model: str, verbosity: Verbosity) -> None:
        self._invocation = invocation
        self._manifest = manifest
        self._provider, _, name = model.partition(":")
        self._model = name or self._provider
        self._verbosity = verbosity

    def started(self) -> AgentEvent:
        return self._event(
            "agent.invocation.started",
            "started",
            invocationId=self._invocation.id,
            source=self._invocation.source,
            modelClass=self._manifest.model_class,
            resolvedModel=self._model,
            resolvedProvider=self._provider,
            memoryBound=self._manifest.memory.long_term,
        )

    def prompt_resolved(self) -> AgentEvent:
        """Which layer gave the system prompt: an agent's own, always, because nothing overrides an intrinsic one."""
        version = hashlib.sha256(self._manifest.instructions.encode()).hexdigest()[:12]
        ref = f"prompt:{self._manifest.agent_id}@sha256-{version}"
        chain = [
            {"layer": "node", "applied": False, "reason": "no candidate at this layer"},
            {"layer": "agent-intrinsic", "source": ref, "applied": True},
            {"layer": "workflow-defaults", "applied": False, "reason": "superseded by the agent's own prompt"},
            {"layer": "host-defaults", "applied": False, "reason": "superseded by the agent's own prompt"},
        ]
        return self._event(
            "agent.promptResolved", "prompt", nodeId=self._invocation.node_id, kind="system", chain=chain, resolved=ref
        )

    def used(self, turn: int, usage: Usage) -> AgentEvent:
        payload = {
            "provider": self._provider,
            "model": self._model,
            "inputTokens": usage.input_tokens,
            "outputTokens": usage.output_tokens,
        }
        return AgentEvent("provider.usage", payload, f"{self._invocation.id}/turn-{turn}/usage")

    def reasoned(self, turn: int, answer: Answered) -> AgentEvent:
        """The text before a tool call is reasoning; the last answer is the result and stays out."""
        verbosity: Verbosity = self._verbosity if answer.tool_calls else "off"
        text = "" if verbosity == "off" else redact_text(answer.text)
        if verbosity == "summary":
            text = text[:_SUMMARY_CHARACTERS]
        return self._event("agent.reasoned", f"turn-{turn}/reasoned", reasoning=text, verbosity=verbosity)

    def tool_called(self, place: str, call: ToolCall, tool: Tool, arguments: dict[str, Any]) -> AgentEvent:
        return self._event(
            "agent.toolCalled",
            f"{place}/called",
            toolName=tool.name,
            callId=self._call_id(place, call),
            argsHash=_arguments_hash(arguments),
            transport=tool.transport,
        )

    def tool_returned(self, place: str, call: ToolCall, tool: Tool, returned: Returned) -> AgentEvent:
        payload: dict[str, Any] = {
            "toolName": tool.name,
            "callId": self._call_id(place, call),
            "status": returned.status,
        }
        if returned.duration_ms is not None:
            payload["durationMs"] = returned.duration_ms
        event = self._event("agent.toolReturned", f"{place}/returned", **payload)
        return msgspec.structs.replace(event, caused_by=f"{self._invocation.id}/{place}/called")

    def decided(self, output: Any, validated: bool | None, confidence: float | None) -> AgentEvent:
        decision: dict[str, Any] = {"kind": "final", "digest": canonical.digest(output)}
        if validated is not None:
            decision["schemaValidated"] = validated
        more = {} if confidence is None else {"confidence": confidence}
        return self._event("agent.decided", "decided", decision=decision, **more)

    def completed(self, outcome: Outcome, validated: bool | None, confidence: float | None) -> AgentEvent:
        more: dict[str, Any] = {}
        if validated is not None:
            more["schemaValidated"] = validated
        if confidence is not None:
            more["confidence"] = confidence
        return self._event(
            "agent.invocation.completed", "completed", invocationId=self._invocation.id, outcome=outcome, **more
        )

    def _event(self, type: str, place: str, **payload: Any) -> AgentEvent:
        payload["agentId"] = self._manifest.agent_id
        return AgentEvent(type, payload, f"{self._invocation.id}/{place}")

    def _call_id(self, place: str, call: ToolCall) -> str:
        """Unique in the run, whatever ids a model gives its calls."""
        return f"{self._invocation.id}/{place}"


def _arguments_hash(arguments: dict[str, Any]) -> str:
    """SHA-256 over the RFC 8785 form of the arguments without their secrets (RFC 0064)."""
    try:
        data = rfc8785.dumps(redact(arguments))
    except rfc8785.CanonicalizationError:  # a number beyond what JavaScript can count
        data = canonical.encode(redact(arguments))
    return "sha256:" + hashlib.sha256(data).hexdigest()

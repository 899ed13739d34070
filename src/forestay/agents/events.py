"""The events of one agent invocation, in OpenWOP's words and order (RFC 0077); a run's node appends them.

Order: agent.invocation.started, agent.promptResolved (and for a template prompt.composed), then for each turn
provider.usage, agent.reasoned and a pair agent.toolCalled, agent.toolReturned for each call, then agent.decided,
agent.invocation.completed. A tool's first call comes behind tool.session.opened; tool.session.closed comes before the
invocation's end.

Payloads carry identifiers, counts and hashes, never content: no prompt, no argument, no result. The text that a model
writes before it calls tools appears only when the verbosity says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import rfc8785

from forestay.agents.decide import AgentState
from forestay.agents.manifest import AgentManifest
from forestay.agents.ports import Kept
from forestay.agents.prompt_chain import Observability, ResolvedPrompt, composed_view, own_prompts
from forestay.agents.steps import (
    Answered,
    Begun,
    CallTool,
    Confirm,
    Finish,
    GateCall,
    Gated,
    Outcome,
    Record,
    RefuseCall,
    Returned,
    Step,
)
from forestay.kernel import canonical, redact, redact_text
from forestay.models import Usage
from forestay.tools import Tool

Source = Literal["workflow-node", "run-api", "chat-mention"]
Verbosity = Literal["off", "summary", "full"]

SYSTEM = "core.system"
"""The principal of an invocation without a key (RFC 0064)."""
_SUMMARY_CHARACTERS = 1_000


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an agent. `id` is the caller's and stays the same when the invocation is resumed."""

    id: str
    task: Any
    node_id: str
    source: Source = "workflow-node"
    channel: str | None = None  # the deployment channel that gave the agent's version (RFC 0082 §B)
    prompts: tuple[ResolvedPrompt, ...] = ()  # those of the node, its agent, its workflow and the host (RFC 0029)
    observability: Observability = "hashed"
    principal: str = SYSTEM  # its tool calls are attributed to this principal


class AgentEvent(msgspec.Struct, frozen=True):
    """An event to append. `key` is the same in every replay, so a log that has it does not get it twice."""

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
        self._sessions: dict[str, str] = {}  # open ones, by the tool's id

    def told(self, state: AgentState, step: Step, record: Record) -> list[AgentEvent]:
        """The events of a step that was performed in `state`."""
        match step, record:
            case _, Begun():
                return list(self._prompts())
            case _, Answered():
                asked = enumerate(record.asked)
                used = [self._used(state.turns, number, usage, record.model) for number, usage in asked]
                return [*used, self._reasoned(state.turns, record)]
            case GateCall(call), Gated() if tool := state.tool(call.name):
                called = self._tool_called(state.place, tool, record.arguments or call.arguments)
                return [*self._opened(tool), called]
            case ((CallTool(call) | RefuseCall(call)), Returned()) if tool := state.tool(call.name):
                return [self._tool_returned(state.place, tool, record)]
            case _:
                return []

    def started(self) -> AgentEvent:
        channel = self._invocation.channel
        pin = {} if channel is None else {"resolvedAgentVersion": self._manifest.version, "resolvedChannel": channel}
        return self._event(
            "agent.invocation.started",
            "started",
            invocationId=self._invocation.id,
            source=self._invocation.source,
            modelClass=self._manifest.model_class,
            resolvedModel=self._model,
            resolvedProvider=self._provider,
            memoryBound=self._manifest.memory.long_term,
            **pin,
        )

    def _prompts(self) -> Iterator[AgentEvent]:
        """Which layer gave each prompt: the agent's own system prompt, where nothing else was named."""
        invocation, manifest = self._invocation, self._manifest
        prompts = invocation.prompts or own_prompts(manifest.prompt_ref)
        told = prompt_events(invocation.node_id, prompts, invocation.observability, manifest.agent_id)
        for number, (type, payload) in enumerate(told):
            yield AgentEvent(type, payload, f"{invocation.id}/prompt-{number}")

    def _used(self, turn: int, number: int, usage: Usage, writer: str = "") -> AgentEvent:
        """What one call of the model used: one event for each (RFC 0026)."""
        provider, _, name = writer.partition(":")
        payload = {
            "provider": provider or self._provider,
            "model": (name or provider) or self._model,
            "inputTokens": usage.input_tokens,
            "outputTokens": usage.output_tokens,
            "nodeId": self._invocation.node_id,
        }
        return AgentEvent("provider.usage", payload, f"{self._invocation.id}/turn-{turn}/usage-{number}")

    def _reasoned(self, turn: int, answer: Answered) -> AgentEvent:
        """The text before a tool call is reasoning; the last answer is the result and stays out."""
        verbosity: Verbosity = self._verbosity if answer.tool_calls else "off"
        text = "" if verbosity == "off" else redact_text(answer.text)
        if verbosity == "summary":
            text = text[:_SUMMARY_CHARACTERS]
        return self._event("agent.reasoned", f"turn-{turn}/reasoned", reasoning=text, verbosity=verbosity)

    def _tool_called(self, place: str, tool: Tool, arguments: dict[str, Any]) -> AgentEvent:
        return self._event(
            "agent.toolCalled",
            f"{place}/called",
            toolName=tool.name,
            callId=f"{self._invocation.id}/{place}",
            argsHash=arguments_hash(arguments),
            principal=self._invocation.principal,
            transport=tool.transport,
        )

    def _tool_returned(self, place: str, tool: Tool, returned: Returned) -> AgentEvent:
        payload: dict[str, Any] = {
            "toolName": tool.name,
            "callId": f"{self._invocation.id}/{place}",
            "status": returned.status,
        }
        if returned.duration_ms is not None:
            payload["durationMs"] = returned.duration_ms
        event = self._event("agent.toolReturned", f"{place}/returned", **payload)
        return msgspec.structs.replace(event, caused_by=f"{self._invocation.id}/{place}/called")

    def _opened(self, tool: Tool) -> Iterator[AgentEvent]:
        """A session begins with a tool's first call, and ends with the invocation (RFC 0078)."""
        name = tool.id or tool.name
        if name not in self._sessions:
            self._sessions[name] = f"{self._invocation.id}/session-{len(self._sessions)}"
            yield self._session("tool.session.opened", name, {})

    def closed(self, outcome: Outcome) -> Iterator[AgentEvent]:
        """The ends of the sessions that are open."""
        ended = "failed" if outcome == "failed" else "completed"
        for name in self._sessions:
            yield self._session("tool.session.closed", name, {"outcome": ended})
        self._sessions = {}

    def _session(self, type: str, tool: str, more: dict[str, Any]) -> AgentEvent:
        session = self._sessions[tool]
        return AgentEvent(type, {"sessionId": session, "toolId": tool, **more}, f"{session}/{type}")

    def decided(self, step: Confirm | Finish) -> AgentEvent:
        decision: dict[str, Any] = {"kind": "final", "digest": canonical.digest(step.output)}
        validated = True if isinstance(step, Confirm) else step.validated
        if validated is not None:
            decision["schemaValidated"] = validated
        more = {} if step.confidence is None else {"confidence": step.confidence}
        return self._event("agent.decided", "decided", decision=decision, **more)

    def remembered(self, kept: Kept) -> AgentEvent:
        """The write, attributed and without its content (RFC 0057)."""
        return self._event(
            "memory.written",
            "remembered",
            memoryRef=kept.memory_ref,
            memoryId=kept.memory_id,
            nodeId=self._invocation.node_id,
        )

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


def arguments_hash(arguments: dict[str, Any]) -> str:
    """SHA-256 over the RFC 8785 form of the arguments without their secrets (RFC 0064)."""
    try:
        data = rfc8785.dumps(redact(arguments))
    except rfc8785.CanonicalizationError:  # a number beyond what JavaScript can count
        data = canonical.encode(redact(arguments))
    return "sha256:" + hashlib.sha256(data).hexdigest()


def prompt_events(
    node_id: str, prompts: Sequence[ResolvedPrompt], observability: Observability, agent_id: str | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """Two events for each prompt: why it applies, and its text or hash, as far as the host tells that."""
    found: list[tuple[str, dict[str, Any]]] = []
    for item in prompts:
        kind, chain, composed = item.resolution.kind, item.resolution.chain, item.composed
        applied = next((entry["source"] for entry in chain if entry["applied"]), None)
        resolved = {"nodeId": node_id, "kind": kind, "chain": chain, "resolved": applied}
        found.append(("agent.promptResolved", resolved | ({} if agent_id is None else {"agentId": agent_id})))
        if composed is not None and observability != "off":
            found.append(("prompt.composed", {"nodeId": node_id, **composed_view(composed, observability)}))
    return found

"""Node types of the contract's fixtures that play an agent from their configuration. Only with the sample seams."""

from __future__ import annotations

from typing import Any

from forestay.runs.execution import Execution
from forestay.runs.nodes.registry import NodeError, NodeType


async def mock_agent(ctx: Execution) -> dict[str, Any]:
    """Say what an agent would say: reasoning, tool calls, hand-off, decision, in the contract's order."""
    config = ctx.config
    agent = str(config.get("agentId") or (ctx.agent or {}).get("agentId") or "core.conformance.mock-agent")
    _reason(ctx, agent, config.get("mockReasoning"))
    for index, call in enumerate(config.get("mockToolCalls", [])):
        about = {"agentId": agent, "toolName": call["toolId"], "callId": f"{ctx.origin}:{ctx.node_id}:{index}"}
        ctx.emit("agent.toolCalled", {**about, "inputs": call.get("arguments")})
        ctx.emit("agent.toolReturned", {**about, "outcome": call.get("result"), "status": "ok"})
    if handoff := config.get("mockHandoff"):
        passed = {"agentId": agent, "fromAgentId": agent, "toAgentId": handoff["toAgentId"]}
        ctx.emit("agent.handoff", {**passed, "reason": handoff.get("reason", "")})
    decision = config.get("mockDecision")
    if not decision:
        return {}
    confidence = decision.get("confidence", config.get("mockConfidence", 1))
    decided = {"agentId": agent, "decision": decision["decision"], "confidence": confidence}
    ctx.emit("agent.decided", decided)
    threshold = ctx.configurable.get("escalationThreshold", 0.7)
    if confidence < threshold:
        asked = {"agentId": agent, "threshold": threshold, "observed": confidence, "decision": decision["decision"]}
        await ctx.interrupt("low-confidence", asked)
    return {"decision": decision["decision"]}


def _reason(ctx: Execution, agent: str, reasoning: Any) -> None:
    if not isinstance(reasoning, dict):
        return
    chunks = reasoning.get("streamChunks", [])
    for index, chunk in enumerate(chunks):
        ctx.emit("agent.reasoning.delta", {"agentId": agent, "delta": chunk, "sequence": index})
    text = "".join(chunks) or reasoning["summary"]
    ctx.emit("agent.reasoned", {"agentId": agent, "reasoning": text, "verbosity": "summary"})


async def identity(ctx: Execution) -> dict[str, Any]:
    """`core.identity`, and for the message reducer's fixture one message said twice."""
    if ctx.config.get("emitDuplicateMessageId"):
        message = {
            "messageId": "m-1",
            "from": ctx.node_id,
            "content": "once",
            "role": "system",
            "turnIndex": 0,
            "ts": 0,
        }
        for _ in range(2):
            ctx.write_channel("messages", message, reducer="message")
    return dict(ctx.inputs)


async def never(ctx: Execution) -> dict[str, Any]:
    raise NodeError("capability_not_provided", "This node is never executed.", retryable=False)


TYPES = [
    NodeType(type_id="core.identity", execute=identity, inline=True, summary="Outputs its inputs."),
    NodeType(
        type_id="core.conformance.mock-agent", execute=mock_agent, inline=True, summary="Plays an agent (sample seams)."
    ),
    NodeType(
        type_id="conformance.requiresMissing",
        execute=never,
        requires=("conformance.never-provided",),
        summary="Needs what no host has (sample seams).",
    ),
]

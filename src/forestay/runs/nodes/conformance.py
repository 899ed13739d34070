"""Node types for the contract's fixtures, which play an agent from their configuration. Only with the sample seams."""

from __future__ import annotations

import hashlib
from typing import Any

from forestay.agents import prompt_text
from forestay.kernel import iso
from forestay.runs.execution import Execution
from forestay.runs.nodes.registry import NodeError, NodeType
from forestay.runs.prompting import prompted, tell_prompts


async def mock_agent(ctx: Execution) -> dict[str, Any]:
    """Emit the events of an agent: reasoning, tool calls, hand-off and decision, in the contract's order."""
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
    """Output the inputs. For fixtures, also write one message twice, or perform a memory action."""
    if action := _MEMORY.get(str(ctx.config.get("memoryAction"))):
        await action(ctx, str((ctx.agent or {}).get("memoryRef") or ctx.config.get("probeMemoryRef")))
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


async def _write_then_read(ctx: Execution, memory_ref: str) -> None:
    memory_id = await ctx.memory.put(memory_ref, f"Written by {ctx.run_id}.", tags=["conformance"])
    ctx.set_variable("memoryReadback", await ctx.memory.get(memory_ref, memory_id))


async def _expiry(ctx: Execution, memory_ref: str) -> None:
    memory_ref = f"{memory_ref}/{ctx.run_id}"  # so the list has no entries of other runs
    for past, moment in ((True, -3_600_000), (False, 3_600_000)):
        text = "expired" if past else "live"
        await ctx.memory.put(memory_ref, text, expires_at=iso(ctx.wall_ms + moment))
    ctx.set_variable("memoryList", await ctx.memory.list(memory_ref))


async def _foreign(ctx: Execution, memory_ref: str) -> None:
    ctx.set_variable("crossTenantProbe", await ctx.memory.list(memory_ref))


async def _redaction(ctx: Execution, memory_ref: str) -> None:
    value = await ctx.secret(str(ctx.config["byokSecretId"]))
    memory_id = await ctx.memory.put(memory_ref, f"It was {value} that opened the door.")
    ctx.set_variable("memoryReadback", await ctx.memory.get(memory_ref, memory_id))


_MEMORY = {
    "redaction-probe": _redaction,
    "write-then-read": _write_then_read,
    "ttl-probe": _expiry,
    "cross-tenant-probe": _foreign,
}


async def mock_ai(ctx: Execution) -> dict[str, Any]:
    """Output what a model would get: the prompts that apply to the node, else the variable `prompt`."""
    prompts = await prompted(ctx)
    tell_prompts(ctx, prompts)
    said = prompt_text(prompts, "system", "schema-hint", "few-shot", "user")
    return {"text": said or str(ctx.variables.get("prompt", ""))}


async def secret_echo(ctx: Execution) -> dict[str, Any]:
    """Output the hash and the length of a credential's value, but not the value."""
    value = (await ctx.secret(str(ctx.config["secretId"]))).encode()
    ctx.set_variable("secretSha256", hashlib.sha256(value).hexdigest())
    ctx.set_variable("secretLength", len(value))
    return {}


async def never(ctx: Execution) -> dict[str, Any]:
    raise NodeError("capability_not_provided", "This node is never executed.", retryable=False)


TYPES = [
    NodeType(
        type_id="conformance.secret.echo",
        execute=secret_echo,
        requires=("secrets",),
        summary="Hashes a credential's value (sample seams).",
    ),
    NodeType(
        type_id="conformance.modelCapability.insufficient",
        execute=never,
        model_capabilities=("nonexistent-capability-9b3f",),
        summary="Needs a model that no host has (sample seams).",
    ),
    NodeType(type_id="core.identity", execute=identity, summary="Outputs its inputs."),
    NodeType(
        type_id="core.conformance.mock-agent", execute=mock_agent, inline=True, summary="Plays an agent (sample seams)."
    ),
    NodeType(type_id="local.sample.demo.mock-ai", execute=mock_ai, summary="Outputs its prompts (sample seams)."),
    NodeType(
        type_id="conformance.requiresMissing",
        execute=never,
        requires=("conformance.never-provided",),
        summary="Needs a capability that no host has (sample seams).",
    ),
]

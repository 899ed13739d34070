"""Our own shape of each event's payload, and the contract's where it is at hand."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from forestay.runs.types import RunEvent

ROOT = Path(__file__).parents[2]
CONTRACT = Path(os.environ.get("FORESTAY_REFERENCE", ROOT.parent / "shared" / "reference")) / "openwop"

# What each event must carry: name -> types. Everything else is optional.
REQUIRED: dict[str, dict[str, type | tuple[type, ...]]] = {
    "run.started": {"workflowId": str, "inputs": dict},
    "run.completed": {"outputs": dict, "durationMs": int},
    "run.failed": {"error": dict, "durationMs": int},
    "run.cancelled": {"durationMs": int},
    "run.paused": {"drainPolicy": str},
    "run.resumed": {},
    "node.started": {"nodeId": str, "typeId": str, "attempt": int},
    "node.completed": {"nodeId": str, "outputs": dict, "durationMs": int},
    "node.failed": {"nodeId": str, "error": dict},
    "node.skipped": {"nodeId": str, "reason": str},
    "node.cancelled": {"nodeId": str, "reason": str},
    "node.retried": {"nodeId": str, "attempt": int, "delayMs": int, "lastError": dict},
    "node.suspended": {"nodeId": str, "interruptId": str, "kind": str, "key": str},
    "node.resumed": {"nodeId": str, "interruptId": str},
    "node.dispatched": {"childRunId": str, "childWorkflowId": str},
    "interrupt.requested": {"kind": str, "key": str, "data": object},
    "interrupt.resolved": {"nodeId": str, "interruptId": str, "kind": str},
    "approval.requested": {"nodeId": str, "artifactId": str, "artifactType": str, "actions": list},
    "approval.received": {"nodeId": str, "action": str},
    "approval.granted": {"gateId": str, "principal": str},
    "approval.rejected": {"gateId": str, "principal": str},
    "clarification.requested": {"nodeId": str, "questions": list},
    "clarification.resolved": {"nodeId": str, "answers": dict},
    "conversation.opened": {"conversationId": str, "initialTurn": dict},
    "conversation.exchanged": {"conversationId": str, "turnIndex": int, "turn": dict},
    "conversation.closed": {"conversationId": str, "turnIndex": int, "finalTurn": dict},
    "channel.written": {"channel": str, "value": object, "reducer": str, "writtenAt": str},
    "variable.changed": {"name": str, "next": object},
    "artifact.created": {"artifactId": str, "artifactType": str},
    "output.chunk": {"nodeId": str, "runId": str, "chunk": str, "isLast": bool},
    "log.appended": {"level": str, "message": str},
    "workflow.loopback-limit": {"nodeId": str, "iterations": int},
    "cap.breached": {"kind": str, "limit": int, "observed": int},
    "lease.acquired": {"leaseId": str, "host": str},
    "core.workflowChain.confidence-escalated": {
        "confidence": float,
        "floor": float,
        "escalationKind": str,
        "parentRunId": str,
    },
    "model.capability.insufficient": {"nodeId": str, "provider": str, "model": str, "missingCapabilities": list},
    "core.workflowChain.event": {"phase": str, "workerId": str, "parentRunId": str},
    "replay.diverged": {"sourceRunId": str, "atSequence": int},
    "replay.divergedAtRefusal": {
        "sourceRunId": str,
        "atSequence": int,
        "originalEnvelopeKind": str,
        "replayEnvelopeKind": str,
    },
    "version.pinned": {"changeId": str, "version": int},
    "provider.usage": {"provider": str, "model": str, "inputTokens": int, "outputTokens": int},
    "memory.written": {"memoryRef": str, "memoryId": str, "nodeId": str},
    "agent.promptResolved": {"nodeId": str, "kind": str, "chain": list, "resolved": str},
    "prompt.composed": {"nodeId": str, "refs": list, "kind": str, "hash": str},
    "tool.session.opened": {"sessionId": str, "toolId": str},
    "tool.session.closed": {"sessionId": str, "toolId": str, "outcome": str},
    "agent.reasoned": {"agentId": str, "reasoning": str},
    "agent.reasoning.delta": {"agentId": str, "delta": str, "sequence": int},
    "agent.toolCalled": {"agentId": str, "toolName": str, "callId": str},
    "agent.toolReturned": {"agentId": str, "toolName": str, "callId": str},
    "egress.decided": {"decision": str, "destination": str},
    "connector.authorized": {"provider": str, "credentialRef": str},
    "connector.auth_expired": {"provider": str, "credentialRef": str},
    "agent.handoff": {"fromAgentId": str, "toAgentId": str},
    "agent.decided": {"agentId": str, "decision": object},
    "runOrchestrator.decided": {"agentId": str, "decision": dict},
    "envelope.retry.attempted": {"nodeId": str, "attempt": int, "reason": str},
    "envelope.retry.exhausted": {"nodeId": str, "totalAttempts": int, "finalReason": str},
    "envelope.refusal": {"nodeId": str, "provider": str, "model": str},
    "envelope.truncated": {
        "nodeId": str,
        "provider": str,
        "model": str,
        "stopReason": str,
        "partialPayloadAvailable": bool,
    },
    "envelope.recovery.applied": {"nodeId": str, "path": str},
    "envelope.nlToFormat.engaged": {"nodeId": str, "originalEnvelopeType": str},
    "agent.invocation.started": {"agentId": str, "source": str},
    "agent.invocation.completed": {"agentId": str, "outcome": str},
    "authorization.decided": {"principal": str, "action": str, "allowed": bool},
    "deployment.promoted": {"agentId": str, "toVersion": str, "toState": str},
    "deployment.rolled-back": {"agentId": str, "fromVersion": str, "toVersion": str},
    "deployment.canary.adjusted": {"agentId": str, "version": str, "fromPercent": int, "toPercent": int},
    "deployment.state.changed": {"agentId": str, "version": str, "fromState": str, "toState": str},
    "eval.started": {"suiteId": str, "taskCount": int},
    "eval.scored": {"taskId": str, "score": (int, float)},
    "eval.completed": {"taskCount": int, "passed": bool},
    "budget.reserved": {"effectiveBudget": dict},
    "budget.consumed": {"dimension": str, "consumed": (int, float)},
    "budget.threshold.crossed": {"dimension": str},
    "budget.exhausted": {"dimension": str},
    "roster.run.initiated": {"rosterId": str},
    "trigger.delivery.attempted": {"subscriptionId": str, "attempt": int, "outcome": str},
    "forestay.relay.answered": {"nodeId": str},
    "forestay.clock.jumped": {"byMs": int},
    "forestay.pause.requested": {"drainPolicy": str},
    "forestay.timer.set": {"nodeId": str, "key": str, "dueAt": int},
    "forestay.timer.fired": {"nodeId": str, "key": str},
    "forestay.effect.recorded": {"nodeId": str, "key": str, "invocationId": str},
    "forestay.loop.taken": {"edgeId": str, "iteration": int},
    "forestay.signal.received": {"name": str},
    "forestay.approval.asked": {"nodeId": str, "interruptId": str},
    "forestay.run.forked": {"sourceRunId": str, "fromSeq": int},
}
# Where the contract's files disagree with each other: channel-written-payload knows no `message` reducer, the
# workflow definition does.
_KNOWN_CONFLICT = "message"


def check_events(events: list[RunEvent]) -> None:
    """Each event validates against our shape and, when the contract's schemas are there, against those."""
    assert [event.sequence for event in events] == list(range(len(events)))
    for event in events:
        shape = REQUIRED[event.type]
        for name, kind in shape.items():
            assert name in event.payload, (event.type, name, event.payload)
            assert isinstance(event.payload[name], kind), (event.type, name, event.payload[name])
        if "error" in shape:
            assert event.payload["error"]["code"] and event.payload["error"]["message"]
        if event.type.startswith(("node.", "approval.", "clarification.")):
            assert event.node_id
        validator = _contract(event.type)
        if validator is not None and event.payload.get("reducer") != _KNOWN_CONFLICT:
            validator.validate(event.payload)


def check_document(name: str, document: Any) -> None:
    """The document validates against the contract's schema of that name, where it is at hand."""
    if not (CONTRACT / "schemas").is_dir():
        return
    schema = json.loads((CONTRACT / "schemas" / f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator({"$ref": schema["$id"]}, registry=_registry()).validate(document)


def _registry() -> Any:
    from referencing import Registry, Resource

    return Registry().with_resources([(uri, Resource.from_contents(item)) for uri, item in _schemas().items()])


@cache
def _contract(event_type: str) -> Any:
    if not (CONTRACT / "schemas").is_dir() or event_type.startswith("forestay."):
        return None
    name = re.sub(r"[._-]([a-zA-Z])", lambda m: m.group(1).upper(), event_type)
    name = {"leaseAcquired": "leaseLifecycle"}.get(name, name)
    schemas = _schemas()
    root = next(
        item
        for item in schemas.values()
        if item["title"].startswith("RunEventPayload") or "runStarted" in item.get("$defs", {})
    )
    assert name in root["$defs"], f"the contract has no {name}"
    return jsonschema.Draft202012Validator({"$ref": f"{root['$id']}#/$defs/{name}"}, registry=_registry())


@cache
def _schemas() -> dict[str, Any]:
    found = {}
    for file in (CONTRACT / "schemas").glob("*.schema.json"):
        schema = json.loads(file.read_text())
        found[schema["$id"]] = schema
    return found


def snapshot_schema() -> Any:
    """The contract's schema of a snapshot, or None."""
    if not (CONTRACT / "schemas").is_dir():
        return None
    from referencing import Registry, Resource

    registry: Any = Registry().with_resources([(uri, Resource.from_contents(i)) for uri, i in _schemas().items()])
    uri = next(uri for uri in _schemas() if uri.endswith("run-snapshot.schema.json"))
    return jsonschema.Draft202012Validator({"$ref": uri}, registry=registry)

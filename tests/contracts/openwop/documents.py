"""The workflows that the suite runs, and the contract's own names for them on a host that cannot store workflows."""

from __future__ import annotations

from typing import Any

from forestay.conformance import from_variable, node, variable, workflow

__all__ = ["CONTRACT_NAMES", "DOCUMENTS", "from_variable", "node", "variable", "workflow"]

APPROVAL = {"title": "Go on?", "description": "Somebody must say so.", "actions": ["accept", "reject"]}

DOCUMENTS: dict[str, dict[str, Any]] = {
    "noop": workflow("suite-noop", node("start", "core.noop")),
    "chain": workflow("suite-chain", *(node(f"step{number}", "core.noop") for number in range(5))),
    "identity": workflow(
        "suite-identity",
        node("echo", "core.identity", inputs={"payload": from_variable("payload")}),
        variables=[variable("payload", "object", required=True)],
    ),
    "delay": workflow(
        "suite-delay",
        node("wait", "core.delay", inputs={"delayMs": from_variable("delayMs")}),
        node("after", "core.noop"),
        variables=[variable("delayMs", "number", defaultValue=600_000)],
    ),
    "approval": workflow("suite-approval", node("gate", "core.approvalGate", APPROVAL), node("after", "core.noop")),
    "clarification": workflow(
        "suite-clarification",
        node("ask", "core.clarificationGate", {"questions": [{"id": "q1", "question": "Which colour?"}]}),
    ),
    "failing": workflow(
        "suite-failing", node("breaks", "core.fail", {"code": "suite_broke", "message": "On purpose."})
    ),
    "configurable": workflow(
        "suite-configurable",
        node("start", "core.noop"),
        configurableSchema={
            "type": "object",
            "properties": {"size": {"type": "integer", "minimum": 1}},
            "additionalProperties": False,
        },
    ),
    "prompt": workflow("suite-prompt", node("ask", "core.ai.callPrompt", {"prompt": "Say hello."})),
    "structured": workflow(
        "suite-structured",
        node(
            "suite-structured-call",
            "core.ai.structuredOutput",
            {"provider": "mock", "prompt": "Valid?", "maxTokens": 50, "outputSchema": {"required": ["valid"]}},
        ),
    ),
    "artifact": workflow("suite-artifact", node("keep", "core.transform", {"artifacts": {"report": "{'pages': 3}"}})),
    "parent": workflow("suite-parent", node("sub", "core.subWorkflow", {"workflowId": "suite-noop"})),
    "waiting-parent": workflow(
        "suite-waiting-parent", node("sub", "core.subWorkflow", {"workflowId": "suite-approval"})
    ),
    "votes": workflow(
        "suite-votes",
        node("first", "core.channelWrite", {"channelName": "poll", "value": {"userId": "ann", "vote": "yes"}}),
        node("again", "core.channelWrite", {"channelName": "poll", "value": {"userId": "ann", "vote": "no"}}),
        node("other", "core.channelWrite", {"channelName": "poll", "value": {"userId": "ben", "vote": "yes"}}),
        node("note", "core.channelWrite", {"channelName": "notes", "value": "seen"}),
        channels={"poll": {"reducer": "votes"}, "notes": {"reducer": "append", "ttlMs": 3_600_000}},
    ),
    "loops": workflow(
        "suite-loops",
        node("start", "core.noop"),
        node("turn", "core.noop"),
        settings={"maxLoopbackIterations": 100_000_000},
    ),
    "secret": workflow(
        "suite-secret",
        node("echo", "core.identity", inputs={"passed": from_variable("password"), "note": from_variable("note")}),
        variables=[variable("password", "string", sensitive=True), variable("note", "object")],
    ),
    "waiting": workflow(
        "suite-waiting",
        node("wait", "core.waitForEvent", {"event": "suite.go"}),
        node("after", "core.noop"),
    ),
}

CONTRACT_NAMES = {
    "noop": "conformance-noop",
    "chain": "conformance-multi-node",
    "identity": "conformance-identity",
    "delay": "conformance-delay",
    "approval": "conformance-approval",
    "clarification": "conformance-clarification",
    "failing": "conformance-failure",
    "configurable": "conformance-configurable-schema",
    "prompt": "conformance-stream-text",
}

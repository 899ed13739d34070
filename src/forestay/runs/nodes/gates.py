"""Nodes that ask people or wait: approval, clarification, conversation, any interrupt, an external event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forestay.kernel import check_schema
from forestay.runs.execution import Execution
from forestay.runs.nodes.checks import needs_text, positive, shaped
from forestay.runs.nodes.registry import NodeError, NodeType

ACTIONS = ("accept", "reject", "refine", "edit-accept", "ask")


async def approval_gate(ctx: Execution) -> dict[str, Any]:
    """Ask for an approval. Without an edge for it, a rejection fails the node and a refinement asks again."""
    config = ctx.config
    feedback: list[Any] = []
    while True:
        data: dict[str, Any] = {
            "artifactId": str(config.get("artifactId") or ctx.node_id),
            "artifactType": str(config.get("artifactType") or "decision"),
            "title": str(config.get("title") or ctx.node_id),
            "actions": list(config.get("actions") or ["accept", "reject"]),
        }
        for key in ("description", "requiredApprovals", "approversList", "rejectionPolicy", "profile"):
            if config.get(key) is not None:
                data[key] = config[key]
        if "artifactData" in config or "artifact" in ctx.inputs:
            data["artifactData"] = ctx.inputs.get("artifact", config.get("artifactData"))
        if feedback:
            data["description"] = (
                f"{data.get('description', '')} (asked again after {len(feedback)} refinements)".strip()
            )
        shown = {key: data[key] for key in ("artifactId", "artifactType", "title")}
        for key in ("approversList", "requiredApprovals"):
            if key in data:
                shown[key] = data[key]
        actions = ["edit" if action == "edit-accept" else action for action in data["actions"]]
        value = await ctx.interrupt(
            "approval",
            data,
            timeout_ms=config.get("timeoutMs"),
            default=config.get("onTimeout") or config.get("defaultAction"),
            announce=("approval.requested", {**shown, "actions": actions}),
        )
        outputs = _decision(value)
        action = outputs["action"]
        if action == "refine" and not ctx.routes(outputs):
            feedback.append(value.get("feedback"))
            continue
        if action == "reject" and not ctx.routes(outputs):
            raise NodeError("approval_rejected", "The approval was rejected.", retryable=False)
        return outputs


def _decision(value: dict[str, Any]) -> dict[str, Any]:
    action = value.get("action", "accept")
    outputs: dict[str, Any] = {"action": action, "approved": action in ("accept", "edit-accept")}
    for key in ("comment", "feedback", "refineFeedback", "editedArtifactData", "decidedBy", "timedOut"):
        if value.get(key) is not None:
            outputs[key] = value[key]
    return outputs


async def clarification_gate(ctx: Execution) -> dict[str, Any]:
    """Ask questions; the answers are an object by question id."""
    limit = ctx.limits.clarification_rounds
    if ctx.iteration >= limit:
        ctx.emit("cap.breached", {"kind": "clarification", "limit": limit, "observed": ctx.iteration + 1})
        raise NodeError("clarification_limit_exceeded", f"Asked more than {limit} times.", retryable=False)
    data: dict[str, Any] = {"questions": ctx.config["questions"]}
    if "contextType" in ctx.config:
        data["contextType"] = ctx.config["contextType"]
    value = await ctx.interrupt(
        "clarification",
        data,
        timeout_ms=ctx.config.get("timeoutMs"),
        default=ctx.config.get("defaultValue"),
        announce=("clarification.requested", {"questions": data["questions"]}),
    )
    return {"answers": value.get("answers", value)}


async def interrupt(ctx: Execution) -> dict[str, Any]:
    """Ask with any interrupt; the configuration defines it."""
    config = ctx.config
    value = await ctx.interrupt(
        str(config.get("kind", "custom")),
        config.get("data") or {"customKind": ctx.node_id},
        key=config.get("key"),
        resume_schema=config.get("resumeSchema"),
        timeout_ms=config.get("timeoutMs"),
        default=config.get("defaultValue"),
    )
    return value if isinstance(value, dict) else {"output": value}


async def wait_for_event(ctx: Execution) -> dict[str, Any]:
    """Wait for a named signal that matches the correlation."""
    correlation = ctx.inputs.get("correlation", ctx.config.get("correlation"))
    if not isinstance(correlation or {}, dict):
        raise NodeError("invalid_input", "`correlation` must be an object.", retryable=False)
    value = await ctx.signal(
        str(ctx.config["event"]),
        correlation,
        timeout_ms=ctx.config.get("timeoutMs"),
        default=ctx.config.get("defaultValue"),
    )
    return {"event": value}


async def conversation_gate(ctx: Execution) -> dict[str, Any]:
    """Hold a conversation of some turns: opened, exchanged, closed; a `conversation` channel gets the turns too."""
    config = ctx.config
    id = f"{ctx.origin}:{ctx.node_id}:{ctx.iteration}"
    turns = int(config.get("turnCount", 1))
    opening = _turn(
        ctx, id, 0, str(config.get("initialPrompt") or config.get("title") or "Conversation opened."), "system"
    )
    ctx.emit("conversation.opened", {"conversationId": id, "initialTurn": opening})
    _keep(ctx, opening)
    outcomes: list[Any] = []
    last = opening
    for index in range(1, turns + 1):
        prompt = str(config.get("prompt") or f"Turn {index}")
        if config.get("mockAutoResume"):
            value: Any = {"text": f"auto-resume {index}"}
        else:
            data: dict[str, Any] = {"conversationId": id, "prompt": prompt, "turnIndex": index}
            if "outcomeSchema" in config:
                data["outcomeSchema"] = config["outcomeSchema"]
            value = await ctx.interrupt("conversation.exchange", data, timeout_ms=config.get("timeoutMs"))
        last = _turn(ctx, id, index, value, "user")
        outcomes.append(value)
        ctx.emit("conversation.exchanged", {"conversationId": id, "turnIndex": index, "turn": last})
        _keep(ctx, last)
    final = _turn(ctx, id, turns + 1, "Conversation closed.", "system")
    ctx.emit("conversation.closed", {"conversationId": id, "turnIndex": turns + 1, "finalTurn": final})
    return {"conversationId": id, "outcomes": outcomes, "turnCount": turns}


def _turn(ctx: Execution, id: str, index: int, content: Any, role: str) -> dict[str, Any]:
    """Return a turn; its time is 0, so that a second execution returns the same."""
    speaker = ctx.node_id if role == "system" else "user"
    message = {"messageId": f"{id}:{index}", "from": speaker, "content": content, "role": role, "turnIndex": index}
    return {**message, "ts": 0}


def _keep(ctx: Execution, turn: dict[str, Any]) -> None:
    if "conversation" in ctx._state.channels:
        ctx.write_channel("conversation", turn, reducer="message")


def _check_approval(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    actions = config.get("actions", ["accept"])
    if not isinstance(actions, list) or not actions or any(action not in ACTIONS for action in actions):
        yield ".actions", f"Each action must be one of {', '.join(ACTIONS)}."
    yield from positive(config, "requiredApprovals", "timeoutMs")
    listed = config.get("approversList") or []
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        yield ".approversList", "An array of principals is expected."


def _check_clarification(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from positive(config, "timeoutMs")
    yield from shaped(config, dict, "defaultValue")
    questions = config.get("questions")
    if not isinstance(questions, list) or not questions:
        yield ".questions", "A clarification needs questions."
        return
    for index, item in enumerate(questions):
        if not isinstance(item, dict) or not all(isinstance(item.get(key), str) for key in ("id", "question")):
            yield f".questions[{index}]", "A question needs `id` and `question`."
        else:
            yield from check_schema(item.get("schema"), f".questions[{index}].schema")


def _check_conversation(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from check_schema(config.get("outcomeSchema"), ".outcomeSchema")
    yield from positive(config, "timeoutMs")
    turns = config.get("turnCount", 1)
    if isinstance(turns, bool) or not isinstance(turns, int) or not 0 <= turns <= 1000:
        yield ".turnCount", "A number from 0 to 1,000 is expected."


def _check_interrupt(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kinds = ("approval", "clarification", "external-event", "custom", "conversation.exchange", "low-confidence")
    if config.get("kind", "custom") not in kinds:
        yield ".kind", f"A kind must be one of {', '.join(kinds)}."
        return
    yield from check_schema(config.get("resumeSchema"), ".resumeSchema")
    yield from positive(config, "timeoutMs")
    yield from shaped(config, str, "key")
    data = config.get("data") or {}
    if not isinstance(data, dict):
        yield ".data", "An object is expected."
        return
    for place, message in _DATA.get(config.get("kind", "custom"), _anything)(data):
        yield f".data{place}", message


def _check_event(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not isinstance(data.get("eventType"), str):
        yield ".eventType", "An external event needs `eventType`."
    yield from shaped(data, dict, "correlation")


def _check_exchange(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from check_schema(data.get("outcomeSchema"), ".outcomeSchema")


def _anything(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ()


def _check_wait(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from needs_text(config, "event")
    yield from positive(config, "timeoutMs")
    yield from shaped(config, dict, "correlation")


# Checks of the data that the answer to an interrupt is checked against.
_DATA = {
    "approval": _check_approval,
    "clarification": _check_clarification,
    "external-event": _check_event,
    "conversation.exchange": _check_exchange,
}


TYPES = [
    NodeType(
        type_id="core.approvalGate",
        execute=approval_gate,
        inline=True,
        check=_check_approval,
        summary="Asks for an approval.",
    ),
    NodeType(
        type_id="core.clarificationGate",
        execute=clarification_gate,
        inline=True,
        check=_check_clarification,
        summary="Asks questions.",
    ),
    NodeType(
        type_id="core.conversationGate",
        execute=conversation_gate,
        inline=True,
        check=_check_conversation,
        summary="Talks for some turns.",
    ),
    NodeType(
        type_id="core.interrupt", execute=interrupt, inline=True, check=_check_interrupt, summary="Any interrupt."
    ),
    NodeType(
        type_id="core.waitForEvent",
        execute=wait_for_event,
        inline=True,
        check=_check_wait,
        summary="Waits for a signal or an external event.",
    ),
]

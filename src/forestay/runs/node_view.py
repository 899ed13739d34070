"""Shows one node of a run to a person: its inputs, its outputs and every attempt, with sensitive values masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from forestay.kernel import Problem
from forestay.runs.secrets import cover, masked
from forestay.runs.state import RunState, shown_outputs
from forestay.runs.types import RunEvent

NODE_ENDS = {
    "node.completed": "completed",
    "node.failed": "failed",
    "node.retried": "failed",
    "node.skipped": "skipped",
    "node.cancelled": "cancelled",
}


class NodeAttempt(msgspec.Struct):
    """One attempt: its beginning and its outcome."""

    number: int
    started_at: str
    ended_at: str | None = None
    outcome: str = "running"
    error: dict[str, Any] | None = None
    retry_in_ms: int | None = None  # the delay before the next attempt


class NodeView(msgspec.Struct, frozen=True):
    """A node and its attempts, oldest first; `inputs` and `outputs` are those of the last execution."""

    node_id: str
    name: str
    type_id: str
    status: str
    config: dict[str, Any]
    inputs: dict[str, Any]
    outputs: dict[str, Any] | None
    error: dict[str, Any] | None
    attempts: list[NodeAttempt]
    events: list[RunEvent]


class RetryPoint(msgspec.Struct, frozen=True):
    """Where a failed run can be retried: a branch from `sequence` on executes `node_id` again."""

    node_id: str
    sequence: int


def node_view(state: RunState, node_id: str, events: Sequence[RunEvent]) -> NodeView:
    """Return the node's view, from `events` (of the whole run, masked) and the state; `not_found`."""
    if node_id not in state.nodes:
        raise Problem("not_found", "The run has no such node.", runId=state.run_id, nodeId=node_id[:128])
    node, document = state.nodes[node_id], state.plan.nodes[node_id].doc
    mine = [event for event in events if event.node_id == node_id]
    outputs = shown_outputs(state, node_id, node.outputs) if node.outputs else None
    return NodeView(
        node_id=node_id,
        name=document.name or node_id,
        type_id=document.type_id,
        status=node.status,
        config=cover(state, document.config),
        inputs=masked(node.inputs, node.inputs) if _hides(state) else node.inputs,
        outputs=cover(state, outputs),
        error=cover(state, node.error),
        attempts=attempts(mine),
        events=mine,
    )


def _hides(state: RunState) -> bool:
    """Whether the run has secrets. A secret number cannot be recognized, so then no input is shown."""
    declared = any(node.doc.output_sensitivity for node in state.plan.nodes.values())
    return bool(state.secrets or state.plan.sensitive or declared)


def attempts(events: Sequence[RunEvent]) -> list[NodeAttempt]:
    """Return the attempts of one node, in the order in which they began."""
    found: list[NodeAttempt] = []
    for event in events:
        payload: dict[str, Any] = event.payload if isinstance(event.payload, dict) else {}
        if event.type == "node.started":
            found.append(NodeAttempt(payload.get("attempt", 1), event.timestamp))
        elif event.type in NODE_ENDS:
            if not found or found[-1].ended_at is not None:  # it ended without a start: skipped, or refused
                found.append(NodeAttempt(len(found) + 1, event.timestamp))
            last = found[-1]
            last.ended_at, last.outcome = event.timestamp, NODE_ENDS[event.type]
            last.error = payload.get("error") or payload.get("lastError")
            last.retry_in_ms = payload.get("delayMs") if event.type == "node.retried" else None
    return found


def retry_point(events: Sequence[RunEvent]) -> RetryPoint | None:
    """Return where to retry a failed run: before the first attempt of the node that failed last; None without one."""
    failed = next((event for event in reversed(events) if event.type == "node.failed"), None)
    if failed is None or failed.node_id is None or not events or events[-1].type != "run.failed":
        return None
    for event in reversed(events):
        begins = event.type == "node.started" and event.node_id == failed.node_id
        if begins and event.sequence < failed.sequence and event.payload.get("attempt", 1) == 1:
            return RetryPoint(failed.node_id, event.sequence)
    return RetryPoint(failed.node_id, failed.sequence)

"""What a run's state looks like from outside: snapshots and summaries, nothing sensitive."""

from __future__ import annotations

from typing import Any

from forestay.kernel import iso
from forestay.runs import channels
from forestay.runs.expressions import Scope
from forestay.runs.log import ENGINE_VERSION
from forestay.runs.secrets import cover, cover_run
from forestay.runs.state import MASK, NodeState, RunState, shown_outputs
from forestay.runs.types import RunError, RunSnapshot, RunSummary

_SHOWN = {
    "approval": "suspended",
    "input": "suspended",
    "external": "suspended",
    "stopped": "suspended",
    "idle": "pending",
}


def snapshot(state: RunState, now: int) -> RunSnapshot:
    """The run as GET /v1/runs/{runId} shows it."""
    now = state.at if state.ended is not None else now - state.lag  # an ended run grows no older
    started = state.started
    hidden = state.plan.sensitive
    error = state.error
    shown = RunSnapshot(
        run_id=state.run_id,
        workflow_id=state.plan.workflow.id,
        workflow_version=state.plan.workflow.version,
        status=state.status,
        owner=state.owner,
        current_node_id=current_node(state),
        created_at=iso(state.created_ms),
        started_at=iso(state.created_ms),
        completed_at=iso(state.ended_ms) if state.ended is not None else None,
        paused_at=iso(state.paused_ms) if state.paused_ms is not None else None,
        agent=state.agent,
        run_orchestrator=state.orchestrator,
        node_states={
            name: _node(node) for name, node in state.nodes.items() if node.status != "idle" or node.iteration
        },
        inputs=started.get("inputs", {}),
        variables={name: MASK if name in hidden else value for name, value in state.variables.items()},
        channels={name: _channel(item, now) for name, item in state.channels.items()},
        outputs=state.outputs,
        error=None
        if error is None
        else RunError(code=error["code"], message=error["message"], details=error.get("details")),
        engine_version=started.get("engineVersion", ENGINE_VERSION),
        tags=started.get("tags", []),
        metadata=started.get("metadata", {}),
        configurable=state.configurable,
        metrics={"openwopCost": state.usage} if state.usage else None,
        scope_id=started.get("scopeId"),
        parent_run_id=state.parent["runId"] if state.parent else None,
        parent_node_id=state.parent["nodeId"] if state.parent else None,
        source_run_id=state.source["source"] if state.source else None,
        last_sequence=state.seq,
    )
    return cover_run(state, shown)


def scope_of(state: RunState, now: int) -> Scope:
    """What an expression of a caller can name: the snapshot's values and each node's status, error and output."""
    shown = snapshot(state, now)
    nodes = {
        name: {
            "status": node.status,
            "error": node.error,
            "output": shown_outputs(state, name, node.outputs) if node.outputs else None,
        }
        for name, node in state.nodes.items()
    }
    names = {
        **shown.variables,  # a name alone is a variable as it is shown: a hidden one answers no question
        "status": state.status,
        "variables": shown.variables,
        "channels": shown.channels,
        "inputs": shown.inputs,
        "nodes": cover(state, nodes),
    }
    return state.scope({}, state.status, names)


def current_node(state: RunState) -> str | None:
    """The node that holds the interrupt, when the run waits for one."""
    if not state.status.startswith("waiting"):
        return None
    return next((name for name in state.active if state.nodes[name].interrupt is not None), None)


def _node(node: NodeState) -> dict[str, Any]:
    shown: dict[str, Any] = {"status": _SHOWN.get(node.status, node.status), "attempt": node.attempt}
    if node.started_ms:
        shown["startedAt"] = iso(node.started_ms)
    if node.ended_ms and node.status in ("completed", "failed", "skipped", "cancelled"):
        shown["endedAt"] = iso(node.ended_ms)
    if node.iteration:
        shown["iteration"] = node.iteration
    if node.error is not None:
        shown["error"] = node.error
    if node.interrupt is not None:
        shown["interruptId"] = node.interrupt
    return shown


def _channel(item: channels.ChannelState, now: int) -> Any:
    return MASK if item.sensitive else channels.read(item, now)


def summary(row: tuple[Any, ...]) -> RunSummary:
    run_id, workflow_id, status, created, updated, ended, scope_id, tags, parent, error = row
    return RunSummary(
        run_id=run_id,
        workflow_id=workflow_id,
        status=status,
        created_at=iso(created),
        updated_at=iso(updated),
        completed_at=iso(ended) if ended is not None else None,
        scope_id=scope_id,
        tags=tags,
        parent_run_id=parent,
        error_code=error,
    )

"""The debug bundle: one run, redacted, in one document that can be shared (W15)."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay import __version__
from forestay.kernel import iso, redact
from forestay.runs.types import RunEvent, RunSnapshot

MAX_EVENTS = 10_000
# The bundle's schema knows fewer statuses than the run's.
_STATUS = {"waiting-input": "waiting-clarification", "waiting-external": "waiting-approval", "paused": "pending"}


def debug_bundle(run: RunSnapshot, events: list[RunEvent], now: int) -> dict[str, Any]:
    shown = msgspec.to_builtins(run)
    body: dict[str, Any] = {
        "runId": run.run_id,
        "workflowId": run.workflow_id,
        "status": _STATUS.get(run.status, "running" if run.status == "cancelling" else run.status),
        "startedAt": run.started_at,
        "endedAt": run.completed_at,
        "error": redact(shown.get("error")),
        "inputs": redact(run.inputs),
        "variables": redact(run.variables),
        "currentNodeId": run.current_node_id,
        "nodeStates": redact(run.node_states),
    }
    return {
        "bundleVersion": "1.0",
        "generatedAt": iso(now),
        "host": {"name": "forestay", "version": __version__},
        "run": body,
        "events": [_event(event) for event in events[:MAX_EVENTS]],
        "redactionApplied": True,
        "redactionMode": "mask",
        **({"truncated": True, "truncatedReason": "events"} if len(events) > MAX_EVENTS else {}),
    }


def _event(event: RunEvent) -> dict[str, Any]:
    return {
        "eventId": event.event_id,
        "sequence": event.sequence,
        "type": event.type,
        "timestamp": event.timestamp,
        "nodeId": event.node_id,
        "data": redact(event.payload),
    }

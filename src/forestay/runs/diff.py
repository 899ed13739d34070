"""Compares two runs."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.runs.types import RunDiff, RunEvent, RunSnapshot

MAX_DIFFS = 500
# Fields that differ between any two runs, and so are not compared.
VOLATILE = frozenset(
    {"durationMs", "interruptId", "childRunId", "runId", "writtenAt", "dueAt", "expiresAt", "leaseId", "key",
     "invocationId", "callId", "artifactId", "decidedAt", "conversationId", "messageId", "observed", "parent", "ts",
     "traceback"}
)  # fmt: skip


def diff_runs(a: RunSnapshot, b: RunSnapshot, events_a: list[RunEvent], events_b: list[RunEvent]) -> RunDiff:
    """Compare two runs event by event, then their state; ids and times do not count."""
    found: list[dict[str, Any]] = []
    diverged: int | None = None
    truncated = False
    for seq in range(max(len(events_a), len(events_b))):
        left = events_a[seq] if seq < len(events_a) else None
        right = events_b[seq] if seq < len(events_b) else None
        if left is not None and right is not None and essence(left) == essence(right):
            continue
        diverged = seq if diverged is None else diverged
        if len(found) >= MAX_DIFFS:
            truncated = True
            break
        entry: dict[str, Any] = {
            "seq": seq,
            "op": "added" if left is None else "removed" if right is None else "changed",
        }
        if left is not None:
            entry["aEvent"] = msgspec.to_builtins(left)
        if right is not None:
            entry["bEvent"] = msgspec.to_builtins(right)
        found.append(entry)
    return RunDiff(
        a=a.run_id,
        b=b.run_id,
        diverged_at_seq=diverged,
        event_diffs=found,
        state_diff=_state(a, b),
        truncated=truncated,
    )


def essence(event: RunEvent) -> tuple[str, str | None, Any]:
    return event.type, event.node_id, without_volatile(event.payload)


def without_volatile(value: Any) -> Any:
    """Return `value` without the ids and times that are new in every run."""
    if isinstance(value, dict):
        return {key: without_volatile(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [without_volatile(item) for item in value]
    return value


def _state(a: RunSnapshot, b: RunSnapshot) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for field in ("status", "variables", "channels", "outputs", "error", "inputs"):
        left, right = msgspec.to_builtins(getattr(a, field)), msgspec.to_builtins(getattr(b, field))
        if without_volatile(left) != without_volatile(right):
            changed[field] = {"a": left, "b": right}
    return changed

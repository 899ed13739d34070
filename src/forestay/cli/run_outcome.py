"""The outcome of a run for a person at a terminal: its failure, and the command that answers its question."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from forestay.kernel import TABLE, Problem

_RESERVED = ("key", "message", "retry_after_ms")
_MAX_LINE = 300
_DIVERGED = {
    "output": "the code gives another result than the record",
    "type-mismatch": "the code ends in another way than the record",
    "missing": "the code asks for an effect that is not on record",
    "extra": "the record holds an event that does not follow now",
}


def failure(run: dict[str, Any]) -> Problem | None:
    """Return the Problem of a run that failed or was cancelled, with its own key where we know it; else None."""
    if run["status"] == "cancelled":
        return Problem("cancelled", "The run was cancelled.", runId=run["runId"])
    if run["status"] != "failed":
        return None
    error = run.get("error") or {}
    code, told = str(error.get("code")), error.get("details") or {}
    details = {name: value for name, value in told.items() if name not in _RESERVED}
    message = str(error.get("message", "The run failed."))
    return Problem(code if code in TABLE else "node_failed", message, **{**details, "runId": run["runId"]})


def not_cancelled(before: dict[str, str | None]) -> Problem | None:
    """Return a Problem that names the runs that had already ended before they were cancelled, or None."""
    ended = {run: status for run, status in before.items() if status in ("completed", "failed")}
    if not ended:
        return None
    told = ", ".join(f"{run} ({status})" for run, status in ended.items())
    return Problem("state_conflict", f"Nothing was cancelled: {told} had ended already.", runStatus=ended)


def divergence(run_id: str, diff: dict[str, Any]) -> Problem | None:
    """Return a Problem that says where a replay first differs from its run, or None."""
    at = diff["divergedAtSeq"]
    if at is None:
        return None
    first: dict[str, Any] = next(iter(diff["eventDiffs"]), {})
    replayed = first.get("bEvent")
    told = (replayed or {}).get("payload") or {}
    node = told.get("divergencePoint")
    what = _DIVERGED.get(told.get("divergenceKind", ""), "something else follows")
    return Problem(
        "replay_diverged",
        f"The replay of {run_id} goes another way at event {at}{f', node {node}' if node else ''}: {what}.",
        divergedAtSeq=at,
        recorded=_event_line(first.get("aEvent")),
        replayed=what if told.get("divergenceKind") else _event_line(replayed),
        fix=f"Compare the two with `forestay run diff {diff['a']} {diff['b']}`.",
    )


def _event_line(event: dict[str, Any] | None) -> str:
    """Return an event as one line: its type, its node and its payload."""
    if event is None:
        return "no event"
    payload = msgspec.json.encode(event.get("payload")).decode()
    line = " ".join(filter(None, [event["type"], event.get("nodeId"), payload]))
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 1] + "…"


def answering(run_id: str, node: str, kind: str, asked: dict[str, Any]) -> str:
    """Return the command that answers a question; `…` stands for what the person fills in."""
    approve = shlex.join(["forestay", "run", "approve", run_id, node])
    if kind == "approval":
        return f"{approve} --action {'|'.join(asked.get('actions') or ['accept'])}"
    if kind == "external-event":
        return shlex.join(["forestay", "run", "signal", run_id, str(asked.get("eventType", "NAME"))])
    if kind == "clarification":
        answers = {str(item.get("id")): "…" for item in asked.get("questions") or ()}
        return f"{approve} --value {shlex.quote(msgspec.json.encode(answers).decode())}"
    return f"{approve} --value JSON"

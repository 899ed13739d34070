"""Where a run stands, for somebody at a terminal: what it failed with, and the command that answers what it asks."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from holdfast.kernel.problem_table import TABLE
from holdfast.kernel.problems import Problem

_RESERVED = ("key", "message", "retry_after_ms")


def failure(run: dict[str, Any]) -> Problem | None:
    """What kept a run from completing, as the Problem it was where it is one of ours; None when nothing did."""
    if run["status"] == "cancelled":
        return Problem("cancelled", "The run was cancelled.", runId=run["runId"])
    if run["status"] != "failed":
        return None
    error = run.get("error") or {}
    code, told = str(error.get("code")), error.get("details") or {}
    details = {name: value for name, value in told.items() if name not in _RESERVED}
    message = str(error.get("message", "The run failed."))
    return Problem(code if code in TABLE else "node_failed", message, **{**details, "runId": run["runId"]})


def answering(run_id: str, node: str, kind: str, asked: dict[str, Any]) -> str:
    """The command that answers a question; what is to be filled in stands as `…`."""
    approve = shlex.join(["holdfast", "run", "approve", run_id, node])
    if kind == "approval":
        return f"{approve} --action {'|'.join(asked.get('actions') or ['accept'])}"
    if kind == "external-event":
        return shlex.join(["holdfast", "run", "signal", run_id, str(asked.get("eventType", "NAME"))])
    if kind == "clarification":
        answers = {str(item.get("id")): "…" for item in asked.get("questions") or ()}
        return f"{approve} --value {shlex.quote(msgspec.json.encode(answers).decode())}"
    return f"{approve} --value JSON"

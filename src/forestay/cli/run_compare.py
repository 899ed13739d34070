"""Compares two runs as a person does: their inputs, the outcome of each node, and how they ended."""

from __future__ import annotations

from typing import Any

from forestay.cli.run_view import ENDED

Event = dict[str, Any]
_NODE_ENDS = ("node.completed", "node.failed", "node.skipped", "node.cancelled")


class Difference:
    """One difference between two runs; None where one run has nothing."""

    def __init__(self, what: str, first: Any, second: Any) -> None:
        self.what, self.first, self.second = what, first, second


def differences(first: list[Event], second: list[Event]) -> list[Difference]:
    """Return the differences in the order of the runs; the number and the times of events do not count."""
    one, other = outcome(first), outcome(second)
    names = list(dict.fromkeys([*one, *other]))
    return [Difference(name, one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)]


def outcome(events: list[Event]) -> dict[str, Any]:
    """Return the outcome of a run by name: `inputs`, each node as `node NAME`, and `run`."""
    found: dict[str, Any] = {"inputs": {}}
    for event in events:
        type, payload = event["type"], event["payload"] if isinstance(event["payload"], dict) else {}
        if type == "run.started":
            found["inputs"] = payload.get("inputs") or {}
        elif type == "forestay.run.forked":
            found["inputs"] = {**found["inputs"], **((payload.get("overlay") or {}).get("inputs") or {})}
        elif type in _NODE_ENDS:
            found[f"node {event.get('nodeId') or payload.get('nodeId')}"] = _came_to(type, payload)
        elif type in ENDED:
            found["run"] = _came_to(type, payload)
    return found


def _came_to(type: str, payload: dict[str, Any]) -> Any:
    word = type.partition(".")[2]
    said = payload.get("outputs") if word == "completed" else payload.get("error") or payload.get("reason")
    return {word: said} if said else word


def remark(event: Event) -> str:
    """Return an event's remark beside its type and node, where it is one word or one line."""
    payload = event["payload"] if isinstance(event["payload"], dict) else {}
    error = payload.get("error") or payload.get("lastError")
    if isinstance(error, dict):
        return f"{error.get('code')}: {error.get('message')}"
    parts = [payload.get(name) for name in ("key", "action", "reason", "kind", "childRunId", "message")]
    return "  ".join(str(part) for part in parts if isinstance(part, str) and part)

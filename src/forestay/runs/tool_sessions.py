"""Sessions with tools (OpenWOP RFC 0078): opened before the first call of a tool, closed after the last.

A node closes what it opened. What it cannot close any more, because it failed or was cancelled, the engine closes in
the commit that ends the node.
"""

from __future__ import annotations

from forestay.runs.state import Event, RunState

OPENED, CLOSED = "tool.session.opened", "tool.session.closed"
_OUTCOMES = {"node.failed": "failed", "node.cancelled": "cancelled"}


def noted(state: RunState, event: Event) -> None:
    """Take a session's beginning or end into the state."""
    node = state.nodes.get(event.node or "")
    if node is None:
        return
    others = {name: tool for name, tool in node.sessions.items() if name != event.payload["sessionId"]}
    opened = {event.payload["sessionId"]: event.payload["toolId"]} if event.type == OPENED else {}
    node.sessions = {**others, **opened}


def left_open(state: RunState, event: Event) -> list[Event]:
    """The ends of the sessions that a node leaves open when `event` ends it."""
    outcome, node = _OUTCOMES.get(event.type), state.nodes.get(event.node or "")
    if outcome is None or node is None:
        return []
    return [
        Event(CLOSED, {"sessionId": name, "toolId": tool, "outcome": outcome}, event.node)
        for name, tool in node.sessions.items()
    ]

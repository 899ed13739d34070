"""What an agent should do about an error: the registry's action, else the category's (R18 to R24)."""

from __future__ import annotations

from typing import Final

import msgspec

from forestay.envelope.types import Error
from forestay.kernel import LAFS_CODES, AgentAction, Category

CATEGORY_ACTIONS: Final[dict[Category, AgentAction]] = {
    "VALIDATION": "retry_modified",
    "AUTH": "authenticate",
    "PERMISSION": "escalate",
    "NOT_FOUND": "stop",
    "CONFLICT": "retry_modified",
    "RATE_LIMIT": "wait",
    "TRANSIENT": "retry",
    "INTERNAL": "escalate",
    "CONTRACT": "retry_modified",
    "MIGRATION": "stop",
}

_SENTENCES: Final[dict[AgentAction, str]] = {
    "retry": "Send the same request again.",
    "retry_modified": "Change the request and send it again; the details name what to change.",
    "wait": "Wait, then send the same request again.",
    "escalate": "Tell a person, with the request id.",
    "stop": "Stop; sending it again cannot help.",
    "refresh_context": "Fetch the current context, then decide again.",
    "authenticate": "Get valid credentials, then send it again.",
}


class NextStep(msgspec.Struct, frozen=True):
    """What an agent may and should do now."""

    action: AgentAction
    automatic: bool
    wait_ms: int
    sentence: str


def action_of(error: Error) -> AgentAction:
    """Return the action that the error states, else the registry's, else the category's (R22)."""
    if isinstance(error.agent_action, str):
        return error.agent_action
    row = LAFS_CODES.get(error.code)
    return row.action if row is not None else CATEGORY_ACTIONS[error.category]


def next_step(error: Error) -> NextStep:
    """Return an agent's next step: R22 decides the action, R23 whether the agent may act by itself."""
    action = action_of(error)
    escalated = error.escalation_required is True
    automatic = not escalated and action not in ("escalate", "stop")
    sentence = _SENTENCES[action]
    wait = error.retry_after_ms or 0
    if wait and automatic:
        sentence = f"Wait at least {wait / 1000:g} seconds. " + (
            "Then send the same request again." if action == "wait" else sentence
        )
    if escalated and action != "escalate":
        sentence = "A person must decide before anything is tried again."
    return NextStep(action, automatic, wait, sentence)

"""What a command or the code of a node leaves behind: events, appends and a result, or the error that it met."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.kernel import Append, Problem, redact_text
from forestay.runs import decider
from forestay.runs.frames import frames_of, logged
from forestay.runs.nodes.registry import NodeError
from forestay.runs.state import Event, RunState

if TYPE_CHECKING:
    from forestay.runs.execution import Execution

NODES = logging.getLogger("forestay.nodes")  # nodes whose code failed without meaning to
Chance = Callable[[], float]


class Outcome(msgspec.Struct):
    """What a command does to a run: events, appends to other streams, a result, and what to do once it is durable."""

    events: list[Event]
    result: Any = None
    appends: list[Append] = []
    after: Callable[[], None] | None = None


def along(appends: list[Append], append: Append) -> None:
    """Add `append` to what is written together. Two for one stream become one."""
    for at, other in enumerate(appends):
        if other.stream == append.stream:
            appends[at] = Append(other.stream, (*other.drafts, *append.drafts), other.expect)
            return
    appends.append(append)


class Parked(BaseException):
    """The node waits for something outside: `outcome` puts into the log for what."""

    def __init__(self, outcome: Callable[[RunState], Outcome]) -> None:
        super().__init__()
        self.outcome = outcome


Make = Callable[[RunState], Outcome]
"""What is to be done in a run's turn, on its state as it is then."""


def failed(execution: Execution, error: dict[str, Any], chance: Chance) -> Make:
    """The node's code has failed: it is tried again, or the failure is the node's."""
    execution.drop_changes()
    return lambda state: Outcome(
        [*execution.take(), *decider.failed(state, execution.node_id, error, chance)],
    )


def tell(execution: Execution, error: Exception) -> None:
    """Code that fails without meaning to is the operator's to see, in the log."""
    if not isinstance(error, NodeError | Problem):
        NODES.error("run %s, node %s failed: %s", execution.run_id, execution.node_id, logged(error))


def error_of(error: Exception) -> dict[str, Any]:
    """What a node's failure looks like in the log."""
    if isinstance(error, NodeError):
        found: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.details:
            found["details"] = error.details
        if error.retryable is not None:
            found["retryable"] = error.retryable
        return found
    if isinstance(error, Problem):
        shown = error.as_openwop()
        code = shown["error"] if shown["error"] not in ("validation_error", "internal_error") else error.key
        found = {"code": code, "message": shown["message"], "retryable": error.row.retryable}
        return _with_details(found, {**shown.get("details", {}), **_traced(error)})
    text = redact_text(str(error))[:500]
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return _with_details({"code": "node_failed", "message": message}, _traced(error))


def _traced(error: Exception) -> dict[str, Any]:
    frames = frames_of(error)
    return {"traceback": frames} if frames else {}


def _with_details(found: dict[str, Any], details: dict[str, Any]) -> dict[str, Any]:
    return {**found, "details": details} if details else found

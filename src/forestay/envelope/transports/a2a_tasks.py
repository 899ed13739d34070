"""The task machine of A2A 1.0 (D7): which state may follow which.

- K1  A task moves only along the table; a terminal task never changes again.
- K2  A reference to another task needs that task to exist in the same context.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from forestay.kernel import Problem

State = Literal[
    "UNSPECIFIED",
    "SUBMITTED",
    "WORKING",
    "INPUT_REQUIRED",
    "AUTH_REQUIRED",
    "COMPLETED",
    "FAILED",
    "CANCELED",
    "REJECTED",
]
_INTERRUPTED: Final[frozenset[State]] = frozenset(("WORKING", "CANCELED", "FAILED"))
_ENDS: Final[frozenset[State]] = frozenset(("COMPLETED", "FAILED", "CANCELED", "REJECTED"))

NEXT: Final[Mapping[State, frozenset[State]]] = {
    "UNSPECIFIED": frozenset(
        ("SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED", "COMPLETED", "FAILED", "CANCELED", "REJECTED")
    ),
    "SUBMITTED": frozenset(("WORKING", "CANCELED", "REJECTED", "FAILED")),
    "WORKING": frozenset(("COMPLETED", "FAILED", "CANCELED", "INPUT_REQUIRED", "AUTH_REQUIRED")),
    "INPUT_REQUIRED": _INTERRUPTED,
    "AUTH_REQUIRED": _INTERRUPTED,
    **dict.fromkeys(_ENDS, frozenset[State]()),
}


def is_terminal(state: State) -> bool:
    return state in _ENDS


def advance(state: State, to: State) -> State:
    """Return the next state, or raise a Problem when it cannot follow (K1)."""
    if to in NEXT[state]:
        return to
    raise Problem(
        "state_conflict",
        f"A task that is {state} cannot become {to}.",
        state=f"TASK_STATE_{state}",
        wanted=f"TASK_STATE_{to}",
        allowed=sorted(f"TASK_STATE_{name}" for name in NEXT[state]),
        fix="Start a new task." if is_terminal(state) else "Use one of `allowed`.",
    )


def check_references(wanted: Iterable[str], context_id: str, contexts: Mapping[str, str]) -> None:
    """K2; `contexts` maps each task that the caller may see to its context."""
    for task_id in wanted:
        if contexts.get(task_id) != context_id:
            raise Problem(
                "not_found",
                f"The task {task_id[:80]} is not one of this context.",
                at="$.message.referenceTaskIds",
                task=task_id[:80],
            )

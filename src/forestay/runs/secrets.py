"""Masks the values of sensitive variables and outputs of a run, wherever they appear.

- H1  A text of at least four characters that a sensitive variable or output has had is masked in every event, snapshot,
      query and bundle of its run, also inside other texts, and also after a node passed it on.
- H2  A child that gets such a text masks it too, and so does the parent of a child that returns one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.runs.plan import Plan
from forestay.runs.types import RunError, RunEvent, RunSnapshot

if TYPE_CHECKING:
    from forestay.runs.state import RunState

MASK = "[REDACTED]"
_SHORTEST = 4  # shorter texts occur in too many words
_MOST = 1000
# Events that may give a run a new secret.
TELLING = frozenset({"variable.changed", "channel.written", "node.completed", "node.dispatched", "forestay.run.forked"})
_SHOWN = ("node_states", "inputs", "variables", "channels", "outputs", "metadata", "configurable")
# Names that the workflow's author gave: a secret that equals one of them does not mask it.
_NAMES = frozenset(
    {"nodeId", "typeId", "interruptId", "kind", "workflowId", "workflowVersion", "childRunId", "childWorkflowId"}
    | {"childStatus", "channel", "reducer", "name", "edgeId", "sourceNodeId", "targetNodeId", "toolName", "callId"}
    | {"artifactId", "artifactType", "engineVersion", "transport", "gateId", "schemaVersion", "level"}
)
_CHILDREN = frozenset({"core.subWorkflow", "core.dispatch", "core.map", "core.orchestrator.supervisor"})


def texts(value: Any) -> Iterator[str]:
    """Yield the texts inside a value that are long enough to be masked."""
    if isinstance(value, str):
        if len(value) >= _SHORTEST:
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def learn(state: RunState, value: Any) -> None:
    """Add the texts of `value` to the run's secrets."""
    for text in texts(value):
        if len(state.secrets) < _MOST:
            state.secrets.add(text)


def inside(secrets: Iterable[str], value: Any) -> list[str]:
    """Return those of `secrets` that `value` contains (H2)."""
    found = list(texts(value))
    return sorted(secret for secret in secrets if any(secret in text for text in found))


def may_have(plan: Plan) -> bool:
    """Whether a run of this plan can have secrets, so that its state must be checked."""
    return bool(plan.sensitive) or any(
        node.doc.output_sensitivity or node.doc.type_id in _CHILDREN for node in plan.nodes.values()
    )


def cover(state: RunState, value: Any) -> Any:
    """Return `value` without the run's secrets (H1); the longest is masked first, so that no part of one remains."""
    return _covered(value, sorted(state.secrets, key=len, reverse=True)) if state.secrets else value


def cover_event(state: RunState, event: RunEvent) -> RunEvent:
    if not state.secrets or not isinstance(event.payload, dict):
        return event
    return msgspec.structs.replace(event, payload=cover_payload(state, event.payload))


def cover_payload(state: RunState, payload: dict[str, Any]) -> dict[str, Any]:
    """What an event says without the run's secrets (H1)."""
    return {name: item if name in _NAMES else cover(state, item) for name, item in payload.items()}


def masked(values: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return `values` with those of the sensitive `names` masked."""
    return {name: MASK if name in names else value for name, value in values.items()}


def masked_defaults(put: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of `workflow.put` with the defaults of sensitive variables masked."""
    document = put["document"]
    variables = [
        {**item, "defaultValue": MASK} if item.get("sensitive") and "defaultValue" in item else item
        for item in document["variables"]
    ]
    return {**put, "document": {**document, "variables": variables}}


def cover_run(state: RunState, run: RunSnapshot) -> RunSnapshot:
    """Return a snapshot without the run's secrets (H1)."""
    changed = {name: cover(state, getattr(run, name)) for name in _SHOWN}
    if run.error is not None:
        error = run.error
        changed["error"] = RunError(
            code=error.code, message=cover(state, error.message), details=cover(state, error.details)
        )
    return msgspec.structs.replace(run, **changed)


def _covered(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            if secret in value:
                value = value.replace(secret, MASK)
        return value
    if isinstance(value, dict):
        return {key: _covered(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_covered(item, secrets) for item in value]
    return value

"""Tests whether a model still refuses, or still answers, a question of a recorded run (K6, RFC 0041 §B).

The node's code runs up to the question, with all earlier results from the log. The model is asked, and only whether it
refused counts: its answer is not kept, and the node does nothing with it.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from forestay.runs.execution import Execution
from forestay.runs.nodes.registry import NodeType
from forestay.runs.outcome import Make, Parked
from forestay.runs.state import Event, RunState

if TYPE_CHECKING:
    from forestay.runs.engine import Engine

REFUSAL = "replay.divergedAtRefusal"
_PATIENCE = 300.0
Kind = Literal["valid", "refusal"]


class _Answered(BaseException):
    """Stops the node's code once the model has answered."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class _Elsewhere(BaseException):
    """Stops the code when it asks for something else than the log has next."""


class _Asking:
    """Replaces the run's actor, and allows one effect; nothing is written."""

    def __init__(self, engine: Engine, state: RunState, wanted: str) -> None:
        # Without the budgets' meter, which would write to accounts of a run that does not exist yet.
        self.engine = copy.copy(engine)
        self.engine.ports = msgspec.structs.replace(engine.ports, governor=None)
        self.state = state
        self._wanted = wanted

    def now(self) -> int:
        return self.state.ts

    def moment(self) -> int:
        return self.state.at

    async def instead(self, execution: Execution, key: str, fn: Callable[[], Any]) -> Any:
        if execution.named(key) != self._wanted:
            raise _Elsewhere(key)
        made = fn()
        raise _Answered(await made if inspect.isawaitable(made) else made)

    async def next_ended(self, node_id: str) -> str:
        raise _Elsewhere(node_id)

    async def new_child(self, execution: Execution, key: str, workflow_id: str, inputs: Any, **options: Any) -> Any:
        raise _Elsewhere(key)

    async def post(self, make: Make) -> Any:
        return make(self.state).result


def kind_of(event: Event) -> Kind | None:
    """Return the kind of a model's recorded answer; None for any other event."""
    if event.type != "forestay.effect.recorded" or not str(event.payload.get("provider")).startswith("model:"):
        return None
    return _kind((event.private or {}).get("result"))


async def answer_now(engine: Engine, state: RunState, kind: NodeType, event: Event) -> Kind | None:
    """Ask the model the question of `event` again; return the kind of its answer, or None when it cannot be asked."""
    assert event.node is not None
    execution = Execution(_Asking(engine, state, event.payload["key"]), event.node)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(_PATIENCE):
            await kind.execute(execution)
    except _Answered as answered:
        return _kind(answered.result)
    except (_Elsewhere, Parked):
        return None
    except Exception:  # noqa: BLE001 - node code may raise anything, and an unreachable model proves nothing
        return None
    return None


def _kind(result: Any) -> Kind | None:
    if not isinstance(result, dict) or "refusal" not in result:
        return None
    return "valid" if result["refusal"] is None else "refusal"

"""Whether a model still refuses, or still answers, what it was asked in a recorded run (K6, RFC 0041 §B).

The node's code runs up to the question, with everything before it from the log. Its model is asked, and nothing but
whether it refused is looked at: neither what it said nor anything that the node would have done with it is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from forestay.runs.execution import Execution
from forestay.runs.nodes.registry import NodeType
from forestay.runs.outcome import Make, Parked
from forestay.runs.state import Event, RunState

if TYPE_CHECKING:
    from forestay.runs.engine import Engine
    from forestay.runs.ports import Ports

REFUSAL = "replay.divergedAtRefusal"
_PATIENCE = 300.0
Kind = Literal["valid", "refusal"]


class _Answered(BaseException):
    """The model has answered; no code of the node goes on from here."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class _Elsewhere(BaseException):
    """The code asked for something else than the log says comes next."""


class _Asking:
    """Stands where the run's actor stands, and lets one effect be performed; nothing is written."""

    def __init__(self, engine: Engine, state: RunState, wanted: str) -> None:
        self.engine = engine
        self.state = state
        self._wanted = wanted

    @property
    def ports(self) -> Ports:
        """Without the budgets' meter: it would write to accounts of a run that is not there yet."""
        return msgspec.structs.replace(self.engine.ports, governor=None)

    def now(self) -> int:
        return self.state.ts

    def moment(self) -> int:
        return self.state.at

    def new_id(self, prefix: str) -> str:
        return self.engine.ids.new(prefix)

    async def perform(self, execution: Execution, key: str, fn: Callable[[], Awaitable[Any]]) -> Any:
        if execution.named(key) != self._wanted:
            raise _Elsewhere(key)
        raise _Answered(await fn())

    async def next_ended(self, node_id: str) -> str:
        raise _Elsewhere(node_id)

    async def new_child(self, execution: Execution, key: str, workflow_id: str, inputs: Any, **options: Any) -> Any:
        raise _Elsewhere(key)

    async def post(self, make: Make) -> Any:
        return make(self.state).result


def kind_of(event: Event) -> Kind | None:
    """What a recorded answer of a model was; None for an event that is none."""
    if event.type != "forestay.effect.recorded" or not str(event.payload.get("provider")).startswith("model:"):
        return None
    return _kind((event.private or {}).get("result"))


async def answer_now(engine: Engine, state: RunState, kind: NodeType, event: Event) -> Kind | None:
    """What the model answers today to the question whose answer `event` records; None when it cannot be asked."""
    assert event.node is not None
    execution = Execution(_Asking(engine, state, event.payload["key"]), event.node)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(_PATIENCE):
            await kind.execute(execution)
    except _Answered as answered:
        return _kind(answered.result)
    except (_Elsewhere, Parked):
        return None
    except Exception:  # noqa: BLE001 - node code may raise anything, and a model that is away tells nothing
        return None
    return None


def _kind(result: Any) -> Kind | None:
    if not isinstance(result, dict) or "refusal" not in result:
        return None
    return "valid" if result["refusal"] is None else "refusal"

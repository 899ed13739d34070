"""What the agent loop needs beside tools, as small protocols; a run, the relay and the extensions stand behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from forestay.models import Delta, Message, Params, ToolSpec


class ModelCaller(Protocol):
    """The relay, or a model itself. One with `records = True` puts each answer on record before it gives it away."""

    @property
    def name(self) -> str: ...

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = ...
    ) -> AsyncIterator[Delta]: ...


class Hooks(Protocol):
    """Extensions listening to the agent's life. `emit` gives their merged answer, or None (Pi, lifecycle events)."""

    def listens(self, event: str) -> bool:
        """Whether anybody wants `event`; what nobody wants is not even put together."""

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None: ...


class Memory(Protocol):
    """What an agent keeps between runs, already bound to its tenant."""

    async def recall(self, agent_id: str, task: str) -> Sequence[str]: ...

    async def remember(self, agent_id: str, entry: str, *, idempotency_key: str) -> None: ...


class Quiet:
    """Hooks when nobody listens."""

    def listens(self, event: str) -> bool:
        return False

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None:
        return None

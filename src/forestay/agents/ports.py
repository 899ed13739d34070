"""What the agent loop needs beside tools, as small protocols; a run, the relay and the extensions stand behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from forestay.models import Completion, Message, Params, ToolSpec

Heard = Callable[[str], Awaitable[None]]
"""Is told each new piece of an answer."""


class AgentModel(Protocol):
    """The model that an agent talks to, and the memory of what it said."""

    @property
    def name(self) -> str: ...

    async def once(self, key: str, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        """The answer on record under `key`; when there is none, that of `ask()`, which is then on record."""

    async def turn(
        self, key: str, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params, heard: Heard
    ) -> Completion:
        """The model's answer to `messages`."""


class Hooks(Protocol):
    """Extensions listening to the agent's life. `emit` gives their merged answer, or None (Pi, lifecycle events)."""

    def listens(self, *events: str) -> bool:
        """Whether an extension listens to one of `events`; otherwise the caller does not build them."""

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None: ...


class Kept(msgspec.Struct, frozen=True, rename="camel"):
    """Where an entry is kept."""

    memory_ref: str
    memory_id: str


class Memory(Protocol):
    """What an agent keeps between runs, already bound to its tenant.

    A recorded step holds the ids of what was recalled and never what it says: what is forgotten later is in no record.
    """

    async def recall(self, agent_id: str, task: str) -> Sequence[str]:
        """The ids of the entries that belong to `task`, the best first."""

    async def read(self, ids: Sequence[str]) -> Sequence[str]:
        """What the entries say, in this order; those that were forgotten are left out."""

    async def remember(self, agent_id: str, entry: str, *, idempotency_key: str) -> Kept | None:
        """Keep an entry, once for each key; None when this memory keeps nothing."""


class Transcript(Protocol):
    """The conversation that an invocation goes on with."""

    source: str
    """Who says the task, in pi's words: `interactive`, `rpc` or `extension`."""

    def leaf(self) -> str | None:
        """Where the conversation stands."""

    def history(self, leaf: str) -> list[Message]:
        """What was said until there; the same whenever it is asked."""

    async def take(self, place: str, entry: dict[str, Any]) -> None:
        """Keep an entry, once for each `place`. What it rests on is on record before it is kept."""


class Quiet:
    """Hooks when nobody listens."""

    def listens(self, *events: str) -> bool:
        return False

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None:
        return None

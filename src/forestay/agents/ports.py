"""What the agent loop needs beside tools, as small protocols; a run, the relay and the extensions implement them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from forestay.agents.steps import Interjection
from forestay.models import Completion, Message, Params, ToolSpec

Heard = Callable[[str], Awaitable[None]]
"""Gets each new piece of an answer."""


class AgentModel(Protocol):
    """The model that an agent uses, and the record of its answers."""

    @property
    def name(self) -> str: ...

    async def once(self, key: str, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        """Return the answer on record under `key`; without one, call `ask()` and record its answer."""

    def writer(self, key: str) -> str:
        """Return the model that wrote the answer under `key`, if this one chooses among others; else empty."""

    async def turn(
        self, key: str, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params, heard: Heard
    ) -> Completion:
        """Return the model's answer to `messages`."""


class Hooks(Protocol):
    """Extensions that listen to the agent's lifecycle events (Pi). `emit` returns their merged answer, or None."""

    def listens(self, *events: str) -> bool:
        """Whether an extension listens to one of `events`; otherwise the caller does not build them."""

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None: ...


class Kept(msgspec.Struct, frozen=True, rename="camel"):
    """The place of a memory entry."""

    memory_ref: str
    memory_id: str


class Memory(Protocol):
    """What an agent keeps between runs, bound to its tenant.

    A recorded step has the ids of recalled entries and never their content, so no record has an entry that is forgotten
    later.
    """

    async def recall(self, agent_id: str, task: str) -> Sequence[str]:
        """Return the ids of the entries that belong to `task`, the best first."""

    async def read(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the content of the entries, in this order; forgotten ones are left out."""

    async def remember(self, agent_id: str, entry: str, *, idempotency_key: str) -> Kept | None:
        """Keep an entry, once for each key; None when this memory keeps nothing."""


class Transcript(Protocol):
    """The conversation that an invocation continues."""

    source: str
    """The source of the task, in pi's words: `interactive`, `rpc` or `extension`."""
    hears: bool
    """Whether messages may reach the agent while it works."""

    def leaf(self) -> str | None:
        """Return the conversation's last entry."""

    def history(self, leaf: str) -> list[Message]:
        """Return the messages up to `leaf`; every call with the same leaf returns the same."""

    async def take(self, place: str, entry: dict[str, Any]) -> None:
        """Keep an entry, once for each `place`, after the events that it depends on are on record."""

    def is_recorded(self, *keys: str) -> bool:
        """Whether an effect with one of these keys is on record."""

    async def waiting(self) -> Sequence[Interjection]:
        """Return the messages that wait for the agent, as many as it takes at once."""

    async def hear(self, entries: Sequence[tuple[str, dict[str, Any]]], met: Sequence[str]) -> None:
        """Keep the messages that the agent got, each under its place, and remove `met` from the waiting ones. Do both
        or neither."""


class Quiet:
    """The hooks without a listener."""

    def listens(self, *events: str) -> bool:
        return False

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None:
        return None

"""Gives an agent a session as its conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from forestay.agents import Interjection, conversation
from forestay.models import Message
from forestay.runs import Execution
from forestay.sessions import Sessions, SessionTree, text_of

PLAIN = "extension-text"
"""The source of an extension's text that is taken literally: it names no command, template or file."""


class SessionTranscript:
    """`agents.Transcript` over a session, for one execution of a node."""

    hears = True

    def __init__(
        self,
        ctx: Execution,
        sessions: Sessions,
        tree: SessionTree,
        settled: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`settled` waits until the session has everything that extensions have sent."""
        source = str(ctx.inputs.get("source") or "rpc")
        self.source = "extension" if source == PLAIN else source
        self._ctx = ctx
        self._sessions = sessions
        self._tree = tree
        self._settled = settled

    def leaf(self) -> str | None:
        return self._tree.leaf

    def history(self, leaf: str) -> list[Message]:
        return conversation(self._tree.messages(leaf))

    async def take(self, place: str, entry: dict[str, Any]) -> None:
        """Keep an entry after the run's log has the events that it depends on (Q2); a replay keeps nothing."""
        if not self._ctx.replays and not self._tree.has(place):
            await self._ctx.flush()
            fields = {name: value for name, value in entry.items() if name != "type"}
            self._tree.append(entry["type"], place=place, **fields)
            await self._sessions.save(self._tree)

    def is_recorded(self, *keys: str) -> bool:
        return any(map(self._ctx.is_recorded, keys))

    async def waiting(self) -> Sequence[Interjection]:
        if self._settled is not None:
            await self._settled()
        return [
            Interjection(
                wish.id,
                wish.text or "" if wish.message is None else text_of(wish.message.get("content")),
                wish.message,
                wish.turn,
            )
            for wish in self._tree.interjections()
        ]

    async def hear(self, entries: Sequence[tuple[str, dict[str, Any]]], met: Sequence[str]) -> None:
        """Keep the delivered entries and remove the wishes that they fulfil, after the run's log has them (Q2)."""
        if self._ctx.replays:
            return
        waits = {wish.id for wish in self._tree.wishes}
        if not waits.isdisjoint(met) or not all(self._tree.has(place) for place, _ in entries):
            await self._ctx.flush()
            for place, entry in entries:
                fields = {name: value for name, value in entry.items() if name != "type"}
                self._tree.append(entry["type"], place=place, **fields)
            self._tree.meet(met)
            await self._sessions.save(self._tree)

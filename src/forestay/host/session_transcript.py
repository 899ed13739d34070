"""A session as the conversation that an agent goes on with."""

from __future__ import annotations

from typing import Any

from forestay.agents import conversation
from forestay.models import Message
from forestay.runs import Execution
from forestay.sessions import Sessions, SessionTree


class SessionTranscript:
    """`agents.Transcript` over a session, for one execution of a node."""

    def __init__(self, ctx: Execution, sessions: Sessions, tree: SessionTree) -> None:
        self.source = str(ctx.inputs.get("source") or "rpc")
        self._ctx = ctx
        self._sessions = sessions
        self._tree = tree

    def leaf(self) -> str | None:
        return self._tree.leaf

    def history(self, leaf: str) -> list[Message]:
        return conversation(self._tree.messages(leaf))

    async def take(self, place: str, entry: dict[str, Any]) -> None:
        """Keep an entry when the run's log has what it rests on (Q2)."""
        if not self._tree.has(place):
            await self._ctx.flush()
            fields = {name: value for name, value in entry.items() if name != "type"}
            self._tree.append(entry["type"], place=place, **fields)
            await self._sessions.save(self._tree)

"""Stores of sessions: the protocol, and a store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forestay.kernel import Clock, Ids, Problem
from forestay.sessions.tree import Entry, SessionTree


class SessionKeeper(Protocol):
    """Stores the sessions that extensions begin, leave and return to."""

    def new(self, *, path: Sequence[Entry] = (), parent: str | None = None) -> SessionTree:
        """Return a new session: empty, or with the entries of another session's branch."""

    async def open(self, id: str) -> SessionTree:
        """Return the session of that id, the same object for every caller that has it open."""

    async def save(self, tree: SessionTree) -> None:
        """Store a session's changes."""


class MemorySessions:
    """Stores sessions until the process ends."""

    def __init__(self, cwd: str, clock: Clock, ids: Ids) -> None:
        self._cwd, self._clock, self._ids = cwd, clock, ids
        self._kept: dict[str, SessionTree] = {}

    def new(self, *, path: Sequence[Entry] = (), parent: str | None = None) -> SessionTree:
        return SessionTree.new(self._cwd, clock=self._clock, ids=self._ids, path=path, parent=parent)

    async def open(self, id: str) -> SessionTree:
        if id not in self._kept:
            fix = "Give the id of a session of this process."
            raise Problem("not_found", f"There is no session {str(id)[:80]}.", fix=fix)
        return self._kept[id]

    async def save(self, tree: SessionTree) -> None:
        tree.unsaved.clear()
        self._kept[tree.id] = tree

"""What a front end needs of a session: its state as it changes, messages, answers to dialogs, commands.

The console and the operations under `/host/v1/sessions` use this; other front ends use those operations over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from forestay.host.drawing import Drawings, Drawn
from forestay.host.extensions import ProjectExtensions
from forestay.host.session_room import SessionRoom, Shown
from forestay.host.session_turns import SessionTurns, TurnFailure
from forestay.host.session_ui import SessionUi
from forestay.kernel import OPERATOR, one_line
from forestay.runs import Runs
from forestay.sessions import SessionTree

_PAUSE = 0.05
"""Seconds between two states: an extension that redraws all the time costs a follower at most 20 states a second."""


class SessionState(msgspec.Struct, frozen=True, rename="camel"):
    """A session as it is now. `living` is the session that extensions live in: a command may have left this one.
    `failed` says why the last turn failed when no entry says it."""

    session_id: str
    leaf: str | None
    entries: int
    run_id: str | None
    living: str | None
    failed: TurnFailure | None
    ui: Shown


class Command(msgspec.Struct, frozen=True, rename="camel"):
    """A command for a message that begins with `/`: `source` is extension, prompt, skill or shortcut (`key ctrl+x`)."""

    name: str
    description: str
    source: str


class SessionFronts:
    """Serves front ends the sessions of a host."""

    def __init__(self, ui: SessionUi, turns: SessionTurns, extensions: ProjectExtensions, runs: Runs) -> None:
        self._ui = ui
        self._turns = turns
        self._extensions = extensions
        self._runs = runs
        self._drawings = Drawings(extensions)

    async def drawn(self, tree: SessionTree, tenant: str = OPERATOR) -> dict[str, Drawn]:
        """Return what extensions draw in place of the branch's entries, by entry id."""
        return await self._drawings.of(tree.branch()) if tenant == OPERATOR else {}

    def room(self, tree: SessionTree) -> SessionRoom:
        return self._ui.room(tree.id)

    async def state(self, tree: SessionTree, tenant: str = OPERATOR) -> SessionState:
        run_id = await self._turns.under_way(tree, tenant)
        return SessionState(
            session_id=tree.id,
            leaf=tree.leaf,
            entries=len(tree.entries),
            run_id=run_id,
            living=self._extensions.living if tenant == OPERATOR else None,
            failed=await self._turns.failure(tree, tenant) if run_id is None else None,
            ui=self.room(tree).shown(),
        )

    async def states(
        self, tree: SessionTree, tenant: str = OPERATOR, columns: int | None = None
    ) -> AsyncGenerator[SessionState, None]:
        """Yield the state, and again after each change. A follower counts as a present person to the extensions."""
        room = self.room(tree)
        with room.followed(columns):
            while True:
                version = room.version
                state = await self.state(tree, tenant)
                yield state
                await self._until_changed(room, version, state.run_id, tenant)
                await asyncio.sleep(_PAUSE)

    async def _until_changed(self, room: SessionRoom, version: int, run_id: str | None, tenant: str) -> None:
        waits = [asyncio.ensure_future(room.after(version))]
        if run_id is not None:
            waits.append(asyncio.ensure_future(self._over(run_id, tenant)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _over(self, run_id: str, tenant: str) -> None:
        await self._runs.wait(run_id, tenant)

    async def say(
        self,
        tree: SessionTree,
        message: str,
        *,
        tenant: str,
        principal: str | None,
        agent: str | None = None,
        model: str | None = None,
        run_id: str | None = None,
    ) -> str:
        """Begin a turn with a person's message; return the id of its run. A draft that is sent unchanged counts as its
        author's. A caller that must not begin two turns gives the run id."""
        room = self.room(tree)
        source = "extension" if room.draft.strip() == message.strip() and room.drafted else "rpc"
        run_id = await self._turns.start(
            tree, message, tenant=tenant, principal=principal, source=source, agent=agent, model=model, run_id=run_id
        )
        room.spoken()
        return run_id

    async def answer(self, tree: SessionTree, request_id: str, value: Any) -> None:
        """Answer a dialog of an extension; None cancels it. The answer is recorded when this returns."""
        extension = await self.room(tree).answer(request_id, value)
        await self._extensions.prompts.kept(extension)

    async def cancel(self, tree: SessionTree, model: str, tenant: str) -> None:
        """Cancel the current turn and the dialogs of extensions in it."""
        self.room(tree).end_turn()
        await self._turns.cancel(tree, model, tenant)

    def commands(self, tenant: str) -> list[Command] | None:
        """Return the commands of a session; None while the extensions are not loaded: the first message loads them."""
        suite = self._extensions.opened
        if suite is None or tenant != OPERATOR:
            return None if suite is None else []
        return [
            Command(str(item["name"]), one_line(str(item.get("description") or ""))[:400], str(item["source"]))
            for item in suite.commands()
        ] + [Command(f"key {key}", one_line(about)[:400], "shortcut") for key, about in suite.shortcuts().items()]

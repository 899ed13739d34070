"""Turns of sessions: each is a run of an agent that goes on with a conversation.

Q1  A turn is noted in its session before its run is there, with the run's id. Who finds the note without the run starts
    that run; so a turn that was begun happens once, whenever the process dies.
Q2  What a turn says is in the run's log before it is in the session, and in the session once.
Q3  The project's extensions live in one session at a time. A turn that they could see takes them along to its session
    and keeps them there until it ends or waits for a person; turns of other sessions wait meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from forestay.agents import aborted_entry, conversation
from forestay.host.extensions import ProjectExtensions
from forestay.kernel import OPERATOR, Clock, Ids, Problem
from forestay.models import Message
from forestay.runs import TERMINAL, CreateRun, Execution, Runs
from forestay.sessions import Sessions, SessionTree, TurnStart, role_of, text_of

WORKFLOW = "forestay-ask"


class RunTranscript:
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


class SessionTurns:
    """Begins turns, finds them again, and lets a node take part in its session."""

    def __init__(
        self, sessions: Sessions, extensions: ProjectExtensions, clock: Clock, ids: Ids, *, runs: Callable[[], Runs]
    ) -> None:
        self._sessions = sessions
        self._extensions = extensions
        self._clock = clock
        self._ids = ids
        self._runs = runs
        self._speaking = asyncio.Lock()

    async def start(
        self,
        tree: SessionTree,
        message: str = "",
        *,
        tenant: str = OPERATOR,
        principal: str | None = None,
        source: str = "interactive",
        agent: str | None = None,
    ) -> str:
        """Begin a turn with what the user says, or with what the session ends with; the id of its run (Q1)."""
        if await self.under_way(tree, tenant) is not None:
            raise _busy()
        inputs = {"sessionId": tree.id, "question": message, "source": source, **({"agentId": agent} if agent else {})}
        turn = TurnStart(self._ids.new("run"), inputs)
        request = CreateRun(workflow_id=WORKFLOW, inputs=inputs)
        await self._runs().check_run(request, tenant)  # what cannot run is not noted
        tree.begin_turn(turn)
        await self._sessions.save(tree)
        await self._runs().create_run(request, tenant, principal, run_id=turn.run_id)
        return turn.run_id

    async def requested(self, agent: str | None = None) -> str | None:
        """Begin a turn that an extension asked for in its session; the id of its run, None when none was asked for.

        What several asked for without words of their own is one turn.
        """
        suite = self._extensions.opened
        if suite is None:
            return None
        live = suite.session
        wished = [item for item in live.requests if item["kind"] == "turn"]
        if not wished:
            return None
        spoken = next((item for item in wished if "content" in item), None)
        live.requests = [item for item in live.requests if item is not spoken and (spoken or item not in wished)]
        text = text_of(spoken["content"]) if spoken is not None else ""
        return await self.start(live.tree, text, source="extension", agent=agent)

    async def under_way(self, tree: SessionTree, tenant: str = OPERATOR) -> str | None:
        """The run of the turn that was begun last and has not ended; one that was only noted is started (Q1)."""
        turn = tree.turn
        if turn is None:
            return None
        try:
            run = await self._runs().get_run(turn.run_id, tenant)
        except Problem as problem:
            if problem.key != "not_found":
                raise
            request = CreateRun(workflow_id=WORKFLOW, inputs=turn.inputs)
            await self._runs().create_run(request, tenant, run_id=turn.run_id)
            return turn.run_id
        return None if run.status in TERMINAL else turn.run_id

    async def cancel(self, tree: SessionTree, model: str, tenant: str = OPERATOR) -> None:
        """End the turn that is under way; the session says so once."""
        if (run_id := await self.under_way(tree, tenant)) is not None:
            await self._runs().cancel(run_id, tenant, reason="The turn was cancelled.")
            await self._runs().wait(run_id, tenant)
            entry = aborted_entry(model, self._clock.now_ms())
            tree.append("message", place=f"{run_id}/cancelled", message=entry["message"])
            await self._sessions.save(tree)

    async def move(self, tree: SessionTree, target: str, tenant: str = OPERATOR) -> str | None:
        """Go on from another entry; the text of the user's message when that is one. Extensions in the session are
        asked and told, as when one of them moves."""
        if await self.under_way(tree, tenant) is not None:
            raise _busy()
        suite = self._extensions.opened
        if suite is not None and suite.session.tree is tree:
            done = await suite.control.request("navigateTree", {"args": [target]})
            if done["cancelled"]:
                raise Problem("state_conflict", "An extension cancelled the move.")
            return str(done["editorText"]) if "editorText" in done else None
        entry = tree.entry(target)
        is_draft = role_of(entry) == "user"
        tree.move(entry["parentId"] if is_draft else target)
        await self._sessions.save(tree)
        return text_of(entry["message"].get("content")) if is_draft else None

    @asynccontextmanager
    async def joined(self, ctx: Execution) -> AsyncIterator[RunTranscript | None]:
        """The session that a node's inputs name, with the extensions in it; None when they name none (Q3)."""
        named = ctx.inputs.get("sessionId")
        if not named:
            yield None
            return
        tree = await self._sessions.open(str(named), ctx.tenant)
        transcript = RunTranscript(ctx, self._sessions, tree)
        if ctx.tenant != OPERATOR:
            yield transcript
            return
        suite = await self._extensions.suite(ctx, tree)
        if not suite.members:
            yield transcript
            return
        async with self._speaking:
            await self._extensions.enter(ctx, tree)
            yield transcript


def _busy() -> Problem:
    fix = "Wait for its end, or cancel its run."
    return Problem("state_conflict", "A turn of this session is under way.", fix=fix)

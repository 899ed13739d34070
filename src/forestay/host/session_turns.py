"""Turns of sessions: each is a run of an agent that goes on with a conversation.

Q1  A turn is noted in its session before its run is there, with the run's id. Who finds the note without the run starts
    that run; so a turn that was begun happens once, whenever the process dies.
Q2  What a turn says is in the run's log before it is in the session, and in the session once (`SessionTranscript`).
Q3  The project's extensions live in one session at a time. A turn that they could see takes them along to its session
    and keeps them there until it ends or waits for a person; turns of other sessions wait meanwhile.
Q4  A turn that an extension wishes for begins when the turn before it has ended. Who looks for the turn under way
    begins it too, also in another life. Extensions begin at most MOST_IN_A_ROW turns of a session without a word of a
    person.
Q5  A turn that begins in a session which nearly fills the model's window compacts it first.
Q6  A turn that began with a person there, and goes on in another life, expects that person: its extensions find an
    interface, and what they ask before somebody comes is asked by the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from forestay.agents import aborted_entry
from forestay.host.extensions import ProjectExtensions
from forestay.host.mentions import addressed
from forestay.host.session_transcript import SessionTranscript
from forestay.host.session_ui import SessionUi
from forestay.kernel import OPERATOR, Clock, Ids, Problem, one_line
from forestay.runs import TERMINAL, CreateRun, Execution, Runs
from forestay.sessions import Sessions, SessionTree, TurnStart, role_of, text_of

if TYPE_CHECKING:
    from forestay.extensions import Extensions

WORKFLOW = "forestay-ask"
MOST_IN_A_ROW = 100
_MESSAGE = 2_000
_log = logging.getLogger("forestay.host")


class TurnFailure(msgspec.Struct, frozen=True, rename="camel"):
    """Why a turn failed. The message of a failure inside an `extension` holds that extension's words."""

    code: str
    message: str
    extension: str | None


class SessionTurns:
    """Begins turns, finds them again, and lets a node take part in its session."""

    def __init__(
        self,
        sessions: Sessions,
        extensions: ProjectExtensions,
        ui: SessionUi,
        clock: Clock,
        ids: Ids,
        *,
        runs: Callable[[], Runs],
        agents: Callable[[str, str], Awaitable[object]],
    ) -> None:
        """`agents` looks for an agent of a tenant; `not_found`."""
        self._agents = agents
        self._sessions = sessions
        self._ui = ui
        self._extensions = extensions
        self._life = extensions.prompts.life
        self._clock = clock
        self._ids = ids
        self._runs = runs
        self._speaking = asyncio.Lock()
        self._starting: WeakKeyDictionary[SessionTree, asyncio.Lock] = WeakKeyDictionary()
        self._row: Counter[str] = Counter()  # turns of extensions since a person spoke, by session
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(
        self,
        tree: SessionTree,
        message: str = "",
        *,
        tenant: str = OPERATOR,
        principal: str | None = None,
        source: str = "interactive",
        agent: str | None = None,
        model: str | None = None,
        run_id: str | None = None,
        by_person: bool = True,
    ) -> str:
        """Begin a turn with what the user says, or with what the session ends with; the id of its run (Q1). A caller
        that must not begin two gives the id, and is told of the one that was begun. A person may begin with `@` and
        the id of the agent that is to answer (M3)."""
        if by_person and source != "extension":
            agent = await self._mentioned(message, tenant) or agent
        async with self._starting.setdefault(tree, asyncio.Lock()):
            running = await self._running(tree, tenant)
            if run_id is not None and (running == run_id or await self._is_begun(run_id, tenant)):
                await self._sessions.save(tree)  # the disk may have refused it before
                return run_id
            if running is not None:
                raise _busy()
            if source != "extension":
                self._row.pop(tree.id, None)
            return await self._begin(tree, message, tenant, principal, source, agent, model, run_id)

    async def _mentioned(self, message: str, tenant: str) -> str | None:
        name = addressed(message)
        if name is None:
            return None
        try:
            await self._agents(tenant, name)
        except Problem as problem:
            if problem.key != "not_found":
                raise
            return None
        return name

    async def _is_begun(self, run_id: str, tenant: str) -> bool:
        try:
            await self._runs().get_run(run_id, tenant)
        except Problem as problem:
            if problem.key != "not_found":
                raise
            return False
        return True

    async def _begin(
        self,
        tree: SessionTree,
        message: str,
        tenant: str,
        principal: str | None,
        source: str,
        agent: str | None = None,
        model: str | None = None,
        run_id: str | None = None,
        wishes: Sequence[str] = (),
    ) -> str:
        inputs = {"sessionId": tree.id, "question": message, "source": source, **({"agentId": agent} if agent else {})}
        life = self._attended_life(tree, is_wish=bool(wishes))
        turn = TurnStart(run_id or self._ids.new("run"), inputs, model, list(wishes), attended_life=life)
        request = _request(turn)
        await self._runs().check_run(request, tenant)  # what cannot run is not noted
        tree.begin_turn(turn)
        await self._sessions.save(tree)
        await self._runs().create_run(request, tenant, principal, run_id=turn.run_id)
        return turn.run_id

    def _attended_life(self, tree: SessionTree, *, is_wish: bool) -> str:
        """The life in which a person was there for a turn; a turn that another one wished for expects whom that did."""
        if self._ui.is_attended(tree.id):
            return self._life
        before = tree.turn.attended_life if is_wish and tree.turn is not None else ""
        return before if before != self._life else ""

    async def requested(self, agent: str | None = None) -> str | None:
        """Begin a turn that an extension wished for in its session; the id of its run, None when none was."""
        suite = self._extensions.opened
        if suite is None or not suite.session.tree.wishes:
            return None
        return await self.under_way(suite.session.tree, agent=agent)

    # Turns of extensions, where nobody else begins them (Q4)

    @asynccontextmanager
    async def following(self, model: str) -> AsyncIterator[None]:
        """Begin the turns that extensions ask for, and end those that they abort; `model` is named in what ends."""
        self._spawn(self._follow(model))
        try:
            yield
        finally:
            for task in list(self._tasks):
                task.cancel()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a turn that an extension asked for could not begin: %s", error)

    async def _follow(self, model: str) -> None:
        await self._extensions.arrived.wait()
        suite = self._extensions.opened
        assert suite is not None, "it arrived"
        live = suite.session
        while True:
            live.asked.clear()
            live.took("shutdown")  # a host does not end because an extension of one conversation wants it
            if live.took("abort"):
                self._spawn(self.cancel(live.tree, model))
            if live.tree.wishes:
                self._spawn(self._fulfil(live.tree))
            await live.asked.wait()

    async def _fulfil(self, tree: SessionTree) -> None:
        """Begin what was wished for in a session, one after the other."""
        while tree.wishes:
            if (run_id := await self.under_way(tree)) is not None:
                await self._runs().wait(run_id, OPERATOR)

    async def under_way(self, tree: SessionTree, tenant: str = OPERATOR, agent: str | None = None) -> str | None:
        """The run of the turn that was begun last and has not ended; one that an extension wished for begins (Q4)."""
        async with self._starting.setdefault(tree, asyncio.Lock()):
            running = await self._running(tree, tenant)
            wish = tree.next_wish()
            if running is not None or wish is None:
                return running
            self._row[tree.id] += 1
            if self._row[tree.id] > MOST_IN_A_ROW:
                tree.drop_wishes()
                await self._sessions.save(tree)
                _log.warning("session %s: %d turns of extensions in a row; no more begin", tree.id, MOST_IN_A_ROW)
                return None
            text, wishes = wish
            return await self._begin(tree, text, tenant, None, "extension", agent, wishes=wishes)

    async def _running(self, tree: SessionTree, tenant: str) -> str | None:
        """The run of the turn that was begun last and has not ended; one that was only noted is started (Q1)."""
        turn = tree.turn
        if turn is None:
            return None
        try:
            run = await self._runs().get_run(turn.run_id, tenant)
        except Problem as problem:
            if problem.key != "not_found":
                raise
            await self._runs().create_run(_request(turn), tenant, run_id=turn.run_id)
            return turn.run_id
        return None if run.status in TERMINAL else turn.run_id

    async def failure(self, tree: SessionTree, tenant: str = OPERATOR) -> TurnFailure | None:
        """Why the turn that was begun last failed; None where it did not, or where its session ends with saying so."""
        turn = tree.turn
        if turn is None or _is_told(tree):
            return None
        run = await self._runs().get_run(turn.run_id, tenant)
        if run.status != "failed" or run.error is None:
            return None
        extension = (run.error.details or {}).get("extension")
        message = one_line(run.error.message[:_MESSAGE])
        return TurnFailure(run.error.code, message, str(extension) if extension is not None else None)

    async def cancel(self, tree: SessionTree, model: str, tenant: str = OPERATOR) -> None:
        """End the turn that is under way; the session says so once."""
        if (run_id := await self._running(tree, tenant)) is not None:
            await self._runs().cancel(run_id, tenant, reason="The turn was cancelled.")
            await self._runs().wait(run_id, tenant)
            entry = aborted_entry(model, self._clock.now_ms())
            tree.append("message", place=f"{run_id}/cancelled", message=entry["message"])
            await self._sessions.save(tree)

    async def move(self, tree: SessionTree, target: str, tenant: str = OPERATOR) -> str | None:
        """Go on from another entry; the text of the user's message when that is one. Extensions in the session are
        asked and told, as when one of them moves."""
        if await self._running(tree, tenant) is not None:
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
    async def joined(self, ctx: Execution) -> AsyncIterator[SessionTranscript | None]:
        """The session that a node's inputs name, with the extensions in it; None when they name none (Q3)."""
        named = ctx.inputs.get("sessionId")
        if not named:
            yield None
            return
        tree = await self._sessions.open(str(named), ctx.tenant)
        transcript = SessionTranscript(ctx, self._sessions, tree)
        if ctx.tenant != OPERATOR:
            yield transcript
            return
        with self._ui.expecting(tree.id) if self._expects(ctx, tree) else nullcontext():
            async with self._lived(ctx, tree):
                yield transcript

    def _expects(self, ctx: Execution, tree: SessionTree) -> bool:
        """Whether a person was there when this turn began in another life (Q6)."""
        turn = tree.turn
        return turn is not None and turn.run_id == ctx.run_id and turn.attended_life not in ("", self._life)

    @asynccontextmanager
    async def _lived(self, ctx: Execution, tree: SessionTree) -> AsyncIterator[None]:
        """Have the extensions in the session, when they could see its turn (Q3)."""
        suite = await self._extensions.suite(ctx, tree)
        said = str(ctx.inputs.get("task") or "")
        is_full = ctx.recorded("agent/begin") is None and suite.session.is_full(tree, said)
        if not suite.members and not is_full:
            yield
            return
        async with self._speaking:
            await self._extensions.enter(ctx, tree)
            if is_full:
                await _compact(suite)
            yield


async def _compact(suite: Extensions) -> None:
    """Sum up what is old in the session; a turn begins all the same when that fails (Q5)."""
    try:
        await suite.control.request("compact", {})
    except Problem as problem:
        _log.warning("session %s could not be compacted: %s", suite.session.id, problem.message)


def _is_told(tree: SessionTree) -> bool:
    """Whether the session ends with an answer that failed or was cancelled."""
    message = tree.entry(tree.leaf).get("message") if tree.leaf is not None else None
    return isinstance(message, dict) and message.get("stopReason") in ("error", "aborted")


def _request(turn: TurnStart) -> CreateRun:
    """The run that performs a turn."""
    chosen = {} if turn.model is None else {"model": turn.model}
    return CreateRun(workflow_id=WORKFLOW, inputs=turn.inputs, configurable=chosen)


def _busy() -> Problem:
    fix = "Wait for its end, or cancel its run."
    return Problem("state_conflict", "A turn of this session is under way.", fix=fix)

"""Parent and child runs: one append starts a child and records that.

Each of them learns of the other's end (G4), at the time of that end (T5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from forestay.kernel import Problem
from forestay.runs import decider
from forestay.runs.actor import RunActor
from forestay.runs.evolve import evolve
from forestay.runs.execution import Execution
from forestay.runs.log import append_of, standing_of
from forestay.runs.outcome import Make, Outcome
from forestay.runs.secrets import inside
from forestay.runs.state import WITH_PARENT, Event, RunState
from forestay.runs.workflows import check_child

if TYPE_CHECKING:
    from forestay.runs.engine import Engine

MAX_DEPTH = 16
MAX_FAMILY = 10_000
"""The most descendants of one run: a workflow that starts itself twice grows exponentially."""
_KEEP_SIZES = 1_000
_SIZE = (
    "WITH RECURSIVE family (id) AS (SELECT run_id FROM runs WHERE run_id = ? "
    "UNION ALL SELECT r.run_id FROM runs r JOIN family f ON r.parent = f.id) "
    "SELECT count(*) FROM (SELECT id FROM family LIMIT ?) AS most"
)


def kin_of(state: RunState) -> str:
    """Return the family that a run shares its time with, as its first run; a detached child begins a new family."""
    link = state.parent
    if link is None or link.get("detached"):
        return state.run_id
    return str(link.get("kin") or link.get("root") or link["runId"])


class Kin:
    """The runs in memory that have relatives, for each family."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, RunActor]] = {}
        self.held: dict[str, set[RunActor]] = {}  # runs that wait for a relative, for each family

    def join(self, actor: RunActor) -> None:
        self._members.setdefault(kin_of(actor.state), {})[actor.state.run_id] = actor

    def part(self, actor: RunActor) -> None:
        """Forget a run, and wake the runs that waited for it."""
        kin = kin_of(actor.state)
        members = self._members.get(kin, {})
        if members.get(actor.state.run_id) is actor:
            del members[actor.state.run_id]
            if not members:
                del self._members[kin]
        self.moved(actor)

    def horizon(self, actor: RunActor, now: int) -> int:
        """Return up to which moment a run may take a deadline: the next move of a relative comes first (T5)."""
        kin = kin_of(actor.state)
        members = self._members.get(kin, {})
        first = min((other.next_move(now) for other in members.values() if other is not actor), default=now)
        if first < now:
            self.held.setdefault(kin, set()).add(actor)
        return first

    def moved(self, actor: RunActor) -> None:
        """Wake the runs that waited for this one's move."""
        for other in self.held.pop(kin_of(actor.state), ()):
            if other is not actor:
                other.poke()


class Family:
    """The family ties of one engine's runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sizes: dict[str, int] = {}  # for each root run
        self.kin = Kin()

    async def new_child(
        self,
        parent: RunActor,
        execution: Execution,
        key: str,
        workflow_id: str,
        inputs: dict[str, Any],
        *,
        cause: str,
        wait: bool,
        propagate: bool,
        detached: bool = False,
        unset: Sequence[str] = (),
        started: Callable[[str], object] | None = None,
    ) -> Make:
        """Return the command that starts a child in the append that records it (G4).

        The variables in `unset` get no value, not even their default. Events that the node emits in `started` go into
        the same append.
        """
        engine = self._engine
        state = parent.state
        stored = await engine.workflows.latest(workflow_id, execution.tenant)
        depth = (state.parent or {}).get("depth", 0) + 1
        if depth > MAX_DEPTH:
            raise Problem(
                "recursion_limit_exceeded", f"Workflows call each other more than {MAX_DEPTH} deep.", limit=MAX_DEPTH
            )
        check_child(stored.plan.workflow, inputs, engine.limits)
        root = (state.parent or {}).get("root", state.run_id)
        await self._admit(root)
        child_id = engine.ids.new("run")
        link = {"runId": state.run_id, "nodeId": execution.node_id, "cause": cause, "depth": depth, "root": root}
        if not propagate:
            link["propagate"] = False
        if detached:
            link["detached"] = True
        if unset:
            link["unset"] = list(unset)
        if (kin := kin_of(state)) != root:
            link["kin"] = kin
        event = engine.started_event(
            stored,
            inputs,
            owner=state.started.get("owner"),
            scopeId=state.started.get("scopeId"),
            configurable={k: v for k, v in state.configurable.items() if k in ("mockProvider", "model", "ai")},
            parent=link,
        )
        if given := inside(state.secrets, inputs):
            event.private = {**(event.private or {}), "secrets": given}

        def make(state: RunState) -> Outcome:
            if not execution.live:  # its node ended while the child was being prepared
                raise asyncio.CancelledError
            if f"child:{key}" in execution._node.memo:
                return Outcome(execution.take())
            payload = {"childRunId": child_id, "childWorkflowId": workflow_id}
            private = {"key": key, "detached": True} if detached else {"key": key, "wait": wait}
            told = Event("node.dispatched", payload, execution.node_id, private)
            child = engine.blank(child_id, stored)
            event.ts, event.seq = parent.now(), 0
            event.at = min(max(state.at, parent.moment()), event.ts)
            evolve(child, event)
            append = append_of(child, [event], standing_of(child, engine.instance))
            parent.unborn += 1

            def begin() -> None:
                parent.unborn -= 1
                self.kin.join(parent)
                engine.adopt(child)

            said = execution.take()
            if started is not None:
                started(child_id)
            return Outcome(
                [*said, told, *execution.take()],
                child_id,
                [append, *execution.take_appends()],
                begin,
            )

        return make

    async def _admit(self, root: str) -> None:
        """Count one more run in the family of `root`; after a restart, count those of the ledger."""
        size = self._sizes.pop(root, None)
        if size is None:
            size = (await self._engine.ledger.query(_SIZE, (root, MAX_FAMILY + 1)))[0][0]
        self._sizes[root] = size + 1
        if len(self._sizes) > _KEEP_SIZES:
            del self._sizes[next(iter(self._sizes))]
        if size > MAX_FAMILY:
            raise Problem(
                "recursion_limit_exceeded", f"One run has started more than {MAX_FAMILY} others.", limit=MAX_FAMILY
            )

    async def part(self, actor: RunActor) -> None:
        """Tell the parent and the children that a run has ended, before they continue (T5)."""
        state = actor.state
        told = [self._leave(child_id, state, state.at) for child_id in (*state.orphans, *state.children)]
        if state.parent is not None and not state.parent.get("detached"):
            told.append(self._tell(state.parent["runId"], state))
        try:
            await asyncio.gather(*told, return_exceptions=True)  # the sweep finds those that were not told
        finally:
            self.kin.part(actor)

    async def _tell(self, run_id: str, child: RunState) -> None:
        await self._engine.command(run_id, lambda state: self._child_ended(state, child), asked=False, at=child.at)

    def _child_ended(self, state: RunState, child: RunState) -> Outcome:
        engine = self._engine
        known = state.children.get(child.run_id)
        if known is None or state.ended is not None:
            return Outcome([])
        name, key = known
        payload = {
            "childRunId": child.run_id,
            "childWorkflowId": child.plan.workflow.id,
            "childStatus": child.status,
        }
        result: dict[str, Any] = {
            "runId": child.run_id,
            "status": child.status,
            "outputs": child.outputs or {},
            "variables": child.variables,
            "error": child.error,
        }
        if child.secrets:
            result["secrets"] = sorted(child.secrets)
        actor = engine.actor(state.run_id)
        if actor is not None:
            actor.restate()  # the child's end has marked this run as busy

        def wake() -> None:
            if actor is not None:
                actor.child_ended(name, key)

        return Outcome([Event("node.dispatched", payload, name, {"key": key, "result": result})], after=wake)

    def leave(self, actor: RunActor) -> None:
        """Cancel the children whose node has ended."""
        if actor.state.orphans:
            actor.owing += 1
            self._engine.spawn(self._leave_orphans(actor, [*actor.state.orphans], actor.state.at))

    async def _leave_orphans(self, actor: RunActor, orphans: list[str], at: int) -> None:
        left = [self._leave(child_id, actor.state, at) for child_id in orphans]
        try:
            await asyncio.gather(*left, return_exceptions=True)
        finally:
            actor.owing -= 1
            self.kin.moved(actor)

    async def _leave(self, child_id: str, parent: RunState, at: int) -> None:
        def cancel(state: RunState) -> Outcome:
            return self._cancel_orphan(state, parent)

        await self._engine.command(child_id, cancel, asked=False, at=at)

    def _cancel_orphan(self, state: RunState, parent: RunState) -> Outcome:
        engine = self._engine
        link = state.parent
        if state.ended is not None or link is None or link["runId"] != parent.run_id or link.get("propagate") is False:
            return Outcome([])
        reason = {"cancelled": WITH_PARENT, None: "parent-node-ended"}.get(parent.ended, "parent-ended")
        now = engine.clock.now_ms()
        return Outcome(decider.cancel_run(state, now, reason, None, parent.run_id))

    def gather(self, actor: RunActor) -> None:
        """Let a run that this process took over continue once its relatives are ready too (T5)."""
        self.kin.join(actor)
        actor.gathering = True
        self._engine.spawn(self._gather(actor))

    async def _gather(self, actor: RunActor) -> None:
        try:
            await self.reconcile(actor)
        finally:
            actor.gathering = False
            actor.poke()
            self.kin.moved(actor)

    async def reconcile(self, actor: RunActor) -> None:
        """Learn, after a restart, of children that ended and of a parent that ended (G4).

        A relative that cannot be reached does not block the others; the sweep asks again.
        """
        state = actor.state
        actor.unheard = False
        for child_id in list(state.children):
            await self._hear(actor, self._hear_child(state, child_id))
        self.leave(actor)
        if state.parent is not None and not state.parent.get("detached"):
            await self._hear(actor, self._hear_parent(state, state.parent["runId"]))

    async def _hear(self, actor: RunActor, relative: Coroutine[Any, Any, None]) -> None:
        try:
            await relative
        except Problem:
            actor.unheard = True

    async def _hear_child(self, state: RunState, child_id: str) -> None:
        child = await self._engine.relative(child_id)
        if isinstance(child, RunState):
            await self._tell(state.run_id, child)

    async def _hear_parent(self, state: RunState, parent_id: str) -> None:
        parent = await self._engine.relative(parent_id)
        if isinstance(parent, RunState):
            await self._leave(state.run_id, parent, parent.at)

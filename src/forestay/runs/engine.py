"""The engine: which runs are in memory, who owns them, and what brings them back.

- G1  A run has one owner: this instance, until another takes the lease with an append that ours then fails on.
- G2  A restart under the same instance name takes its runs back at once; another instance's only when its beat stops.
- G3  What is not in memory is found by the sweep: `busy` and `wake` are written with the events that set them.
- G4  A child's end reaches its parent, and a parent's end its children, whatever dies in between.
- G5  A run whose next step cannot be taken or written, tried three times, fails with the reason: every run ends.
- G6  An engine that has closed has written what its nodes did: only a crash leaves an effect to be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from typing import Any

import msgspec

from forestay.kernel import Append, Clock, Draft, Ids, Ledger, Problem, Randomness, Watch, iso
from forestay.runs import decider
from forestay.runs.actor import RunActor
from forestay.runs.evolve import fold
from forestay.runs.family import Family
from forestay.runs.inbox import Inbox
from forestay.runs.leases import AHEAD_MS, NOBODY, Leases
from forestay.runs.log import FORK, PRIVATE, stream_of, to_event
from forestay.runs.nodes.registry import NodeRegistry
from forestay.runs.outcome import Make, Outcome, error_of
from forestay.runs.ports import Ports
from forestay.runs.state import Event, RunState, new_state
from forestay.runs.types import TERMINAL, Limits, RunStatus
from forestay.runs.workflows import Ref, Stored, Workflows

_KEEP_IDLE = 2000
_KEEP_ENDED = 512
_FAULTS = 3
_DEDUP_RETRY_MS = 1000  # a run may take any time: come back soon and look
_AT_ONCE = 8  # runs that are taken up at once where each costs round trips
_LOOK_AGAIN = 40  # sweeps: on a shared ledger nobody appends to what we carry, and a look is a round trip
# What stands in a run's own way, unlike a full disk or another owner.
_OWN_FAULTS = frozenset({"internal", "payload_too_large", "invalid_json", "invalid_text"})
# What is wrong with one run alone: other runs go on.
_UNREADABLE = frozenset({"chain_broken", "not_found", "workflow_invalid"})
_log = logging.getLogger("forestay.runs")


class Engine:
    def __init__(
        self,
        ledger: Ledger,
        workflows: Workflows,
        registry: NodeRegistry,
        ports: Ports,
        *,
        clock: Clock,
        ids: Ids,
        randomness: Randomness,
        limits: Limits,
        instance: str,
        leases: Leases,
        lease_seconds: float = 30.0,
        sweep_seconds: float = 1.0,
        room: int | None = None,
        replays_ask: bool = False,
    ) -> None:
        self.replays_ask = replays_ask
        self.ledger = ledger
        self.workflows = workflows
        self.registry = registry
        self.ports = ports
        self.clock = clock
        self.ids = ids
        self.randomness = randomness
        self.limits = limits
        self.instance = instance
        self.leases = leases
        self._lease_ms = round(lease_seconds * 1000)
        self.sweep_seconds = sweep_seconds
        self._most = limits.max_active_runs if room is None else room
        self.draining = False
        self.started = False
        self._epoch = 0
        self._sweeps = 0
        self._actors: dict[str, RunActor] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()
        self._finished: OrderedDict[str, RunState] = OrderedDict()
        self._loading: dict[str, asyncio.Task[RunActor | RunState]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._faults: dict[str, int] = {}
        self._refused: dict[str, float] = {}  # when the disk refused a run's next step, by the run
        self.watch = Watch(clock)
        self.family = Family(self)
        self.inbox = Inbox(self)

    # Life

    async def start(self) -> None:
        self._epoch = await self.leases.start()
        self.started = True
        self.spawn(self._holding())
        self.spawn(self._sweeping())
        if self.leases.shared:
            self.spawn(self.inbox.listen())

    async def drain(self, timeout: float) -> None:
        """Start nothing new; give running nodes `timeout` seconds to reach the log."""
        self.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while any(not actor.idle for actor in self._actors.values()):  # noqa: ASYNC110 - many actors, once
                    await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Stop every node, and return when what they did is on disk (G6)."""
        self.started = False
        self.draining = True
        for task in [*self._background, *self._loading.values()]:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*(actor.finish() for actor in list(self._actors.values())))
        self._actors.clear()
        self._idle.clear()
        await self.leases.leave()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda _: work.close())  # cancelled before its first step, it would be left open

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Background work that fails for want of the disk or of the lease is found again by the sweep."""
        with contextlib.suppress(Problem):
            await work

    async def _holding(self) -> None:
        """Live, until a newer incarnation has our name (G1)."""
        await self.leases.hold(self._lapsed)
        if self.started:
            await self.close()

    async def _lapsed(self) -> None:
        """The lease had run out for a while: let go of what others have taken up meanwhile."""
        carried = {run_id: actor for run_id, actor in self._actors.items() if actor.owned}
        kept = await self.leases.kept(carried)
        for run_id in carried.keys() - kept:
            carried[run_id].give_up()

    @property
    def room(self) -> int:
        """How many more runs this engine may carry; those that rest in memory do not count."""
        return 0 if self.draining else self._most - len(self._actors) + len(self._idle)

    @property
    def next_owner(self) -> str:
        """The owner of a run that is made now: this engine, or, on a shared ledger, one that has room for it."""
        return NOBODY if self.leases.shared and self.room <= 0 else self.instance

    # Finding work

    async def _sweeping(self) -> None:
        """At once, and then for ever: what has work is taken up, one run after the other, while others run."""
        while True:
            with contextlib.suppress(Problem):
                await self._sweep()
            await asyncio.sleep(self.sweep_seconds)

    async def _sweep(self) -> None:
        """Load what has something to do and is not in memory (G3)."""
        if self.draining:
            return
        self._sweeps += 1
        absent: list[str] = []
        for run_id in await self.leases.due(self.room):
            actor = self._actors.get(run_id)
            if self._is_hopeless(run_id):
                continue
            if actor is None:
                absent.append(run_id)
            elif actor.idle:
                if actor.is_due(self.clock.now_ms()):  # the machine slept, or its clock was set: no timer knows
                    actor.poke()
                if not self.leases.shared or self._sweeps % _LOOK_AGAIN == 0:
                    self.spawn(self._look_again(actor))
            elif actor.unheard:
                self.spawn(self.family.reconcile(actor))
        at_once = _AT_ONCE if self.leases.shared else 1
        for start in range(0, len(absent), at_once):
            await asyncio.gather(*map(self._take_up, absent[start : start + at_once]))

    async def _look_again(self, actor: RunActor) -> None:
        """A run that rests here is marked busy: a child has ended, or another instance has appended to it."""
        run_id = actor.state.run_id
        head = await self.ledger.head(stream_of(run_id))
        if actor.idle and head.seq > actor.state.seq:
            actor.close()
            if self._actors.get(run_id) is actor:
                self._unseat(actor)
            await self._take_up(run_id)
        elif actor.state.children:
            await self.family.reconcile(actor)

    async def _take_up(self, run_id: str) -> None:
        try:
            found = await self.find(run_id)
        except Problem as problem:
            if problem.key not in _UNREADABLE:
                raise  # the disk's trouble, and everybody's: the next sweep tries again
            self._faults[run_id] = self._faults.get(run_id, 0) + 1
            _log.error("the run %s cannot be taken up: %s", run_id, problem.message)
            return
        if isinstance(found, RunActor):
            found.poke()

    async def find(self, run_id: str) -> RunActor | RunState:
        """The run in memory, or the state of an ended one; `not_found`. A process that stalled asks first whether what
        it has in memory is still its own (G1)."""
        if run_id in self._actors and not self.leases.is_certain:
            await self._lapsed()
        actor = self._actors.get(run_id)
        if actor is not None and not actor.lost:
            return actor
        ended = self._finished.get(run_id)
        if ended is not None:
            return ended
        task = self._loading.get(run_id)
        if task is None:
            task = self._loading[run_id] = asyncio.get_running_loop().create_task(self._load(run_id))
            task.add_done_callback(lambda _: self._loading.pop(run_id, None))
        return await asyncio.shield(task)

    async def relative(self, run_id: str) -> RunActor | RunState:
        """As `find`, on behalf of a relative. A run that the disk has just refused is left to the sweep: otherwise the
        two would have each other loaded again without a pause."""
        refused = self._refused.get(run_id)
        if refused is not None and self.clock.monotonic() - refused < self.sweep_seconds:
            raise Problem("unavailable", f"The disk refused the run {run_id}.", runId=run_id)
        return await self.find(run_id)

    async def _load(self, run_id: str) -> RunActor | RunState:
        if not _is_id(run_id):
            raise _unknown(run_id)
        owner, fresh = await self.leases.carrier(run_id, take=self.room > 0)
        state = await self.read_state(run_id)  # after we know whose it is: what the owner before us wrote is there
        if state.ended is not None:
            self._remember(state)
            return state
        known = self._actors.get(run_id)
        if known is not None and not known.lost:
            return known
        actor = RunActor(self, state, owner)
        if not actor.owned:
            return actor  # not kept: its owner appends without asking us
        self._actors[run_id] = actor
        if self.started and not self._is_hopeless(run_id):
            if state.children or state.orphans or state.parent:
                self.family.gather(actor)
            actor.resume(fence=fresh)
        return actor

    def _unseat(self, actor: RunActor) -> None:
        """A run that is no longer in memory."""
        self._actors.pop(actor.state.run_id, None)
        self._idle.pop(actor.state.run_id, None)
        self.family.kin.part(actor)

    async def read_state(self, run_id: str, until: int | None = None) -> RunState:
        """Fold a run's log, the whole of it or up to a sequence."""
        limit = None if until is None else until
        records = await self.ledger.read(stream_of(run_id), 0, limit) if _is_id(run_id) else []
        if not records:
            raise _unknown(run_id)
        first = records[0].attrs
        stream, seq = first[PRIVATE]["workflow"]
        stored = await self.workflows.at(Ref(stream, seq))
        state = self.blank(run_id, stored)
        state.source = first.get(FORK)
        try:
            fold(state, map(to_event, records))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            message = "The run's log does not say what a log of a run says."
            raise Problem("chain_broken", message, runId=run_id, fix="Look with `forestay ledger verify`.") from error
        if state.source is not None:
            fork_origin(state, state.source)
        return state

    def blank(self, run_id: str, stored: Stored) -> RunState:
        state = new_state(run_id, stored.plan, self.limits)
        state.refusals = self._refusals(stored)
        return state

    def _refusals(self, stored: Stored) -> dict[str, dict[str, Any]]:
        """Nodes that cannot run here, with the error that says why (OpenWOP §1.2)."""
        found: dict[str, dict[str, Any]] = {}
        for node in stored.plan.workflow.nodes:
            kind = self.registry.get(node.type_id)
            missing = ["nodeType"] if kind is None else [item for item in kind.requires if not self.ports.has(item)]
            if missing:
                found[node.id] = {
                    "code": "capability_not_provided",
                    "message": f"This host has no {missing[0]} for {node.type_id}.",
                    "details": {"requiredCapability": missing[0], "offendingTypeId": node.type_id, "nodeId": node.id},
                    "retryable": False,
                }
        return found

    # Starting

    async def create(self, run_id: str, stored: Stored, events: list[Event], *extra: Append) -> RunState:
        """A new run: on disk, and under way, when this returns; `run_already_active` when there is one of this id."""
        try:
            return await self._begin(run_id, stored, [msgspec.structs.replace(event) for event in events], *extra)
        except Problem as problem:
            if problem.key != "ledger_conflict" or (extra and (await self.ledger.head(stream_of(run_id))).seq < 0):
                raise
            raise Problem("run_already_active", "This run exists already.", activeRunId=run_id) from problem

    async def create_alone(
        self, run_id: str, stored: Stored, events: list[Event], scope_id: str | None, tenant: str
    ) -> RunState:
        """Start the only active run of a workflow and scope; a second caller gets the first run's id (W9)."""
        while True:
            claim = await self._claim(tenant, stored.plan.workflow.id, scope_id, run_id)
            try:
                return await self.create(run_id, stored, events, claim)
            except Problem as problem:
                if problem.key != "ledger_conflict":  # else another run took the place meanwhile: look again
                    raise

    async def _claim(self, tenant: str, workflow_id: str, scope_id: str | None, run_id: str) -> Append:
        """The place that a deduplicated run takes: only one can have it while that run is active (W9)."""
        identity = hashlib.sha256("\0".join((tenant, workflow_id, scope_id or "")).encode()).hexdigest()[:40]
        stream = f"dedup/{identity}"
        head = await self.ledger.read(stream, 0, 1, reverse=True)
        if head:
            active = head[0].payload["runId"]
            if await self.status(active) not in TERMINAL:
                raise Problem(
                    "run_already_active",
                    "A run of this workflow and scope is active.",
                    retry_after_ms=_DEDUP_RETRY_MS,
                    activeRunId=active,
                )
        return Append(stream, [Draft("dedup.claimed", {"runId": run_id})], head[0].seq if head else -1)

    async def status(self, run_id: str) -> RunStatus | None:
        """The status in the table; None when there is no such run."""
        rows = await self.ledger.look_up("SELECT status FROM runs WHERE run_id = ?", (run_id,))
        return rows[0][0] if rows else None

    async def _begin(self, run_id: str, stored: Stored, events: list[Event], *extra: Append) -> RunState:
        if self.draining or len(self._actors) >= self.limits.max_active_runs:
            raise Problem("unavailable", "The engine takes no new runs now.", retry_after_ms=1000, retryAfter=1)
        if run_id in self._actors or run_id in self._finished or run_id in self._loading:
            raise Problem("ledger_conflict", f"The run {run_id} exists already.", runId=run_id)
        actor = RunActor(self, self.blank(run_id, stored), self.next_owner)
        if actor.owned:
            self._actors[run_id] = actor
        await actor.post(lambda state: Outcome(events, appends=list(extra)), asked=True)
        return actor.state

    def adopt(self, child: RunState) -> None:
        actor = self._actors[child.run_id] = RunActor(self, child)
        self.family.kin.join(actor)
        actor.poke()

    def adopt_fork(self, state: RunState, owner: str) -> None:
        """Take up a fork whose history has been written, when it is ours."""
        if state.ended is not None:
            self._remember(state)
            return
        if owner != self.instance:
            return
        actor = self._actors[state.run_id] = RunActor(self, state)
        actor.resume()

    def started_event(self, stored: Stored, inputs: dict[str, Any], **fields: Any) -> Event:
        """`run.started`, what is sensitive kept out of sight."""
        workflow = stored.plan.workflow
        shown = {k: "[REDACTED]" if k in stored.plan.sensitive else v for k, v in inputs.items()}
        payload = {
            "workflowId": workflow.id,
            "workflowVersion": workflow.version,
            "inputs": shown,
            **{key: value for key, value in fields.items() if value},
        }
        private: dict[str, Any] = {"workflow": [stored.ref.stream, stored.ref.seq]}
        if stored.plan.sensitive & inputs.keys():
            private["inputs"] = inputs
        if stored.plan.sensitive:
            private["hides"] = True
        return Event("run.started", payload, None, private)

    def lease_event(self, state: RunState) -> Event:
        expires = iso(self.clock.now_ms() + self._lease_ms)
        lease = f"{self.instance}:{self._epoch}"
        payload = {"leaseId": lease, "host": "cloud", "instanceId": self.instance, "expiresAt": expires}
        return Event("lease.acquired", payload)

    # Commands on a run

    async def command(self, run_id: str, make: Make, *, asked: bool = True, at: int | None = None) -> Any:
        """Do `make` in the run's turn; when another owner was faster, once more on the newer state. `at`: a time of the
        run's own clock, when it is not now."""
        for attempt in range(4):
            found = await self.find(run_id)
            if isinstance(found, RunState):
                return make(found).result
            if self.leases.shared and not found.owned:
                raise Problem("ledger_conflict", f"The run {run_id} was taken over.", runId=run_id)
            try:
                return await found.post(make, asked=asked, at=at)
            except Problem as problem:
                if problem.key != "ledger_conflict" or attempt == 3:
                    raise
        raise AssertionError("unreachable")

    async def state(self, run_id: str) -> RunState:
        """The state as the log has it."""
        for attempt in range(4):
            found = await self.find(run_id)
            if isinstance(found, RunState):
                return found
            try:
                return await found.settled()
            except Problem:  # what was on its way did not reach the log: read again what is there
                if attempt == 3:
                    raise
        raise AssertionError("unreachable")

    def forget(self, run_ids: Iterable[str]) -> None:
        """Drop ended runs from memory: their records were removed."""
        for run_id in run_ids:
            self._finished.pop(run_id, None)

    # What actors report

    def on_idle(self, actor: RunActor) -> None:
        """Keep idle runs for a while; those that time will move soon stay."""
        run_id = actor.state.run_id
        if self._actors.get(run_id) is not actor:
            return
        self._idle[run_id] = None
        self._idle.move_to_end(run_id)
        if len(self._idle) > _KEEP_IDLE:
            self._evict()

    def _evict(self) -> None:
        soon = self.clock.now_ms() + AHEAD_MS
        for run_id in list(self._idle)[: _KEEP_IDLE // 10]:
            del self._idle[run_id]
            actor = self._actors.get(run_id)
            if actor is None or not actor.idle or actor.watched:
                continue
            wake = actor.state.next_wake()
            if wake is None or wake > soon:
                actor.close()
                self._unseat(actor)

    def on_ended(self, actor: RunActor) -> None:
        state = actor.state
        self._actors.pop(state.run_id, None)
        self._idle.pop(state.run_id, None)
        self._remember(state)
        self._faults.pop(state.run_id, None)
        if not self.started:
            return
        if state.parent is not None or state.children or state.orphans:
            self.spawn(self.family.part(actor))

    def on_lost(self, actor: RunActor, problem: Problem, *, own: bool) -> None:
        """`own`: no caller had a part in what failed, so the run will meet it again."""
        run_id = actor.state.run_id
        if self._actors.get(run_id) is actor:
            self._unseat(actor)
        if problem.key.startswith("ledger_") and problem.key != "ledger_conflict":
            if len(self._refused) >= _KEEP_IDLE:
                self._refused.clear()
            self._refused[run_id] = self.clock.monotonic()
        if own and problem.key in _OWN_FAULTS:
            self._faults[run_id] = self._faults.get(run_id, 0) + 1
            if self._faults[run_id] == _FAULTS and self.started:
                self.spawn(self._give_up(run_id, problem))

    def _is_hopeless(self, run_id: str) -> bool:
        return self._faults.get(run_id, 0) >= _FAULTS

    async def _give_up(self, run_id: str, problem: Problem) -> None:
        """Fail a run that cannot go on, without taking the step that it stumbles over (G5)."""
        state = await self.read_state(run_id)
        if state.ended is not None:
            return
        error = error_of(problem)
        if (other := self._actors.get(run_id)) is not None:
            other.close()
        actor = self._actors[run_id] = RunActor(self, state)
        await actor.post(lambda state: Outcome(decider.finish_failed(state, self.clock.now_ms(), error, None)))

    def _remember(self, state: RunState) -> None:
        self._finished[state.run_id] = state
        if len(self._finished) > _KEEP_ENDED:
            self._finished.popitem(last=False)

    def actor(self, run_id: str) -> RunActor | None:
        return self._actors.get(run_id)

    @property
    def loaded(self) -> int:
        return len(self._actors)

    @property
    def executing(self) -> int:
        return sum(len(actor.tasks) for actor in self._actors.values())


def fork_origin(state: RunState, source: dict[str, Any]) -> None:
    """A fork has no parent, and its time begins with the fork."""
    state.source = source
    state.parent = None
    if state.deadline is not None:
        state.deadline = max(state.deadline, source["at"] + state.duration_limit)


def _unknown(run_id: str) -> Problem:
    return Problem("not_found", "There is no such run.", runId=run_id[:128])


def _is_id(run_id: str) -> bool:
    return 0 < len(run_id) <= 128 and run_id.replace("_", "").replace("-", "").isalnum() and run_id.isascii()

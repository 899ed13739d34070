"""One run in memory: takes commands, decides, appends, executes. The only one that writes its run's log.

- A1  State is ahead of the log only while a batch is on its way; no caller sees it in between.
- A2  A batch is appended only where the log stands as we know it; otherwise another owner has it, and we let go.
- A3  A node that may touch the outside starts after its `node.started` is on disk.
- A4  A batch is bounded: a long chain of instant nodes is several appends, never one endless one.
- A5  A node does not fail because the host's own disk refuses: it begins again, and what is recorded is given back.

What time it is for the run (T1 to T5): see `state`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from forestay.kernel import Append, Problem
from forestay.runs import decider
from forestay.runs.evolve import evolve
from forestay.runs.execution import Execution
from forestay.runs.log import append_of, standing_of
from forestay.runs.nodes.registry import NodeType
from forestay.runs.outcome import Chance, Make, Outcome, Parked, along, error_of, failed, tell
from forestay.runs.state import ENDED, Event, RunState
from forestay.runs.values import plain

if TYPE_CHECKING:
    from forestay.runs.engine import Engine

_BATCH = 256
REFUSALS = frozenset({"ledger_full", "ledger_read_only", "ledger_locked", "ledger_io", "ledger_unreachable"})
"""Why the ledger takes nothing for a while."""


class _Batch:
    """What goes into the log together."""

    __slots__ = ("after", "appends", "asked", "events", "settled", "waiters")

    def __init__(self) -> None:
        self.asked = False  # a caller had a part in it
        self.events: list[Event] = []
        self.appends: list[Append] = []
        self.waiters: list[tuple[asyncio.Future[Any] | None, Any]] = []
        self.after: list[Callable[[], None]] = []
        self.settled = False  # nothing follows from it


class _Command(NamedTuple):
    """Something to do in a run's turn. `at`: a time of the run's own clock, when it is not now."""

    make: Make
    future: asyncio.Future[Any] | None
    asked: bool
    at: int | None = None


_NOTHING = _Batch()


class RunActor:
    instead: Callable[[Execution, str, Callable[[], Any]], Awaitable[Any]] | None = None
    """What a replay does in the place of an effect that is not on record."""

    def __init__(self, engine: Engine, state: RunState, owner: str | None = None) -> None:
        self.engine = engine
        self.state = state
        self.owner = engine.instance if owner is None else owner
        self.owned = self.owner == engine.instance
        self.lost = False
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.gathering = False  # its relatives are being taken up
        self.unheard = False  # a relative could not be reached: it may have ended
        self.unborn = 0  # children that are in its log and not in memory yet
        self.owing = 0  # what its relatives have not heard of it yet
        self._inbox: list[_Command] = []
        self._news: list[Event] = []  # what the log is told of the clock, before anything else happens
        self._acting: dict[
            str, int
        ] = {}  # nodes with children whose code is not just waiting for them: how late it began
        self._missed_ms = engine.watch.missed_ms
        self._turn_ms = 0  # the time of the turn that is being taken
        self._todo: dict[str, None] = {}
        self._driver: asyncio.Task[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at: int | None = None
        self._standing: dict[str, Any] | None = None
        self._ended: dict[str, asyncio.Queue[str]] = {}
        self._watchers: list[asyncio.Future[None]] = []
        self._committing = False
        self._finishing = False
        self._orphans = len(state.orphans)
        self._batch = _NOTHING

    # What an execution needs

    def now(self) -> int:
        """The wall clock's time; a turn has one."""
        return max(self._turn_ms or self.engine.clock.now_ms(), self.state.ts)

    def moment(self) -> int:
        """The time of the run's own clock (T1)."""
        state, now = self.state, self.now()
        if self.gathering or self.unborn or self._has_orphans:
            return state.at
        here, due = state.reach(now - self._jump_ms, self._acting_lag)
        if due is not None and due <= here:
            here = min(here, self.engine.family.kin.horizon(self, now))
        return max(state.at, here)

    def next_move(self, now: int) -> int:
        """The earliest time, by its own clock, at which this run may still do something (T5)."""
        state = self.state
        if self.gathering or self.owing or self._committing or self._inbox or state.ended is not None:
            return state.at
        here, due = state.reach(now - self._jump_ms, self._acting_lag)
        return here if due is None else min(here, due)

    @property
    def _has_orphans(self) -> bool:
        """Whether children were left in this batch: they hear of it before the run goes on (T5)."""
        return len(self.state.orphans) > self._orphans

    @property
    def _acting_lag(self) -> int:
        return max(self._acting.values(), default=0)

    @property
    def _jump_ms(self) -> int:
        """What the clock has jumped over while work was under way, and the log does not know yet (T4)."""
        if self._turn_ms or not self.state.counts.get("running"):
            return 0
        self.engine.watch.look()
        return self.engine.watch.missed_ms - self._missed_ms

    async def next_ended(self, node_id: str) -> str:
        """The key of the next child of a node that ends; meanwhile the children's time is the node's (T2)."""
        queue = self._ended.setdefault(node_id, asyncio.Queue())
        if queue.empty() and self._acting.pop(node_id, None) is not None:
            self.poke()
            self.engine.family.kin.moved(self)
        return await queue.get()

    def child_ended(self, node_id: str, key: str) -> None:
        if node_id in self.tasks:
            self._ended.setdefault(node_id, asyncio.Queue()).put_nowait(key)

    async def new_child(self, execution: Execution, key: str, workflow_id: str, inputs: Any, **options: Any) -> Make:
        return await self.engine.family.new_child(self, execution, key, workflow_id, inputs, **options)

    # Commands

    def post(self, make: Make, *, asked: bool = False, at: int | None = None) -> asyncio.Future[Any]:
        """Do `make` in this run's turn; its result, once it is on disk. `asked`: by a caller; `at`: a time of the
        run's own clock, when it is not now."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(make, future, asked=asked, at=at)
        return future

    def submit(
        self, make: Make, future: asyncio.Future[Any] | None = None, *, asked: bool = False, at: int | None = None
    ) -> None:
        if self.lost:
            if future is not None:
                future.set_exception(_gone(self.state.run_id))
            return
        self._inbox.append(_Command(make, future, asked, at))
        self.poke()

    def poke(self) -> None:
        if self._driver is None and not self.lost:
            self._driver = asyncio.get_running_loop().create_task(self._drive())

    async def settled(self) -> RunState:
        """The state as the log has it (A1)."""
        while self._committing and not self.lost:
            await asyncio.shield(self.post(lambda state: Outcome([])))
        return self.state

    async def over(self) -> None:
        """Wait until the run has ended in the log, or is no longer ours to tell."""
        if self.state.ended is None or self._committing:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            try:
                await watcher
            finally:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

    def _tell_watchers(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def restate(self) -> None:
        """Tell the `runs` table with the next append, also when nothing seems to have changed."""
        self._standing = None

    @property
    def idle(self) -> bool:
        return self._driver is None and not self.tasks and not self._inbox

    def is_due(self, now: int) -> bool:
        """Whether time alone moves this run now."""
        wake = self.state.next_wake() if self.owned else None
        return wake is not None and wake <= now

    @property
    def watched(self) -> bool:
        return bool(self._watchers)

    # The turn

    async def _drive(self) -> None:
        moved = False
        try:
            while not self.lost:
                moved = moved or bool(self._inbox)
                batch = self._collect()
                if batch is None:
                    break
                moved = True
                await self._commit(batch)
                if (batch.settled or self._finishing) and not self._inbox:
                    break
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave callers waiting
            self._let_go(Problem.unexpected(error))
        finally:
            self._driver = None
            self._batch = _NOTHING  # a run that rests keeps nothing of what it has written
        kin = self.engine.family.kin
        if moved and kin.held:
            kin.moved(self)
        if not self.lost and (self.state.ended is None or self._wake is not None):
            self._rest()

    def _collect(self) -> _Batch | None:
        """What is to be written next: the commands that came in, each after what fell due before it (T3)."""
        batch = self._batch = _Batch()
        now = self.engine.watch.look()
        self._notice_a_jump()
        self._turn_ms = now
        try:
            self._fill(batch)
        finally:
            self._turn_ms = 0
        if batch.events or batch.appends:
            return batch
        self._answer(batch)
        return None

    def _fill(self, batch: _Batch) -> None:
        while self._news:
            event = self._news.pop(0)
            self._take(batch, event, event.at)
        while self._inbox and len(batch.events) < _BATCH:
            at = self._inbox[0].at
            if self._is_overdue(at) and not self._progress(batch, at):
                break
            command = self._inbox.pop(0)
            batch.asked = batch.asked or command.asked
            self._do(batch, command.make, command.future, at)
        batch.settled = not self._inbox and self._progress(batch) and not self._has_orphans

    def _is_overdue(self, at: int | None) -> bool:
        """Whether a deadline comes before that time of the run's own clock; None: now."""
        due = self.state.next_due() if self.owned else None
        if due is None or due > (self.now() if at is None else at):  # the run's own clock is never ahead
            return False
        return at is not None or due <= self.moment()

    def _notice_a_jump(self) -> None:
        """Put into the log that the clock jumped while work is under way (T4)."""
        missed = self.engine.watch.missed_ms
        if missed != self._missed_ms and self.state.counts.get("running"):
            jumped = {"byMs": missed - self._missed_ms}
            self._news.append(Event("forestay.clock.jumped", jumped, at=self.moment()))
        self._missed_ms = missed

    def _do(self, batch: _Batch, make: Make, future: asyncio.Future[Any] | None, at: int | None) -> None:
        """Do `make` at that time of the run's own clock; None: now."""
        at = max(self.state.at, self.moment() if at is None else at)
        try:
            outcome = make(self.state)
        except (Problem, asyncio.CancelledError) as error:
            if future is not None and not future.done():
                if isinstance(error, Problem):
                    future.set_exception(error)
                else:
                    future.cancel()
            return
        except Exception as error:
            if future is None:
                raise
            if not future.done():
                future.set_exception(Problem.unexpected(error))
            return
        for event in outcome.events:
            self._take(batch, event, at)
        for append in outcome.appends:
            along(batch.appends, append)
        batch.waiters.append((future, outcome.result))
        if outcome.after is not None:
            batch.after.append(outcome.after)

    def _progress(self, batch: _Batch, until: int | None = None) -> bool:
        """Decide and run instant nodes until nothing follows, up to the time `until`; False when the batch is full
        first (A4). A run that nobody carries yet goes on where it is taken up."""
        if not self.owner:
            return True
        now = self.now() if self.owned else 0  # time is the owner's
        chance = self.engine.randomness.uniform

        def limit() -> int:
            reached = self.moment() if self.owned else 0
            return reached if until is None else min(reached, until)

        while len(batch.events) < _BATCH:
            events = decider.decide(self.state, now, chance, limit) if self.state.ended is None else []
            for event in events:
                self._take(batch, event, self.state.at)
            ran = self._run_inline(batch)
            if not events and not ran:
                return True
        return False

    def _take(self, batch: _Batch, event: Event, at: int) -> None:
        """Give an event its place and its times, and take it into the state."""
        if event.type in decider.LEAVING:
            for closing in decider.left_open(self.state, event):
                self._take(batch, closing, at)
        event.ts = event.ts or self.now()
        event.at = min(event.at or at, event.ts)
        event.seq = self.state.seq + 1
        evolve(self.state, event)
        batch.events.append(event)
        name = event.node
        if name is None or name not in self.state.nodes:
            if self.state.ended is not None or self.state.paused_ms is not None:
                self._stop_tasks()
            elif event.type == "run.resumed":
                self._todo |= {other: None for other in self._running() if other not in self.tasks}
            return
        status = self.state.nodes[name].status
        if event.type == "node.dispatched" and name in self.tasks:
            self._acting[name] = self.state.ts - self.state.at
        if status == "running":
            if event.type in _STARTS and name not in self.tasks:
                self._todo[name] = None
        else:
            self._todo.pop(name, None)
            if status in ENDED or status in ("retrying", "idle"):
                self._stop_task(name)
        if event.type == "forestay.loop.taken":
            for other in list(self.tasks):
                if self.state.nodes[other].status != "running":
                    self._stop_task(other)

    async def _commit(self, batch: _Batch) -> None:
        standing = standing_of(self.state, self.owner)
        if not self.owned:
            standing["b"] = 1  # so that the owner looks at what we appended
        changed = standing if standing != self._standing else None
        appends = batch.appends
        if batch.events:
            appends = [append_of(self.state, batch.events, changed), *appends]
        self._committing = True
        try:
            await self.engine.ledger.commit(*appends)
        except Problem as problem:
            self._let_go(problem)
            return
        finally:
            self._committing = False
        self._answer(batch)  # also when it was closed meanwhile: what was asked for is on disk
        if self.lost:
            return
        self._standing = standing
        if self.state.ended is not None:
            self.engine.on_ended(self)
            self._tell_watchers()
        elif self.owned and not self.engine.draining:
            self._start_tasks()
            self._leave_orphans()

    def _leave_orphans(self) -> None:
        """Cancel the children whose node has ended since the last batch."""
        if self._has_orphans:
            self._orphans = len(self.state.orphans)
            self.engine.family.leave(self)

    def _answer(self, batch: _Batch) -> None:
        for future, result in batch.waiters:
            if future is not None and not future.done():
                future.set_result(result)
        for after in batch.after:
            after()

    def _let_go(self, problem: Problem) -> None:
        """The log is not ours to write, or cannot be written: forget this state and what hangs on it (A2)."""
        self.lost = True
        self._stop_tasks()
        waiting = [future for future, _ in self._batch.waiters]
        waiting.extend(command.future for command in self._inbox)
        self._inbox.clear()
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(problem)
        self.engine.on_lost(self, problem, own=not self._batch.asked)
        self._tell_watchers()

    def give_up(self) -> None:
        """Another process has the run now. An append on its way to the log still hears whether it came first."""
        if not self._committing:
            self._let_go(_gone(self.state.run_id))

    async def finish(self) -> None:
        """Stop the nodes, write what waits for its turn, and let go (G6)."""
        self._finishing = True
        self._stop_tasks()
        while self._driver is not None or (self._inbox and not self.lost):
            self.poke()
            if self._driver is not None:
                await asyncio.wait([self._driver])
        self.close()

    def close(self) -> None:
        """Let go without a word: what runs goes on from the log."""
        self.lost = True
        self._stop_tasks()
        if self._wake is not None:
            self._wake.cancel()
        for command in self._inbox:
            if command.future is not None and not command.future.done():
                command.future.set_exception(Problem("unavailable", "The engine is closing.", retry_after_ms=1000))
        self._inbox.clear()
        self._tell_watchers()

    def _rest(self) -> None:
        """Nothing to do now: be woken when time alone will move the run."""
        due = self.state.next_wake() if self.owned else None
        if due != self._wake_at:
            if self._wake is not None:
                self._wake.cancel()
                self._wake = None
            if due is not None:
                now = self.engine.clock.now_ms()
                if due <= now and (own := self.state.next_due()) is not None:
                    due = now + max(1, own - self.moment())  # a relative holds it back, and will say when it has moved
                seconds = min(max((due - now) / 1000, 0.001), 3600.0)
                self._wake = asyncio.get_running_loop().call_later(seconds, self._woken)
            self._wake_at = due
        if self.idle:
            self.engine.on_idle(self)

    def _woken(self) -> None:
        self._wake = self._wake_at = None
        self.poke()

    # Executing

    def resume(self, *, fence: bool = False) -> None:
        """After loading: the nodes that run by the log run again from their start. `fence`: another process had the
        run; what it still tries to append comes too late."""
        self._todo |= dict.fromkeys(self._running())
        if self._todo or fence:
            event = self.engine.lease_event(self.state)
            event.at = max(self.state.at, self.now() - self.engine.limits.max_run_duration_ms)
            self._news.append(event)
        self.poke()

    def _running(self) -> list[str]:
        return [name for name in self.state.active if self.state.nodes[name].status == "running"]

    def _run_inline(self, batch: _Batch) -> bool:
        ran = False
        for name in list(self._todo):
            kind = self._kind(name)
            if kind.inline:
                del self._todo[name]
                if self.state.nodes[name].status == "running":
                    ran = True
                    execution = Execution(self, name, moment=self.state.at)
                    make = _at_once(execution, kind, self.engine.randomness.uniform)
                    self._do(batch, make, None, self.state.at)
        return ran

    def _start_tasks(self) -> None:
        todo, self._todo = self._todo, {}
        parents = {name for name, _ in self.state.children.values()}
        for name in todo:
            if self.state.nodes[name].status == "running" and name not in self.tasks:
                work = self._work(Execution(self, name), self._kind(name))
                self.tasks[name] = asyncio.get_running_loop().create_task(work)
                if name in parents:
                    self._acting[name] = self.state.ts - self.state.at

    def _kind(self, name: str) -> NodeType:
        kind = self.engine.registry.get(self.state.plan.nodes[name].doc.type_id)
        assert kind is not None  # refused when the run was loaded
        return kind

    async def _work(self, execution: Execution, kind: NodeType) -> None:
        """A node's task: its end is a command like any other."""
        name, chance = execution.node_id, self.engine.randomness.uniform
        try:
            while True:
                try:
                    outputs = await kind.execute(execution)
                    make = execution.completed(plain(outputs))
                    break
                except Problem as problem:
                    if problem.key not in REFUSALS:
                        raise
                    execution = await self._begin_again(name)
        except Parked as parked:
            make = parked.outcome
        except asyncio.CancelledError:
            if execution.live and not self.lost and self.tasks.get(name) is asyncio.current_task():
                make = failed(execution, {"code": "cancelled", "message": "The node cancelled itself."}, chance)
            else:
                self._leave_nothing()
                return
        except Exception as error:  # noqa: BLE001 - node code may raise anything; its failure is the run's to handle
            tell(execution, error)
            make = failed(execution, error_of(error), chance)
        at = self.moment()
        self._ended.pop(name, None)
        self.tasks.pop(name, None)
        self._acting.pop(name, None)
        self.submit(lambda state: make(state) if execution.live else self._leave_nothing(), at=at)

    async def _begin_again(self, name: str) -> Execution:
        """The host's own disk refused what a node wrote beside its run: no failure of the node. After a pause it begins
        again, as after a restart (A5)."""
        self._leave_nothing()
        await asyncio.sleep(self.engine.sweep_seconds)
        self._ended.pop(name, None)
        return Execution(self, name)

    def _leave_nothing(self) -> Outcome:
        """A node that was stopped says no more. What others wanted written with its next word is written now."""
        self.engine.ledger.write_now()
        return Outcome([])

    def _stop_task(self, name: str) -> None:
        self._acting.pop(name, None)
        if (task := self.tasks.pop(name, None)) is not None:
            task.cancel()

    def _stop_tasks(self) -> None:
        for name in list(self.tasks):
            self._stop_task(name)
        self._todo.clear()


_STARTS = frozenset({"node.started", "node.resumed", "forestay.timer.fired", "node.dispatched", "forestay.run.forked"})


def _at_once(execution: Execution, kind: NodeType, chance: Chance) -> Make:
    """Run instant code to its end without leaving this turn."""
    coroutine: Any = kind.execute(execution)
    try:
        coroutine.send(None)
    except StopIteration as end:
        return execution.completed(end.value)
    except Parked as parked:
        return parked.outcome
    except Exception as error:  # noqa: BLE001 - as in `_work`
        tell(execution, error)
        return failed(execution, error_of(error), chance)
    coroutine.close()
    return failed(execution, {"code": "internal_error", "message": f"{kind.type_id} is not instant."}, chance)


def _gone(run_id: str) -> Problem:
    return Problem("ledger_conflict", f"The run {run_id} was taken over.", runId=run_id)

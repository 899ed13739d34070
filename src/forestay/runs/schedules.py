"""Schedules: start runs at times of a cron expression (W4).

Invariants:

- T1  A moment of a schedule starts at most one run, also after a crash: the run's id derives from schedule and moment.
- T2  `catchUp` decides on moments missed while the host was down: skip them, start the latest, or start all.
- T3  `overlap` decides when the previous run is still active: skip, queue (one), allow, cancel-previous.
- T4  A paused schedule starts nothing; after a resume, the next moment counts and not the missed ones.
- T5  The schedule's stream records what it does: fired, skipped, queued, failed.
- T6  Of several processes, one at a time works on a schedule; each of them knows what the others did.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

import msgspec

from forestay.kernel import (
    Clock,
    Draft,
    Ids,
    Ledger,
    Locks,
    ManualClock,
    Problem,
    Record,
    SeededRandomness,
    Transaction,
    canonical,
    iso,
)
from forestay.runs import cron
from forestay.runs.ports import Fact
from forestay.runs.types import TERMINAL, CreateRun, RunCreated, RunEvent, RunSnapshot, RunStanding, Wire

Overlap = Literal["skip", "queue", "allow", "cancel-previous"]
CatchUp = Literal["skip", "latest", "all"]
MAX_BACKFILL = 1000
MAX_PER_TENANT = 1000
_CATCH_UP_MOST = 1000
_MISSED_MS = 60_000  # a moment that is later than this counts as missed
_RECHECK_SECONDS = 60.0  # somebody may set the machine's clock meanwhile
_AGAIN_SECONDS = 1.0  # the pause after a failed read
_log = logging.getLogger("forestay.schedules")


class ScheduleSpec(Wire, frozen=True, forbid_unknown_fields=True):
    """A caller's definition of a schedule."""

    workflow_id: str
    cron: str
    timezone: str = "UTC"
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    configurable: dict[str, Any] = msgspec.field(default_factory=dict)
    tags: list[str] = msgspec.field(default_factory=list)
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    paused: bool = False


class Schedule(Wire, frozen=True):
    """A schedule and its state."""

    schedule_id: str
    tenant: str
    spec: ScheduleSpec
    created_at: str
    state: Literal["active", "paused"] = msgspec.field(default="active")
    principal: str | None = None
    workspace: str | None = None
    next_at: str | None = None
    last_at: str | None = None
    last_run_id: str | None = None
    queued_at: str | None = None


class Firing(Wire, frozen=True):
    scheduled_for: str
    run_id: str


class RunStarter(Protocol):
    """The methods of runs that schedules need."""

    async def check_run(self, request: CreateRun, tenant: str) -> object: ...

    async def create_run(
        self,
        request: CreateRun,
        tenant: str,
        principal: str | None = None,
        *,
        workspace: str | None = None,
        run_id: str | None = None,
        facts: Sequence[Fact] = (),
    ) -> RunCreated: ...

    async def get_run(self, run_id: str, tenant: str) -> RunSnapshot: ...

    async def shown_inputs(self, workflow_id: str, tenant: str, inputs: dict[str, Any]) -> dict[str, Any]: ...

    async def cancel(
        self, run_id: str, tenant: str, principal: str | None = None, reason: str | None = None
    ) -> RunStanding: ...

    def follow(self, run_id: str, tenant: str, from_sequence: int = 0) -> AsyncIterator[RunEvent]: ...


Attribution = Callable[[str, str, str], Awaitable[Sequence[Fact] | None]]
"""Returns facts about who owns a triggered run, by tenant, workflow and source; None when it must not start."""


class _State(msgspec.Struct):
    """One schedule in memory: its row of the table."""

    schedule_id: str
    tenant: str
    spec: ScheduleSpec
    created_ms: int
    principal: str | None
    workspace: str | None
    seq: int
    paused: bool
    done_ms: int  # every moment up to here is handled
    last_ms: int | None
    last_run: str | None
    queued_ms: int | None

    def become(self, other: _State) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))


_COLUMNS = ", ".join(_State.__struct_fields__)


def _state_of(row: tuple[Any, ...]) -> _State:
    state = _State(*row)
    state.spec, state.paused = canonical.decode(str(state.spec), ScheduleSpec), bool(state.paused)
    return state


class ScheduleTable:
    """The projection `schedules`: a row for each existing schedule. It is the only fold of a schedule's stream."""

    name = "schedules"
    version = 2
    prefix = "schedule/"
    schema = """
        CREATE TABLE schedules (
            schedule_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, spec TEXT NOT NULL, created_ms BIGINT NOT NULL,
            principal TEXT, workspace TEXT, seq BIGINT NOT NULL, paused BIGINT NOT NULL, done_ms BIGINT NOT NULL,
            last_ms BIGINT, last_run TEXT, queued_ms BIGINT
        );
        CREATE INDEX schedules_of ON schedules (tenant, schedule_id)
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            self._take(tx, record)

    def _take(self, tx: Transaction, record: Record) -> None:
        name, payload, ts = record.stream.removeprefix(self.prefix), record.payload, record.ts
        if record.type == "schedule.deleted":
            tx.execute("DELETE FROM schedules WHERE schedule_id = ?", (name,))
        elif record.type == "schedule.created":
            who = (payload.get("principal"), payload.get("workspace"))
            tx.execute(
                "INSERT INTO schedules VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL)",
                (name, payload["tenant"], _text(payload), ts, *who, record.seq, _is_paused(payload), ts),
            )
        else:
            change, values = _change(record)
            sql = f"UPDATE schedules SET seq = ?{change} WHERE schedule_id = ?"  # noqa: S608 - the words are ours
            tx.execute(sql, (record.seq, *values, name))


def _change(record: Record) -> tuple[str, tuple[Any, ...]]:
    """Return the SQL for a record's change of its schedule's row, and the values."""
    payload, at = record.payload, record.payload.get("scheduledFor")
    dealt_with = ", done_ms = CASE WHEN done_ms < ? THEN ? ELSE done_ms END"
    match record.type:
        case "schedule.updated":
            values = (_text(payload), _is_paused(payload), record.ts)
            return ", spec = ?, paused = ?, done_ms = ?, queued_ms = NULL", values
        case "schedule.paused":
            return ", paused = 1", ()
        case "schedule.resumed":
            return ", paused = 0, done_ms = ?", (record.ts,)  # T4
        case "schedule.fired":
            change = f"{dealt_with}, queued_ms = NULLIF(queued_ms, ?), last_ms = ?, last_run = ?"
            return change, (at, at, at, at, payload["runId"])
        case "schedule.skipped" | "schedule.failed":
            return f"{dealt_with}, queued_ms = NULLIF(queued_ms, ?)", (at, at, at)
        case "schedule.queued":
            return f"{dealt_with}, queued_ms = ?", (at, at, at)
        case _:
            return "", ()


def _text(payload: dict[str, Any]) -> str:
    return canonical.encode(payload["spec"]).decode()


def _is_paused(payload: dict[str, Any]) -> int:
    return int(payload["spec"].get("paused", False))


class Schedules:
    """The schedules of one host, and the loop that starts their runs."""

    def __init__(
        self,
        ledger: Ledger,
        runs: RunStarter,
        *,
        clock: Clock,
        ids: Ids,
        attribution: Attribution | None = None,
        locks: Locks | None = None,
    ) -> None:
        self._ledger = ledger
        self._locks = locks or Locks()
        self._runs = runs
        self._attribution = attribution
        self._clock = clock
        self._ids = ids
        self._states: dict[str, _State] = {}
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._wake = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._waiting: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        await self._load()
        self._loops = [asyncio.create_task(self._tick_all())]
        if self._locks.shared:
            self._loops.append(asyncio.create_task(self._follow()))

    async def _load(self) -> None:
        rows = await self._ledger.query(f"SELECT {_COLUMNS} FROM schedules")  # noqa: S608 - the columns are ours
        found = {state.schedule_id: state for state in map(_state_of, rows)}
        for name in self._states.keys() - found.keys():
            del self._states[name]
        for state in found.values():
            self._know(state)

    def _know(self, state: _State) -> None:
        known = self._states.setdefault(state.schedule_id, state)
        if known.seq < state.seq:
            known.become(state)

    async def _follow(self) -> None:
        """Follow what other processes do with schedules (T6)."""
        while True:
            with contextlib.suppress(Problem):  # the database is away
                position = await self._ledger.position()
                await self._load()
                self._wake.set()
                async with contextlib.aclosing(self._ledger.follow_all("schedule/", position)) as records:
                    async for _, record in records:
                        await self._read_again(record.stream.removeprefix("schedule/"))
                        self._wake.set()
            await asyncio.sleep(_AGAIN_SECONDS)

    async def close(self) -> None:
        tasks = [*self._waiting.values(), *self._loops]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # For callers

    async def create(
        self,
        spec: ScheduleSpec,
        tenant: str,
        principal: str | None = None,
        workspace: str | None = None,
        *,
        schedule_id: str | None = None,
    ) -> Schedule:
        """Create a schedule; a caller that must not create two gives the id, and gets the existing one."""
        await self._check(spec, tenant)
        if schedule_id is not None and await self._is_known(schedule_id):
            return await self.get(schedule_id, tenant)
        if sum(state.tenant == tenant for state in self._states.values()) >= MAX_PER_TENANT:
            raise Problem("state_conflict", f"The tenant has {MAX_PER_TENANT} schedules already.", limit=MAX_PER_TENANT)
        name = schedule_id or self._ids.new("sch")
        payload = {"spec": spec, "tenant": tenant, "principal": principal, "workspace": workspace}
        await self._ledger.append(f"schedule/{name}", [Draft("schedule.created", payload)], expect=-1)
        await self._read_again(name)
        self._wake.set()
        return await self._view(self._state(name, tenant))

    async def update(self, schedule_id: str, tenant: str, spec: ScheduleSpec) -> Schedule:
        await self._check(spec, tenant)
        async with self._alone(schedule_id, tenant) as state:
            await self._record(state, "schedule.updated", {"spec": spec})
        return await self._view(state)

    async def get(self, schedule_id: str, tenant: str) -> Schedule:
        await self._is_known(schedule_id)
        return await self._view(self._state(schedule_id, tenant))

    async def schedules(self, tenant: str) -> list[Schedule]:
        if self._locks.shared:
            await self._load()
        found = [state for state in self._states.values() if state.tenant == tenant]
        return [await self._view(state) for state in sorted(found, key=lambda item: item.schedule_id)]

    async def delete(self, schedule_id: str, tenant: str) -> None:
        async with self._alone(schedule_id, tenant) as state:
            await self._record(state, "schedule.deleted", {})
            self._states.pop(schedule_id, None)
        self._writing.pop(schedule_id, None)

    async def pause(self, schedule_id: str, tenant: str) -> Schedule:
        async with self._alone(schedule_id, tenant) as state:
            if not state.paused:
                await self._record(state, "schedule.paused", {})
        return await self._view(state)

    async def resume(self, schedule_id: str, tenant: str) -> Schedule:
        async with self._alone(schedule_id, tenant) as state:
            if state.paused:
                await self._record(state, "schedule.resumed", {})
        return await self._view(state)

    async def backfill(self, schedule_id: str, tenant: str, from_ms: int, to_ms: int) -> list[Firing]:
        """Start the runs of the past moments in [from, to], unless a moment has its run already (T1)."""
        await self._is_known(schedule_id)
        state = self._state(schedule_id, tenant)
        if not 0 <= from_ms <= to_ms <= self._clock.now_ms():
            message = "A range must begin in 1970 or later, have `from` before `to`, and be in the past."
            raise Problem("out_of_range", message, at="$.from")
        moments = cron.between(state.spec.cron, state.spec.timezone, from_ms - 1, to_ms, MAX_BACKFILL + 1)
        if len(moments) > MAX_BACKFILL:
            raise Problem("out_of_range", f"One backfill may have at most {MAX_BACKFILL} moments.", limit=MAX_BACKFILL)
        facts = await self._facts(state)
        if facts is None:
            raise Problem("state_conflict", "No roster entry that owns this workflow is enabled.")
        async with self._alone(schedule_id, tenant):
            await self._record(state, "schedule.backfilled", {"from": from_ms, "to": to_ms, "count": len(moments)})
        return [Firing(scheduled_for=iso(at), run_id=await self._begin(state, at, facts)) for at in moments]

    async def _check(self, spec: ScheduleSpec, tenant: str) -> None:
        """Refuse a schedule whose runs would be refused later."""
        cron.check(spec.cron, spec.timezone)
        await self._runs.check_run(_request(spec), tenant)

    @asynccontextmanager
    async def _alone(self, schedule_id: str, tenant: str) -> AsyncIterator[_State]:
        """Lock the schedule for the block, and yield its state; no other process changes it meanwhile (T6)."""
        await self._is_known(schedule_id)
        self._state(schedule_id, tenant)
        async with self._locks.at(f"schedule/{schedule_id}", lambda: self._read_again(schedule_id)):
            yield self._state(schedule_id, tenant)

    async def _is_known(self, schedule_id: str) -> bool:
        """Whether there is such a schedule; on a shared ledger, read it again first."""
        if self._locks.shared:
            await self._read_again(schedule_id)
        return schedule_id in self._states

    def _state(self, schedule_id: str, tenant: str) -> _State:
        state = self._states.get(schedule_id)
        if state is None or state.tenant != tenant:
            raise Problem("not_found", "There is no such schedule.")
        return state

    async def _view(self, state: _State) -> Schedule:
        """Return the schedule for callers: sensitive inputs are masked, as in its runs (W24)."""
        spec = state.spec
        inputs = await self._runs.shown_inputs(spec.workflow_id, state.tenant, spec.inputs)
        next_ms = None if state.paused else _next_ms(state)
        return Schedule(
            schedule_id=state.schedule_id,
            tenant=state.tenant,
            spec=msgspec.structs.replace(spec, inputs=inputs),
            created_at=iso(state.created_ms),
            state="paused" if state.paused else "active",
            principal=state.principal,
            workspace=state.workspace,
            next_at=None if next_ms is None else iso(next_ms),
            last_at=None if state.last_ms is None else iso(state.last_ms),
            last_run_id=state.last_run,
            queued_at=None if state.queued_ms is None else iso(state.queued_ms),
        )

    async def _record(self, state: _State, type: str, payload: dict[str, Any]) -> None:
        """Write one step of an existing schedule; the ledger refuses the same step of another process (T1)."""
        stream = f"schedule/{state.schedule_id}"
        async with self._writing[state.schedule_id]:
            self._state(state.schedule_id, state.tenant)
            await self._ledger.append(stream, [Draft(type, payload)], expect=state.seq)
            if type != "schedule.deleted" and (found := await self._look_up(state.schedule_id)) is not None:
                state.become(found)
        self._wake.set()

    async def _look_up(self, schedule_id: str) -> _State | None:
        sql = f"SELECT {_COLUMNS} FROM schedules WHERE schedule_id = ?"  # noqa: S608 - the columns are ours
        rows = await self._ledger.look_up(sql, (schedule_id,))
        return _state_of(rows[0]) if rows else None

    async def _read_again(self, schedule_id: str) -> None:
        """Read a schedule's current state from the ledger."""
        found = await self._look_up(schedule_id)
        if found is None:
            self._states.pop(schedule_id, None)
        else:
            self._know(found)

    # Ticking

    async def _tick_all(self) -> None:
        while True:
            self._wake.clear()
            soonest = min([await self._tick(state) for state in list(self._states.values())], default=None)
            pause = None
            if soonest is not None:
                pause = min(_RECHECK_SECONDS, max(0.0, (soonest - self._clock.now_ms()) / 1000))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _tick(self, state: _State) -> float:
        """Handle the due moments of one schedule; return when to look at it next."""
        now = self._clock.now_ms()
        try:
            if state.paused:
                return float("inf")
            if _next_ms(state) <= now:
                name = state.schedule_id
                async with self._locks.attempt(f"schedule/{name}", lambda: self._read_again(name)) as is_ours:
                    if not is_ours:
                        return now + 1_000  # another process handles it, and records that
                    if state.schedule_id in self._states and not state.paused and _next_ms(state) <= now:
                        await self._due(state, now)
            self._take_up_queued(state)
            return _next_ms(state)
        except Problem as problem:  # the host is full or closing, or another process writes: look again in a moment
            _log.warning("schedule %s waits: %s", state.schedule_id, problem.message)
            with contextlib.suppress(Problem):
                await self._read_again(state.schedule_id)
            return now + 1_000

    async def _due(self, state: _State, now: int) -> None:
        """Start every moment up to `now`, or record it as missed (T2)."""
        spec = state.spec
        due = cron.between(spec.cron, spec.timezone, state.done_ms, now, _CATCH_UP_MOST)
        chosen = {at for at in due if at >= now - _MISSED_MS or spec.catch_up == "all"}
        if spec.catch_up == "latest" and cron.next_ms(spec.cron, spec.timezone, due[-1]) > now:
            chosen.add(due[-1])
        for at in due:
            if at in chosen:
                await self._moment(state, at)
            else:
                await self._record(state, "schedule.skipped", {"scheduledFor": at, "reason": "missed"})

    async def _moment(self, state: _State, at: int) -> None:
        """Start the run of one moment, or record why not (T3)."""
        overlap = state.spec.overlap
        if overlap != "allow" and (state.queued_ms is not None or await self._is_active(state)):
            if overlap == "queue" and state.queued_ms is None:
                await self._record(state, "schedule.queued", {"scheduledFor": at})
                return
            if overlap != "cancel-previous":
                await self._record(state, "schedule.skipped", {"scheduledFor": at, "reason": "overlap"})
                return
            assert state.last_run is not None
            await self._runs.cancel(state.last_run, state.tenant, state.principal, "replaced by its schedule")
        await self._fire(state, at)

    async def _fire(self, state: _State, at: int) -> None:
        try:
            facts = await self._facts(state)
            if facts is None:
                await self._record(state, "schedule.skipped", {"scheduledFor": at, "reason": "disabled"})
                return
            run_id = await self._begin(state, at, facts)
        except Problem as problem:
            if problem.row.http >= 500:
                raise
            error = {"code": problem.row.openwop, "message": problem.message}
            await self._record(state, "schedule.failed", {"scheduledFor": at, "error": error})
        else:
            await self._record(state, "schedule.fired", {"scheduledFor": at, "runId": run_id})

    async def _facts(self, state: _State) -> Sequence[Fact] | None:
        """Return facts about the run's owner; None when no owner of the workflow is enabled."""
        if self._attribution is None:
            return ()
        return await self._attribution(state.tenant, state.spec.workflow_id, "schedule")

    async def _begin(self, state: _State, at: int, facts: Sequence[Fact] = ()) -> str:
        """Create the run of a moment, unless it exists; return its id (T1)."""
        run_id = _run_id(state.schedule_id, at)
        request = _request(state.spec, {"scheduleId": state.schedule_id, "scheduledFor": iso(at)})
        try:
            await self._runs.create_run(
                request, state.tenant, state.principal, workspace=state.workspace, run_id=run_id, facts=facts
            )
        except Problem as problem:
            if problem.details.get("activeRunId") != run_id:
                raise
        return run_id

    async def _is_active(self, state: _State) -> bool:
        if state.last_run is None:
            return False
        try:
            return (await self._runs.get_run(state.last_run, state.tenant)).status not in TERMINAL
        except Problem:
            return False

    def _take_up_queued(self, state: _State) -> None:
        """Wait for the previous run to end, then start the queued one."""
        name = state.schedule_id
        if state.queued_ms is not None and name not in self._waiting:
            self._waiting[name] = asyncio.create_task(self._after_previous(state))
            self._waiting[name].add_done_callback(lambda _: self._waiting.pop(name, None))

    async def _after_previous(self, state: _State) -> None:
        try:
            if state.last_run is not None:
                async for _ in self._runs.follow(state.last_run, state.tenant, 0):
                    pass
            name = state.schedule_id
            async with self._locks.at(f"schedule/{name}", lambda: self._read_again(name)):
                if state.queued_ms is not None and not state.paused and state.schedule_id in self._states:
                    await self._fire(state, state.queued_ms)
        except Problem as problem:  # it stays in the queue for the next look at the schedule
            _log.warning("schedule %s waits: %s", state.schedule_id, problem.message)


def _next_ms(state: _State) -> int:
    """Return the first moment that is not handled yet."""
    return cron.next_ms(state.spec.cron, state.spec.timezone, state.done_ms)


def _request(spec: ScheduleSpec, metadata: dict[str, Any] | None = None) -> CreateRun:
    """Return the request for a schedule's run."""
    return CreateRun(
        workflow_id=spec.workflow_id,
        inputs=spec.inputs,
        configurable=spec.configurable,
        tags=spec.tags,
        metadata=metadata or {},
    )


def _run_id(schedule_id: str, at: int) -> str:
    """Return the id of a moment's run: always the same, and sorted by time among other ids."""
    seed = hashlib.sha256(f"{schedule_id}\0{at}".encode()).digest()
    return Ids(ManualClock(at), SeededRandomness(seed)).new("run")

"""Where a run stands: the fold of its log, kept up to date event by event, and how callers see it (`snapshot`).

A run has a clock of its own: what happens in a run happens at the time it would have happened without a break.

- T1  Every event has two times: `ts`, when it was written, and `at`, when it happened by the run's own clock. Deadlines
      are computed from `at` and compared with the run's clock. It never goes back and never passes the wall clock.
- T2  While something takes real time (work under way, the pause before another attempt, a question that people can
      see), the run's clock keeps the pace of the wall clock, as far behind it as when that began. A run that only waits
      for time is not behind: its clock jumps from deadline to deadline up to the wall clock.
- T3  Deadlines are taken one by one, in the order of their due times, each with all that follows from it before the
      next. What callers do comes after everything that fell due before it.
- T4  Time in which no host was there, or that a clock jumped over, is not time that work had: a node that was under way
      begins again when the run is taken up, with its full time. A run's clock is behind by at most the host's longest
      run duration, so a run that kills its host each time still ends.
- T5  Runs of one family (parents, children, not detached ones) catch up together: none takes a deadline that fell due
      after what another has still to do. A child's end reaches its parent, and a parent's end its children, at the time
      of that end.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import msgspec

from forestay.kernel import Problem, iso
from forestay.runs import channels
from forestay.runs.conditions import Scope, make_scope
from forestay.runs.plan import Plan
from forestay.runs.secrets import MASK, cover, cover_run
from forestay.runs.spending import RunBudget
from forestay.runs.types import ENGINE_VERSION, Limits, Owner, RunError, RunSnapshot, RunStatus

ENDED = frozenset({"completed", "failed", "skipped", "cancelled"})
WITH_PARENT = "parent-cancelled"
"""Why a run was cancelled whose parent was."""
MAX_HEARD = 10_000
"""So many ids of signals a run remembers: one is asked for again when its answer was lost, not days later."""
# Node statuses beyond the ended ones: idle, running, retrying, sleeping, child, approval, input, external, and stopped:
# it would run, but the run is paused.
EXECUTING = ("running", "retrying", "sleeping", "child")
WAITING: tuple[tuple[str, RunStatus], ...] = (
    ("approval", "waiting-approval"),
    ("input", "waiting-input"),
    ("external", "waiting-external"),
)
# The contract gives a conversation no status of its own: it waits for an approval (OpenWOP, interrupt.md).
WAIT_OF_KIND = {
    "approval": "approval",
    "low-confidence": "approval",
    "conversation.start": "approval",
    "conversation.exchange": "approval",
    "conversation.close": "approval",
    "external-event": "external",
}


_SHOWN = {
    "approval": "suspended",
    "input": "suspended",
    "external": "suspended",
    "stopped": "suspended",
    "idle": "pending",
}
"""What callers are shown for the statuses of a node that the contract does not have."""
REAL = frozenset({"running", "retrying", "approval", "input", "external"})
"""A node in one of these takes real time: code works, a service is left in peace between attempts, a person thinks."""


class Event(msgspec.Struct):
    """An event of a run, before or after it has its place in the log. `private` is durable but not shown; `ts` is the
    time of the wall clock, `at` that of the run's own clock (T1)."""

    type: str
    payload: dict[str, Any]
    node: str | None = None
    private: dict[str, Any] | None = None
    cause: str | None = None
    id: str = ""
    ts: int = 0
    seq: int = -1
    at: int = 0


class Said(msgspec.Struct, frozen=True):
    """What a node's code put into the log at one place of an attempt; `value` is what a variable was set to, `id` the
    event's."""

    attempt: int
    type: str
    payload: dict[str, Any]
    value: Any = None
    id: str = ""


class NodeState(msgspec.Struct):
    """One node of a run. `memo` holds what this iteration of the node has on record, until the node ends (OpenWOP
    §1.5 layer 2)."""

    status: str = "idle"
    attempt: int = 0
    iteration: int = 0
    success: int = 0
    failed: int = 0
    skipped: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    lag: int = 0
    wake: tuple[str, int] | None = None
    timeout_at: int | None = None
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    memo: dict[str, Any] = {}
    interrupt: str | None = None
    sessions: dict[str, str] = {}  # open sessions with tools: the tool's id by the session's


class InterruptState(msgspec.Struct):
    """A question that the run asked."""

    id: str
    node: str
    kind: str
    key: str
    data: Any
    asked_ms: int
    resume_schema: dict[str, Any] | None = None
    timeout_ms: int | None = None
    default: Any = None
    status: str = "open"
    timed_out: bool = False
    withdrawn: bool = False  # its run was cancelled with the run that had started it
    votes: dict[str, str] = {}
    asked: list[dict[str, Any]] = []


class Standing(NamedTuple):
    """What others are told of a run with each batch of its events."""

    status: RunStatus
    wake: int | None
    busy: bool
    questions: int


class RunState(msgspec.Struct):
    """Everything that deciding and showing a run needs. Only `evolve` changes it."""

    run_id: str
    plan: Plan
    limits: Limits
    seq: int = -1
    ts: int = 0
    at: int = 0
    ended: RunStatus | None = None
    paused_ms: int | None = None
    pausing: dict[str, Any] | None = None  # what `run.paused` will say, once the nodes under way have ended
    created_ms: int = 0
    begun: int = 0
    ended_ms: int = 0
    deadline: int | None = None
    duration_limit: int = 0
    execution_limit: int = 0
    executions: int = 0
    started: dict[str, Any] = {}
    owner: Owner | None = None
    inputs: dict[str, Any] = {}
    variables: dict[str, Any] = {}
    configurable: dict[str, Any] = {}
    outputs: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    failure: str | None = None
    nodes: dict[str, NodeState] = {}
    edges: dict[str, str] = {}
    channels: dict[str, channels.ChannelState] = {}
    active: dict[str, None] = {}
    counts: dict[str, int] = {}
    dirty: list[tuple[int, str]] = []
    forced: set[str] = set()
    loops: list[str] = []
    iterations: dict[str, int] = {}
    timers: list[tuple[int, str, str]] = []
    late: list[tuple[int, str]] = []  # what takes real time and began behind the wall clock, the latest first
    interrupts: dict[str, InterruptState] = {}
    answers: dict[str, Any] = {}
    answered: dict[str, None] = {}
    children: dict[str, tuple[str, str]] = {}
    had_children: bool = False  # it, or the run that it is a fork of
    orphans: dict[str, None] = {}  # children whose node has ended: to be cancelled, no longer heard
    signals: dict[str, list[Any]] = {}
    check_signals: bool = False
    heard: dict[str, None] = {}  # ids of the last signals that had one
    artifacts: dict[str, dict[str, Any]] = {}
    pins: dict[str, int] = {}
    refusals: dict[str, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    budget: RunBudget | None = None
    agent: dict[str, Any] | None = None
    orchestrator: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None
    decided: str | None = None  # the id of the event that says so
    dispatches: int = 0
    parent: dict[str, Any] | None = None
    source: dict[str, Any] | None = None
    lease: str | None = None
    secrets: set[str] = set()  # texts that no caller may see (H1)

    @property
    def status(self) -> RunStatus:
        if self.ended is not None:
            return self.ended
        if self.paused_ms is not None:
            return "paused"
        counts = self.counts
        if self.executing:
            return "running"
        for wait, status in WAITING:
            if counts.get(wait):
                return status
        return "running"

    @property
    def open_questions(self) -> int:
        """How many interrupts wait for an answer."""
        if self.ended is not None or not any(self.counts.get(wait) for wait, _ in WAITING):
            return 0
        return sum(asked.status == "open" for asked in self.interrupts.values())

    @property
    def standing(self) -> Standing:
        return Standing(self.status, self.next_wake(), self.busy, self.open_questions)

    @property
    def executing(self) -> bool:
        """Whether a node is under way, rather than waiting for an answer."""
        return any(map(self.counts.get, EXECUTING))

    @property
    def waits_for_children(self) -> bool:
        """Whether every node under way waits for its children (W21)."""
        parents = {name for name, _ in self.children.values()}
        under_way = {name for name in self.active if self.nodes[name].status in EXECUTING}
        return bool(parents) and under_way <= parents

    @property
    def busy(self) -> bool:
        """Whether something is to be done now, rather than waited for."""
        if self.ended is not None:
            return False
        ready = self.paused_ms is None and self.pausing is None and (self.dirty or self.loops)
        return bool(self.counts.get("running") or self.failure or ready)

    def next_due(self) -> int | None:
        """The next deadline, in the run's own time."""
        if self.ended is not None:
            return None
        due = self.deadline
        if self.paused_ms is None:
            timers = self.timers
            while timers and not self.is_live(timers[0]):
                heapq.heappop(timers)
            if timers and (due is None or timers[0][0] < due):
                due = timers[0][0]
        return due

    def reach(self, now: int, acting: int) -> tuple[int, int | None]:
        """How far the run's own clock may go at `now`, and its next deadline. `acting`: how late other work is (T2)."""
        return now - max(self.lag, acting), self.next_due()

    def next_wake(self) -> int | None:
        """When, by the wall clock, time alone will move this run."""
        due = self.next_due()
        return None if due is None else due + self.lag

    @property
    def lag(self) -> int:
        """How far the run's own clock is behind the wall clock, for what takes real time (T2)."""
        late = self.late
        while late and not self._is_late(*late[0]):
            heapq.heappop(late)
        return -late[0][0] if late else 0

    def _is_late(self, lag: int, name: str) -> bool:
        """Children take the time of the node that waits for them."""
        node = self.nodes[name]
        waits = node.lag == -lag and node.status in REAL
        return waits and not any(owner == name for owner, _ in self.children.values())

    def is_live(self, timer: tuple[int, str, str]) -> bool:
        due, kind, name = timer
        if kind == "interrupt":
            found = self.interrupts.get(name)
            return found is not None and found.status == "open"
        node = self.nodes[name]
        if kind == "timeout":
            return node.timeout_at == due and node.status not in ENDED
        return node.wake == (kind, due)

    def scope(
        self,
        output: Any = None,
        status: str | None = None,
        extra: dict[str, Any] | None = None,
        reader: tuple[str, str] | None = None,
    ) -> Scope:
        """The names an expression can read (W12); `reader` is the node and its type, where not the document reads."""
        return make_scope(
            output=output,
            status=status,
            inputs=self.inputs,
            variables=self.variables,
            channels=lambda: _Channels(self, reader),
            nodes=lambda: _Nodes(self),
            extra=extra,
        )


class _Nodes(dict[str, Any]):
    """`nodes.<id>`: made when it is asked for."""

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state

    def get(self, key: str, default: Any = None) -> Any:
        node = self._state.nodes.get(key)
        return default if node is None else {"output": node.outputs, "status": node.status, "error": node.error}


class _Channels(dict[str, Any]):
    def __init__(self, state: RunState, reader: tuple[str, str] | None) -> None:
        super().__init__()
        self._state = state
        self._reader = reader

    def get(self, key: str, default: Any = None) -> Any:
        if self._reader is not None:
            check_reader(self._state, key, *self._reader)
        found = self._state.channels.get(key)
        return default if found is None else channels.read(found, self._state.at)


def check_reader(state: RunState, channel: str, node: str, type_id: str) -> None:
    """Refuse a node that is not among a channel's readers (OpenWOP §1.6)."""
    declared = state.plan.workflow.channels.get(channel)
    if declared is not None and not channels.allowed(declared, "readers", node, type_id):
        raise Problem("channel_access_denied", f"The node {node!r} may not read {channel!r}.", channel=channel)


def shown_outputs(state: RunState, name: str, outputs: dict[str, Any]) -> dict[str, Any]:
    """A node's outputs as every caller may see them: what its document calls sensitive is masked."""
    hidden = state.plan.nodes[name].doc.output_sensitivity
    return {key: MASK if hidden.get(key) else value for key, value in outputs.items()} if hidden else outputs


def new_state(run_id: str, plan: Plan, limits: Limits) -> RunState:
    """A run before its first event."""
    state = RunState(run_id, plan, limits)
    state.nodes = {name: NodeState() for name in plan.nodes}
    return state


# What it looks like from outside: nothing sensitive (W4)


def snapshot(state: RunState, now: int) -> RunSnapshot:
    """The run as GET /v1/runs/{runId} shows it."""
    now = state.at if state.ended is not None else now - state.lag  # an ended run grows no older
    started = state.started
    hidden = state.plan.sensitive
    error, status, created = state.error, state.status, iso(state.created_ms)
    shown = RunSnapshot(
        run_id=state.run_id,
        workflow_id=state.plan.workflow.id,
        workflow_version=state.plan.workflow.version,
        status=status,
        owner=state.owner,
        current_node_id=current_node(state, status),
        created_at=created,
        started_at=created,
        completed_at=iso(state.ended_ms) if state.ended is not None else None,
        paused_at=iso(state.paused_ms) if state.paused_ms is not None else None,
        agent=state.agent,
        run_orchestrator=state.orchestrator,
        node_states={
            name: _node(node) for name, node in state.nodes.items() if node.status != "idle" or node.iteration
        },
        inputs=started.get("inputs", {}),
        variables={name: MASK if name in hidden else value for name, value in state.variables.items()},
        channels={name: _channel(item, now) for name, item in state.channels.items()},
        outputs=state.outputs,
        error=None
        if error is None
        else RunError(code=error["code"], message=error["message"], details=error.get("details")),
        engine_version=started.get("engineVersion", ENGINE_VERSION),
        tags=started.get("tags", []),
        metadata=started.get("metadata", {}),
        configurable=state.configurable,
        metrics={"openwopCost": state.usage} if state.usage else None,
        scope_id=started.get("scopeId"),
        parent_run_id=state.parent["runId"] if state.parent else None,
        parent_node_id=state.parent["nodeId"] if state.parent else None,
        source_run_id=state.source["source"] if state.source else None,
        last_sequence=state.seq,
    )
    return cover_run(state, shown) if state.secrets else shown


def scope_of(state: RunState, now: int) -> Scope:
    """What an expression of a caller can name: the snapshot's values and each node's status, error and output."""
    shown = snapshot(state, now)
    nodes = {
        name: {
            "status": node.status,
            "error": node.error,
            "output": shown_outputs(state, name, node.outputs) if node.outputs else None,
        }
        for name, node in state.nodes.items()
    }
    names = {
        **shown.variables,  # a name alone is a variable as it is shown: a hidden one answers no question
        "status": state.status,
        "variables": shown.variables,
        "channels": shown.channels,
        "inputs": shown.inputs,
        "nodes": cover(state, nodes),
    }
    return state.scope({}, state.status, names)


def current_node(state: RunState, status: RunStatus) -> str | None:
    """The node that holds the interrupt, when the run waits for one."""
    if not status.startswith("waiting"):
        return None
    return next((name for name in state.active if state.nodes[name].interrupt is not None), None)


def _node(node: NodeState) -> dict[str, Any]:
    shown: dict[str, Any] = {"status": _SHOWN.get(node.status, node.status), "attempt": node.attempt}
    if node.started_ms:
        shown["startedAt"] = iso(node.started_ms)
    if node.ended_ms and node.status in ("completed", "failed", "skipped", "cancelled"):
        shown["endedAt"] = iso(node.ended_ms)
    if node.iteration:
        shown["iteration"] = node.iteration
    if node.error is not None:
        shown["error"] = node.error
    if node.interrupt is not None:
        shown["interruptId"] = node.interrupt
    return shown


def _channel(item: channels.ChannelState, now: int) -> Any:
    return MASK if item.sensitive else channels.read(item, now)

"""`Runs`: everything that HTTP, the command line and the console ask of runs.

Every method that names a run takes the caller's tenant; a run of another tenant is `not_found` (OpenWOP §1.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Self

import msgspec

from forestay.kernel import Clock, Ids, Ledger, Problem, Projection, Randomness, Workers, iso
from forestay.models import Model
from forestay.runs import artifacts, fork, views
from forestay.runs.answering import Answering
from forestay.runs.bundle import debug_bundle
from forestay.runs.check import check_workflow
from forestay.runs.commands import Cancel, Pause, Resume, SetVariables, Signal
from forestay.runs.diff import diff_runs
from forestay.runs.engine import Engine
from forestay.runs.expressions import compile_expression
from forestay.runs.interrupts import NOBODY, Voter
from forestay.runs.leases import LogLeases, SharedLeases
from forestay.runs.log import DigestsProjection, EnginesProjection, RunsProjection
from forestay.runs.mock_models import MockModels
from forestay.runs.node_view import NodeView, node_view, retry_point
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeRegistry
from forestay.runs.ports import (
    Fact,
    Governor,
    HttpConnector,
    MemorySource,
    ModelSource,
    Ports,
    PromptSource,
    ToolSource,
)
from forestay.runs.secrets import masked
from forestay.runs.shown_events import ShownEvents
from forestay.runs.state import Event, RunState, scope_of, snapshot
from forestay.runs.types import (
    ENGINE_VERSION,
    TERMINAL,
    TERMINAL_EVENTS,
    Ancestry,
    Artifact,
    BulkResult,
    ChildRun,
    CreateRun,
    DrainPolicy,
    EventPage,
    ForkRequest,
    Interrupt,
    InterruptView,
    Limits,
    Load,
    Resolved,
    RunCreated,
    RunDiff,
    RunEvent,
    RunFilter,
    RunForked,
    RunPage,
    RunSnapshot,
    RunStanding,
    Transport,
    WorkflowCheck,
    WorkflowVersion,
)
from forestay.runs.workflows import Condition, Stored, Workflows, check_engine, version_of

MAX_BULK = 100
_SWEEP_SECONDS = 1.0
_SHARED_SWEEP_SECONDS = 0.25  # what another process made or left is found within this
MAX_CHILDREN = 1_000
"""How many children a parent's snapshot lists; `GET /v1/runs?parentRunId=` lists them all."""


def projections() -> list[Projection]:
    """The projections that a ledger must be opened with for `Runs` to work on it."""
    return [RunsProjection(), EnginesProjection(), DigestsProjection()]


class Runs:
    """The runs service over one ledger. `async with Runs(...)` starts and closes it."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Clock,
        ids: Ids,
        randomness: Randomness,
        secret: bytes,
        nodes: NodeRegistry | None = None,
        models: ModelSource | None = None,
        tools: ToolSource | None = None,
        http: HttpConnector | None = None,
        memory: MemorySource | None = None,
        prompts: PromptSource | None = None,
        governor: Governor | None = None,
        capabilities_of: Callable[[Model], frozenset[str]] | None = None,
        secrets: Callable[[str, str], Awaitable[str | None]] | None = None,
        limits: Limits | None = None,
        instance: str = "host",
        sample_seams: bool = False,
        lease_seconds: float = 30.0,
        sweep_seconds: float | None = None,
        workers: Workers | None = None,
        room: int | None = None,
        replays_ask: bool = False,
    ) -> None:
        """`secret` signs interrupt tokens; `instance` names this engine: a restart under the same name takes its
        runs back at once, another instance only when the lease has run out.

        `workers`, as `ledger.workers(name, QUEUE)` gives them: other processes carry runs of this ledger too, each
        under a name of its own, which is then the `instance`. `room`: how many runs this one carries at a time; what
        is more, another one takes up. `replays_ask`: a replay asks models again whether they refuse (K6)."""
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._limits = limits or Limits()
        self._governor = governor
        self._registry = nodes or standard_registry(sample_seams=sample_seams)
        self._workflows = Workflows(ledger, self._registry, self._limits, shared=workers is not None)
        self.mocks = MockModels(models, programs=sample_seams)
        asked = self.mocks if models is not None or sample_seams else None
        instance = instance if workers is None else workers.name
        leases = SharedLeases(workers, clock, ledger) if workers else LogLeases(ledger, clock, instance, lease_seconds)
        self._engine = Engine(
            ledger,
            self._workflows,
            self._registry,
            Ports(asked, tools, http, governor, memory, prompts, capabilities_of, secrets),
            clock=clock,
            ids=ids,
            randomness=randomness,
            limits=self._limits,
            instance=instance,
            leases=leases,
            lease_seconds=lease_seconds,
            sweep_seconds=sweep_seconds or (_SHARED_SWEEP_SECONDS if leases.shared else _SWEEP_SECONDS),
            room=room,
            replays_ask=replays_ask,
        )
        self._answering = Answering(self._engine, secret)
        self._events = ShownEvents(ledger, self._workflows, self._engine)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Life

    async def start(self) -> None:
        """Take the lease, take up what was left, and begin the continuous sweep."""
        await self._engine.start()

    async def drain(self, timeout: float = 10.0) -> None:
        """Take no new run, let running nodes reach a recorded point or stop them after `timeout` seconds."""
        await self._engine.drain(timeout)

    async def close(self) -> None:
        """Stop what runs, and record what it has done; it goes on at the next start."""
        await self._engine.close()

    def load(self) -> Load:
        return Load(
            loaded_runs=self._engine.loaded, executing_nodes=self._engine.executing, draining=self._engine.draining
        )

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def replays_ask(self) -> bool:
        """Whether a replay asks models again whether they refuse (K6)."""
        return self._engine.replays_ask

    @property
    def node_types(self) -> list[str]:
        """The node types that can really run here, with what is wired (W6)."""
        ports = self._engine.ports
        return sorted(item.type_id for item in self._registry if all(ports.has(name) for name in item.requires))

    # Workflows

    async def put_workflow(
        self,
        document: dict[str, Any],
        *,
        tenant: str | None,
        principal: str | None = None,
        workflow_id: str = "",
        condition: Condition | None = None,
    ) -> WorkflowVersion:
        """Store a definition; `workflow_invalid` with located `errors` when it does not hold. The same document again
        makes no new revision. `tenant` None stores it for every tenant. `workflow_id`, when given, must be its id.
        A put whose `condition` does not hold is `precondition_failed`; one without comes after those before it."""
        if workflow_id and isinstance(document, dict) and document.get("id") != workflow_id:
            raise Problem("schema_mismatch", f"The document's id is not {workflow_id!r}.", at="$.id")
        return await self._workflows.put(document, tenant, principal, condition)

    async def get_workflow(self, workflow_id: str, tenant: str, revision: int | None = None) -> dict[str, Any]:
        """The definition document, the latest unless `revision` says otherwise; `not_found`."""
        return (await self.stored_workflow(workflow_id, tenant, revision)).document

    async def stored_workflow(self, workflow_id: str, tenant: str, revision: int | None = None) -> Stored:
        """The same with its digest."""
        return await self._workflows.revision(workflow_id, tenant, revision)

    async def stored_workflows(self, tenant: str) -> list[Stored]:
        """The latest revision of each workflow that the tenant can run, by id."""
        return await self._workflows.listed(tenant)

    async def list_workflows(self, tenant: str) -> list[WorkflowVersion]:
        """The same without their documents."""
        return [version_of(stored) for stored in await self.stored_workflows(tenant)]

    def check_workflow(self, document: Any) -> WorkflowCheck:
        """Located errors and warnings, nothing stored."""
        return check_workflow(document, self._registry, self._limits)[1]

    # Runs

    async def check_run(self, request: CreateRun, tenant: str, *, trusted: bool = False) -> Stored:
        """The workflow that `request` would run, after refusing all that `create_run` refuses."""
        return await self._workflows.requested(request, tenant, trusted=trusted)

    async def create_run(
        self,
        request: CreateRun,
        tenant: str,
        principal: str | None = None,
        *,
        workspace: str | None = None,
        dedup: bool = False,
        engine_version: str | None = None,
        transport: Transport | None = "rest",
        causation_id: str | None = None,
        run_id: str | None = None,
        trusted: bool = False,
        facts: Sequence[Fact] = (),
    ) -> RunCreated:
        """Start a run; it is on disk when this returns.

        `dedup`: `run_already_active` with `activeRunId` when (tenant, workflowId, scopeId) has an active run (W9).
        `run_id`: a caller that must not start twice (schedules) gives the id; a second call is `run_already_active`.
        `trusted`: the key is a test key: `mockProvider` and a forced engine version are allowed.
        `facts`: what the caller decided about the run; its events follow `run.started` at once.
        `transport`: what the request came by, in the contract's words; None where nobody asked.
        """
        if engine_version is not None:
            check_engine(engine_version, trusted=trusted)
        stored = await self.check_run(request, tenant, trusted=trusted)
        run_id = run_id or self._ids.new("run")
        owner: dict[str, Any] = {"tenant": tenant}
        if workspace is not None:
            owner["workspace"] = workspace
        if principal is not None:
            owner["principal"] = principal
        event = self._engine.started_event(
            stored,
            request.inputs,
            owner=owner,
            transport=transport,
            engineVersion=engine_version or ENGINE_VERSION,
            configurable=request.configurable,
            tags=request.tags,
            metadata=request.metadata,
            scopeId=request.scope_id,
            callbackUrl=request.callback_url,
        )
        event.cause = causation_id
        told = [*facts, *await self._decided(request, tenant, stored, facts)]
        events = [event, *(Event(fact.type, fact.payload, None, fact.private, id=fact.id) for fact in told)]
        if dedup:
            state = await self._engine.create_alone(run_id, stored, events, request.scope_id, tenant)
        else:
            state = await self._engine.create(run_id, stored, events)
        return RunCreated(
            run_id=run_id,
            status=state.status,
            events_url=f"/v1/runs/{run_id}/events",
            status_url=f"/v1/runs/{run_id}",
        )

    async def _decided(self, request: CreateRun, tenant: str, stored: Stored, facts: Sequence[Fact]) -> Sequence[Fact]:
        """What the governor decides about a run, where its caller has not decided it."""
        governor = self._governor
        if governor is None:
            return ()
        agents = [node.agent for node in stored.plan.workflow.nodes if node.agent is not None]
        if not (agents or governor.limits_runs or "budget" in request.configurable):
            return ()
        known = {fact.type for fact in facts}
        return [fact for fact in await governor.facts(request, tenant, agents) if fact.type not in known]

    async def get_run(self, run_id: str, tenant: str) -> RunSnapshot:
        return await self._shown(await self._state(run_id, tenant))

    async def _shown(self, state: RunState) -> RunSnapshot:
        """A run with its children, and with their waiting where it waits for nothing else (W21)."""
        shown = snapshot(state, state.at if state.ended is not None else self._clock.now_ms())
        if not state.had_children:
            return shown
        rows = await self._ledger.look_up(
            "SELECT run_id, workflow_id, status FROM runs WHERE parent = ? ORDER BY run_id LIMIT ?",
            (state.run_id, MAX_CHILDREN),
        )
        if not rows:
            return shown
        children = [ChildRun(run_id=run_id, workflow_id=name, status=status) for run_id, name, status in rows]
        status = await self._engine.status(state.run_id) if shown.status == "running" else None
        if status is None or not status.startswith("waiting"):
            status = shown.status  # a run that has gone on meanwhile is shown as it was, whole
        return msgspec.structs.replace(shown, child_runs=children, status=status)

    async def list_runs(self, filters: RunFilter, tenant: str, cursor: str | None = None, limit: int = 50) -> RunPage:
        """Newest first. A cursor that is none of ours is `validation_error`; `limit` is 1..200."""
        return await views.list_runs(self._ledger, filters, tenant, cursor, limit)

    async def count_runs(self, tenant: str) -> dict[str, int]:
        """How many runs the tenant has, by status."""
        return await views.count_runs(self._ledger, tenant)

    async def count_questions(self, tenant: str) -> int:
        """How many questions the tenant's runs ask now."""
        return await views.count_questions(self._ledger, tenant)

    async def asking(self, tenant: str, limit: int) -> list[tuple[str, str]]:
        """The runs that ask something now, oldest first: id and workflow."""
        return await views.asking(self._ledger, tenant, limit)

    async def search(
        self,
        tenant: str,
        filters: RunFilter,
        text: str = "",
        *,
        sort: views.Sort = "newest",
        start: int = 0,
        limit: int = 50,
    ) -> views.DigestPage:
        """The runs that match, as people read them: `text` is looked for in inputs, workflows, tags, errors and ids."""
        return await views.search(self._ledger, tenant, filters, text, sort, start, limit)

    def forget(self, run_ids: Iterable[str]) -> None:
        """Drop ended runs from memory: their records were removed."""
        self._engine.forget(run_ids)

    async def trend(self, tenant: str, since: int, span_ms: int, spans: int) -> list[views.Span]:
        """What the runs that began in each of `spans` stretches of time used, and how they ended."""
        return await views.trend(self._ledger, tenant, since, span_ms, spans)

    async def events(
        self, run_id: str, tenant: str, from_sequence: int = 0, limit: int | None = None
    ) -> list[RunEvent]:
        """Events with sequence >= `from_sequence`, in order."""
        await self._own(run_id, tenant)
        return await self._events.read(run_id, from_sequence, limit)

    async def follow(self, run_id: str, tenant: str, from_sequence: int = 0) -> AsyncIterator[RunEvent]:
        """Events from `from_sequence` on, live; ends after the terminal event. `not_found` at the first step."""
        await self._own(run_id, tenant)
        async for event in self._events.follow(run_id, from_sequence):
            yield event

    async def wait(self, run_id: str, tenant: str) -> RunSnapshot:
        """The run when it has ended; nothing is read from the disk for a run that this engine carries."""
        while True:
            found = await self._engine.find(run_id)
            state = found if isinstance(found, RunState) else found.state
            if state.owner is None or state.owner.tenant != tenant:
                raise Problem("not_found", "There is no such run.", runId=run_id[:128])
            if isinstance(found, RunState):
                return await self._shown(found)
            if not self._engine.started:
                raise Problem("unavailable", "The engine is closing.", retry_after_ms=1000)
            if found.owned:
                await found.over()
            else:  # another instance's: its log tells
                async for _ in self._events.live(run_id, 0):
                    pass

    async def poll(self, run_id: str, tenant: str, last_sequence: int = -1, timeout: float = 30.0) -> EventPage:
        """Events after `last_sequence` (exclusive, W8), waiting up to `timeout` seconds for the first one.
        Without a timeout: what is there."""
        over = await self._own(run_id, tenant) in TERMINAL  # asked first: a run may end while its events are read
        events = await self._events.read(run_id, last_sequence + 1)
        if not events and not over and timeout:
            try:
                async with asyncio.timeout(timeout):
                    async for event in self._events.follow(run_id, last_sequence + 1):
                        events = [event]
                        break
            except TimeoutError:
                pass
            if events:
                events = await self._events.read(run_id, last_sequence + 1)
        if events:
            over = events[-1].type in TERMINAL_EVENTS
        return EventPage(events=events, is_complete=over)

    async def cancel(
        self, run_id: str, tenant: str, principal: str | None = None, reason: str | None = None
    ) -> RunStanding:
        """Cancel a run and its children; an ended run answers with its status."""
        await self._own(run_id, tenant)
        return RunStanding(run_id=run_id, status=await self._engine.inbox.ask(run_id, Cancel(principal, reason)))

    async def bulk_cancel(
        self, run_ids: Sequence[str], tenant: str, principal: str | None = None, reason: str | None = None
    ) -> list[BulkResult]:
        """One result per id in the order asked; more than 100 or none is `validation_error` with `maxRunIds`."""
        if not 1 <= len(run_ids) <= MAX_BULK:
            raise Problem("out_of_range", f"Name 1 to {MAX_BULK} runs.", at="$.runIds", maxRunIds=MAX_BULK)
        results = []
        for run_id in run_ids:
            try:
                standing = await self.cancel(run_id, tenant, principal, reason)
                results.append(BulkResult(run_id=run_id, ok=True, status=standing.status))
            except Problem as problem:
                said = problem.as_openwop()
                error = {"code": said.pop("error"), **said}  # W22
                results.append(BulkResult(run_id=run_id, ok=False, error=error))
        return results

    async def pause(
        self,
        run_id: str,
        tenant: str,
        principal: str | None = None,
        reason: str | None = None,
        drain_policy: DrainPolicy = "drain-current-node",
    ) -> RunStanding:
        """Start no further node (W17). Nodes under way end first; with `immediate` they are given up, and started again
        on resume. 409 with `runStatus` when the run is not one that can be paused."""
        await self._own(run_id, tenant)
        await self._engine.inbox.ask(run_id, Pause(drain_policy, reason))
        state = await self._engine.state(run_id)
        return RunStanding(run_id=run_id, status="paused", paused_at=iso(state.paused_ms or self._clock.now_ms()))

    async def resume(self, run_id: str, tenant: str, principal: str | None = None) -> RunStanding:
        """Go on after `pause`; 409 with `runStatus` otherwise."""
        await self._own(run_id, tenant)
        await self._engine.inbox.ask(run_id, Resume(principal))
        state = await self._engine.state(run_id)
        return RunStanding(run_id=run_id, status=state.status, resumed_at=iso(self._clock.now_ms()))

    async def fork(
        self, run_id: str, tenant: str, request: ForkRequest, *, trusted: bool = False, fork_id: str | None = None
    ) -> RunForked:
        """A new run with the history of this one; `trusted` as for `create_run`. A caller that must not make two gives
        the `fork_id`, and is told of the one that is there."""
        await self._own(run_id, tenant)
        return await fork.fork_run(self._engine, run_id, request, trusted=trusted, fork_id=fork_id)

    async def node(self, run_id: str, node_id: str, tenant: str) -> NodeView:
        """One node of a run with its attempts; `not_found`."""
        return node_view(await self._state(run_id, tenant), node_id, await self.events(run_id, tenant))

    async def retry(self, run_id: str, tenant: str, *, trusted: bool = False) -> RunForked:
        """Do a failed run's failed node anew, and all after it: a branch, so what was done before it stays done."""
        point = retry_point(await self.events(run_id, tenant))
        if point is None:
            raise Problem("state_conflict", "No node of this run failed, so none can be tried again.", runId=run_id)
        return await self.fork(run_id, tenant, ForkRequest(mode="branch", from_seq=point.sequence), trusted=trusted)

    async def diff(self, run_id: str, against: str, tenant: str) -> RunDiff:
        a, b = await self.get_run(run_id, tenant), await self.get_run(against, tenant)
        return diff_runs(a, b, await self.events(run_id, tenant), await self.events(against, tenant))

    async def ancestry(self, run_id: str, tenant: str) -> Ancestry:
        state = await self._state(run_id, tenant)
        host = self._engine.instance
        parent = state.parent
        shown = {"runId": parent["runId"], "hostId": host, "cause": parent["cause"]} if parent else None
        return Ancestry(run_id=run_id, host_id=host, parent=shown)

    async def debug_bundle(self, run_id: str, tenant: str) -> dict[str, Any]:
        """The redacted bundle of one run (W15)."""
        run = await self.get_run(run_id, tenant)
        return debug_bundle(run, await self.events(run_id, tenant), self._clock.now_ms())

    # Interrupts, signals, queries, artifacts

    async def interrupts(
        self, run_id: str, tenant: str, principal: str = NOBODY, *, delegate: bool = False
    ) -> list[Interrupt]:
        """The open interrupts with fresh tokens (W7), which answer as `principal`. With `delegate`, the right to speak
        for others, also one for each of a gate's approvers (W18)."""
        return self._answering.open(await self._state(run_id, tenant), Voter(principal, delegate))

    async def inspect_token(self, token: str) -> InterruptView:
        """`not_found` for a token that we did not sign, `interrupt_expired` when its time is over."""
        return await self._answering.inspect(token)

    async def resolve_by_token(self, token: str, body: dict[str, Any]) -> Resolved:
        """Answer with `{"resumeValue": …}` as the one that the token names; see W7 for what each refusal is."""
        return await self._answering.resolve_by_token(token, body)

    async def resolve_by_node(
        self,
        run_id: str,
        node_id: str,
        tenant: str,
        body: dict[str, Any],
        principal: str = NOBODY,
        *,
        delegate: bool = False,
    ) -> Resolved:
        """Answer as `principal`; with `delegate` the body's `voter` may name another person (W18)."""
        await self._own(run_id, tenant)
        return await self._answering.resolve_by_node(run_id, node_id, body, Voter(principal, delegate))

    async def signal(
        self,
        run_id: str,
        tenant: str,
        name: str,
        payload: Any = None,
        principal: str | None = None,
        *,
        signal_id: str | None = None,
    ) -> RunStanding:
        """Hand a named event to a run: it wakes a node that waits for it, or is kept until one does (W4). One with an
        id is handed on once."""
        await self._own(run_id, tenant)
        if not name or len(name) > 1024:
            raise Problem("out_of_range", "A signal's name has 1 to 1024 characters.", at="$.name")
        await self._engine.inbox.ask(run_id, Signal(name, payload, principal, signal_id))
        return RunStanding(run_id=run_id, status=(await self._engine.state(run_id)).status)

    async def set_variables(self, run_id: str, tenant: str, values: dict[str, Any]) -> None:
        """Change variables of a run from outside, for the test seams."""
        await self._own(run_id, tenant)
        await self._engine.inbox.ask(run_id, SetVariables(values))

    async def query(self, run_id: str, tenant: str, expression: str) -> Any:
        """The value of an expression (W12) over the run's state: `variables.x`, `nodes.a.output.y`, `status`."""
        state = await self._state(run_id, tenant)
        return compile_expression(expression).evaluate(scope_of(state, self._clock.now_ms()))

    async def artifacts(self, run_id: str, tenant: str) -> list[Artifact]:
        """The artifacts of a run, without their data."""
        return artifacts.listed(await self._state(run_id, tenant))

    async def artifact(self, run_id: str, artifact_id: str, tenant: str) -> Artifact:
        return await artifacts.fetch(self._ledger, await self._state(run_id, tenant), artifact_id)

    # What the host needs to mask what others show of runs

    async def find_state(self, run_id: str) -> RunState | None:
        """The state of a run of any tenant; None when there is no such run."""
        return await self._events.known(run_id) if await self._engine.status(run_id) is not None else None

    async def shown_inputs(self, workflow_id: str, tenant: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Inputs for a workflow as they may be shown: without what its latest revision calls sensitive."""
        try:
            return masked(inputs, (await self._workflows.latest(workflow_id, tenant)).plan.sensitive)
        except Problem:  # without the workflow, every input counts as sensitive
            return masked(inputs, inputs)

    # Inside

    async def _own(self, run_id: str, tenant: str) -> str:
        """The run's status when it is the tenant's; the tenant is part of the query (OpenWOP §1.4)."""
        rows = await self._ledger.look_up("SELECT status FROM runs WHERE run_id = ? AND tenant = ?", (run_id, tenant))
        if not rows:
            raise Problem("not_found", "There is no such run.", runId=run_id[:128])
        return str(rows[0][0])

    async def _state(self, run_id: str, tenant: str) -> RunState:
        await self._own(run_id, tenant)
        return await self._engine.state(run_id)

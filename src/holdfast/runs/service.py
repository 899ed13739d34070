"""`Runs`: everything that HTTP, the command line and the console ask of runs.

Every method that names a run takes the caller's tenant; a run of another tenant is `not_found` (OpenWOP §1.4).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

from holdfast.kernel.clock import Clock
from holdfast.kernel.ids import Ids, Randomness
from holdfast.kernel.ledger import Ledger, Projection
from holdfast.runs.nodes import NodeRegistry
from holdfast.runs.ports import HttpConnector, ModelCaller, ToolSource
from holdfast.runs.types import (
    Ancestry,
    Artifact,
    BulkResult,
    CreateRun,
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
    WorkflowCheck,
    WorkflowVersion,
)


def projections() -> list[Projection]:
    """The projections that a ledger must be opened with for `Runs` to work on it."""
    raise NotImplementedError


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
        models: ModelCaller | None = None,
        tools: ToolSource | None = None,
        http: HttpConnector | None = None,
        limits: Limits | None = None,
        instance: str = "host",
        sample_seams: bool = False,
    ) -> None:
        """`secret` signs interrupt tokens; `instance` names this engine: a restart under the same name takes its
        runs back at once, another instance only when the lease has run out."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Life

    async def start(self) -> None:
        """Take the lease, take up what was left, and begin the continuous sweep."""
        raise NotImplementedError

    async def drain(self, timeout: float = 10.0) -> None:
        """Take no new run, let running nodes reach a recorded point or stop them after `timeout` seconds."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop at once; what was running goes on at the next start."""
        raise NotImplementedError

    def load(self) -> Load:
        raise NotImplementedError

    @property
    def limits(self) -> Limits:
        raise NotImplementedError

    @property
    def node_types(self) -> list[str]:
        """The node types that can really run here, with what is wired (W6)."""
        raise NotImplementedError

    # Workflows

    async def put_workflow(
        self, document: dict[str, Any], *, tenant: str | None, principal: str | None = None, workflow_id: str = ""
    ) -> WorkflowVersion:
        """Store a definition; `workflow_invalid` with located `errors` when it does not hold. The same document again
        makes no new revision. `tenant` None stores it for every tenant. `workflow_id`, when given, must be its id."""
        raise NotImplementedError

    async def get_workflow(self, workflow_id: str, tenant: str, revision: int | None = None) -> dict[str, Any]:
        """The definition document, the latest unless `revision` says otherwise; `not_found`."""
        raise NotImplementedError

    async def list_workflows(self, tenant: str) -> list[WorkflowVersion]:
        """The latest revision of each workflow that the tenant can run, by id."""
        raise NotImplementedError

    def check_workflow(self, document: Any) -> WorkflowCheck:
        """Located errors and warnings, nothing stored."""
        raise NotImplementedError

    # Runs

    async def create_run(
        self,
        request: CreateRun,
        tenant: str,
        principal: str | None = None,
        *,
        workspace: str | None = None,
        dedup: bool = False,
        engine_version: str | None = None,
        transport: str = "rest",
        causation_id: str | None = None,
        run_id: str | None = None,
        trusted: bool = False,
    ) -> RunCreated:
        """Start a run; it is on disk when this returns.

        `dedup`: `run_already_active` with `activeRunId` when (tenant, workflowId, scopeId) has an active run (W9).
        `run_id`: a caller that must not start twice (schedules) gives the id; a second call is `run_already_active`.
        `trusted`: the key is a test key: `mockProvider` and a forced engine version are allowed.
        """
        raise NotImplementedError

    async def get_run(self, run_id: str, tenant: str) -> RunSnapshot:
        raise NotImplementedError

    async def list_runs(self, filters: RunFilter, tenant: str, cursor: str | None = None, limit: int = 50) -> RunPage:
        """Newest first. A cursor that is none of ours is `validation_error`; `limit` is 1..200."""
        raise NotImplementedError

    async def events(
        self, run_id: str, tenant: str, from_sequence: int = 0, limit: int | None = None
    ) -> list[RunEvent]:
        """Events with sequence >= `from_sequence`, in order."""
        raise NotImplementedError

    def follow(self, run_id: str, tenant: str, from_sequence: int = 0) -> AsyncIterator[RunEvent]:
        """Events from `from_sequence` on, live; ends after the terminal event. `not_found` at the first step."""
        raise NotImplementedError

    async def poll(self, run_id: str, tenant: str, last_sequence: int = -1, timeout: float = 30.0) -> EventPage:
        """Events after `last_sequence` (exclusive, W8), waiting up to `timeout` seconds for the first one."""
        raise NotImplementedError

    async def cancel(
        self, run_id: str, tenant: str, principal: str | None = None, reason: str | None = None
    ) -> RunStanding:
        """Cancel a run and its children; an ended run answers with its status."""
        raise NotImplementedError

    async def bulk_cancel(
        self, run_ids: Sequence[str], tenant: str, principal: str | None = None, reason: str | None = None
    ) -> list[BulkResult]:
        """One result per id in the order asked; more than 100 or none is `validation_error` with `maxRunIds`."""
        raise NotImplementedError

    async def pause(
        self, run_id: str, tenant: str, principal: str | None = None, reason: str | None = None
    ) -> RunStanding:
        """Start no further node; 409 with `runStatus` when the run is not one that can be paused."""
        raise NotImplementedError

    async def resume(self, run_id: str, tenant: str, principal: str | None = None) -> RunStanding:
        """Go on after `pause`; 409 with `runStatus` otherwise."""
        raise NotImplementedError

    async def fork(self, run_id: str, tenant: str, request: ForkRequest, principal: str | None = None) -> RunForked:
        raise NotImplementedError

    async def diff(self, run_id: str, against: str, tenant: str) -> RunDiff:
        raise NotImplementedError

    async def ancestry(self, run_id: str, tenant: str) -> Ancestry:
        raise NotImplementedError

    async def debug_bundle(self, run_id: str, tenant: str) -> dict[str, Any]:
        """The redacted bundle of one run (W15)."""
        raise NotImplementedError

    # Interrupts, signals, queries, artifacts

    async def interrupts(self, run_id: str, tenant: str) -> list[Interrupt]:
        """The open interrupts with fresh tokens (W7)."""
        raise NotImplementedError

    async def inspect_token(self, token: str) -> InterruptView:
        """`not_found` for a token that we did not sign, `interrupt_expired` when its time is over."""
        raise NotImplementedError

    async def resolve_by_token(self, token: str, body: dict[str, Any], principal: str | None = None) -> Resolved:
        """Answer with `{"resumeValue": …}`; see W7 for what each refusal is."""
        raise NotImplementedError

    async def resolve_by_node(
        self, run_id: str, node_id: str, tenant: str, body: dict[str, Any], principal: str | None = None
    ) -> Resolved:
        raise NotImplementedError

    async def signal(
        self, run_id: str, tenant: str, name: str, payload: Any = None, principal: str | None = None
    ) -> RunStanding:
        """Hand a named event to a run: it wakes a node that waits for it, or is kept until one does (W4)."""
        raise NotImplementedError

    async def query(self, run_id: str, tenant: str, expression: str) -> Any:
        """The value of an expression (W12) over the run's state: `variables.x`, `nodes.a.output.y`, `status`."""
        raise NotImplementedError

    async def artifacts(self, run_id: str, tenant: str) -> list[Artifact]:
        """The artifacts of a run, without their data."""
        raise NotImplementedError

    async def artifact(self, run_id: str, artifact_id: str, tenant: str) -> Artifact:
        raise NotImplementedError

"""The bodies of the runs service: data only, with the contract's field names (camelCase on the wire)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

RunStatus = Literal[
    "pending",
    "running",
    "paused",
    "waiting-approval",
    "waiting-input",
    "waiting-external",
    "completed",
    "failed",
    "cancelling",
    "cancelled",
]
InterruptKind = Literal[
    "approval",
    "clarification",
    "external-event",
    "custom",
    "conversation.start",
    "conversation.exchange",
    "conversation.close",
    "low-confidence",
]
ForkMode = Literal["replay", "branch"]
Transport = Literal["rest", "mcp", "a2a", "ui"]  # how the request for a run arrived, in the contract's words
DrainPolicy = Literal["drain-current-node", "immediate"]

ENGINE_VERSION = "1.0.0"
"""What each event and snapshot says of the engine that made it."""
TERMINAL: frozenset[str] = frozenset({"completed", "failed", "cancelled"})
TERMINAL_EVENTS: frozenset[str] = frozenset({"run.completed", "run.failed", "run.cancelled"})


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A body of the contract: absent fields stay absent."""


class Owner(Wire, frozen=True):
    """The identity triple of a run (OpenWOP §1.4): `principal` is opaque."""

    tenant: str
    workspace: str | None = None
    principal: str | None = None


class RunError(Wire, frozen=True):
    code: str
    message: str
    details: dict[str, Any] | None = None


class CreateRun(Wire, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/runs (OpenWOP §1.1)."""

    workflow_id: str | None = None
    inputs: dict[str, Any] = {}
    tenant_id: str | None = None
    scope_id: str | None = None
    callback_url: str | None = None
    configurable: dict[str, Any] = {}
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    mode: str | None = None
    eval_suite_ref: str | None = None
    agent_id: str | None = None


class RunCreated(Wire, frozen=True):
    run_id: str
    status: RunStatus
    events_url: str
    status_url: str


class RunEvent(Wire, frozen=True):
    """One event of a run's log (OpenWOP §1.8)."""

    event_id: str
    run_id: str
    type: str
    payload: Any
    timestamp: str
    sequence: int
    node_id: str | None = None
    schema_version: int = 1
    engine_version: str | None = None
    causation_id: str | None = None


class ChildRun(Wire, frozen=True):
    """A child in its parent's snapshot (W21)."""

    run_id: str
    workflow_id: str
    status: RunStatus


class RunSnapshot(Wire, frozen=True):
    """The state of a run: the fold of its log up to `last_sequence` (-1: nothing)."""

    run_id: str
    workflow_id: str
    status: RunStatus
    owner: Owner | None = None
    workflow_version: str | None = None
    current_node_id: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    paused_at: str | None = None
    agent: dict[str, Any] | None = None
    run_orchestrator: dict[str, Any] | None = None
    node_states: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    variables: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    outputs: dict[str, Any] | None = None
    error: RunError | None = None
    engine_version: str | None = None
    event_log_schema_version: int = 1
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    configurable: dict[str, Any] = {}
    metrics: dict[str, Any] | None = None
    scope_id: str | None = None
    parent_run_id: str | None = None
    parent_node_id: str | None = None
    child_runs: list[ChildRun] = []
    source_run_id: str | None = None
    last_sequence: int = -1


class RunSummary(Wire, frozen=True):
    """An entry of GET /v1/runs (W4)."""

    run_id: str
    workflow_id: str
    status: RunStatus
    created_at: str
    updated_at: str
    completed_at: str | None = None
    scope_id: str | None = None
    tags: list[str] = []
    parent_run_id: str | None = None
    error_code: str | None = None


class RunFilter(Wire, frozen=True):
    """The filter of GET /v1/runs; times are RFC 3339."""

    status: list[str] = []
    workflow_id: str | None = None
    tag: str | None = None
    scope_id: str | None = None
    parent_run_id: str | None = None
    created_after: str | None = None
    created_before: str | None = None


class RunPage(Wire, frozen=True):
    runs: list[RunSummary]
    next_cursor: str | None = None


class EventPage(Wire, frozen=True, omit_defaults=False):
    """The answer of events/poll."""

    events: list[RunEvent]
    is_complete: bool


class RunStanding(Wire, frozen=True):
    """The answer of cancel, pause and resume."""

    run_id: str
    status: RunStatus
    paused_at: str | None = None
    resumed_at: str | None = None


class BulkResult(Wire, frozen=True):
    run_id: str
    ok: bool
    status: RunStatus | None = None
    error: dict[str, Any] | None = None


class ForkRequest(Wire, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/runs/{runId}:fork (OpenWOP §1.11). `run_options_overlay` only with mode=branch."""

    mode: ForkMode
    from_seq: int | None = None
    run_options_overlay: dict[str, Any] = {}


class RunForked(Wire, frozen=True):
    run_id: str
    source_run_id: str
    from_seq: int
    mode: ForkMode
    status: RunStatus
    events_url: str


class Interrupt(Wire, frozen=True):
    """An open interrupt of a run, with the token that answers it (W7).

    `expires_at` is the token's end; `due_at` is the interrupt's own deadline, if it has one.
    """

    interrupt_id: str
    node_id: str
    kind: InterruptKind
    token: str
    expires_at: str
    data: Any
    key: str | None = None
    resume_schema: dict[str, Any] | None = None
    votes: dict[str, Any] | None = None
    due_at: str | None = None
    # For callers who may speak for others: a token for each listed approver, which answers as that approver (W18).
    approver_tokens: dict[str, str] | None = None


class InterruptView(Wire, frozen=True):
    """What GET /v1/interrupts/{token} shows; no token inside."""

    run_id: str
    interrupt_id: str
    node_id: str
    kind: InterruptKind
    status: Literal["open", "resolved", "cancelled"]
    expires_at: str
    data: Any
    resume_schema: dict[str, Any] | None = None


class Resolved(Wire, frozen=True):
    """The answer to a resolve: `resumed` is false while a quorum is incomplete or after `ask`."""

    run_id: str
    node_id: str
    interrupt_id: str
    status: RunStatus
    resumed: bool
    votes: dict[str, Any] | None = None


class WorkflowVersion(Wire, frozen=True):
    """The answer of PUT /v1/workflows/{id}; `revision` counts from 1."""

    workflow_id: str
    version: str
    revision: int
    digest: str
    created: bool
    warnings: list[dict[str, Any]] = []


class WorkflowCheck(Wire, frozen=True, omit_defaults=False):
    """Located findings: `{at, message, fix?}`."""

    valid: bool
    errors: list[dict[str, Any]]
    warnings: list[dict[str, Any]]


class RunDiff(Wire, frozen=True, omit_defaults=False):
    a: str
    b: str
    diverged_at_seq: int | None
    event_diffs: list[dict[str, Any]]
    state_diff: dict[str, Any]
    truncated: bool = False


class Ancestry(Wire, frozen=True, omit_defaults=False):
    run_id: str
    host_id: str
    parent: dict[str, Any] | None


class Artifact(Wire, frozen=True):
    artifact_id: str
    run_id: str
    artifact_type: str
    created_at: str
    data: Any = None
    node_id: str | None = None
    media_type: str = "application/json"


class Limits(Wire, frozen=True):
    """The host's limits (OpenWOP §1.10); a run may set lower ones, never higher ones."""

    max_node_executions: int = 10_000
    max_run_duration_ms: int = 30 * 24 * 3600 * 1000
    max_loop_iterations: int = 10_000
    max_tags: int = 100
    max_inputs_bytes: int = 1024 * 1024
    max_metadata_bytes: int = 50 * 1024
    clarification_rounds: int = 5
    schema_rounds: int = 3
    envelopes_per_turn: int = 8
    max_active_runs: int = 100_000
    interrupt_token_ms: int = 30 * 60 * 1000


class Load(Wire, frozen=True, omit_defaults=False):
    """The engine's load, for backpressure and metrics."""

    loaded_runs: int
    executing_nodes: int
    draining: bool

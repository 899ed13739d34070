"""What the sidecar takes and gives over HTTP. Times are ISO 8601 here, numbers in the library (CRP C5, C11)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from holdfast.relay.types import (
    Count,
    Fraction,
    Groundedness,
    InjectionMarker,
    Positive,
    RemainingBudget,
    SemVer,
    SessionConfig,
    Telemetry,
    Tier,
    Uuid,
)

Moment = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Text = Annotated[str, msgspec.Meta(max_length=50_000_000)]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field that nobody knows is a mistake, and is told."""


class ToolFunction(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    description: str = ""
    parameters: dict[str, Any] = {}


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool in OpenAI's function form."""

    function: ToolFunction
    type: Literal["function"] = "function"


class CreateSession(Request, frozen=True):
    app_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    role: Literal["OBSERVER", "OPERATOR", "ADMIN"] = "OPERATOR"
    binding_secret: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None
    config: SessionConfig = SessionConfig()


class ResumeSession(Request, frozen=True):
    binding_secret: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None


class DispatchRequest(Request, frozen=True):
    """With `resume`, the dispatch that was interrupted goes on and prompt and task are not looked at."""

    system_prompt: Text
    task_input: Text
    generation_reserve: Positive | None = None
    max_windows: Positive | None = None
    description: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    resume: bool = False


class ToolsRequest(DispatchRequest, frozen=True):
    tools: Annotated[list[ToolDefinition], msgspec.Meta(max_length=128)] = []


class AgenticRequest(ToolsRequest, frozen=True):
    max_steps: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10


class IngestRequest(Request, frozen=True):
    text: Text
    source_label: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "text"


class ShareRequest(Request, frozen=True):
    target_session_id: str
    fact_ids: Annotated[list[str], msgspec.Meta(max_length=100_000)] | None = None


class FeedbackRequest(Request, frozen=True):
    fact_id: str
    action: Literal["boost", "penalize", "reject"]
    delta: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class EstimateRequest(Request, frozen=True):
    system_prompt: Text
    task_input: Text


class ProviderRequest(Request, frozen=True):
    provider_type: Literal["openai", "anthropic", "ollama", "local"]
    model: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    api_key: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None
    base_url: (
        Annotated[str, msgspec.Meta(max_length=2048, pattern="^https?://[A-Za-z0-9.:\\[\\]-]+(/[!-~]*)?$")] | None
    ) = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 10


class ExportRequest(Request, frozen=True):
    export_key: Annotated[str, msgspec.Meta(min_length=12, max_length=4096)]


class ImportRequest(Request, frozen=True):
    state: Annotated[str, msgspec.Meta(description="Base64 of an export.")]
    export_key: Annotated[str, msgspec.Meta(min_length=12, max_length=4096)]
    binding_secret: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None


class FactsQuery(Request, frozen=True):
    query: str | None = None
    top_k: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    include_superseded: bool = False


class EnvelopeQuery(Request, frozen=True):
    system_prompt: str = ""
    task_input: str = ""


# Answers


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"]
    active_sessions: Count
    max_sessions: Count
    auth_required: bool
    rate_limit: str
    version: SemVer


class Ready(msgspec.Struct, frozen=True):
    ready: bool
    active_sessions: Count
    max_sessions: Count


class Handle(msgspec.Struct, frozen=True):
    session_id: Uuid
    protocol_version: SemVer
    capabilities: tuple[str, ...]
    created_at: Moment
    expires_at: Moment
    app_id: str
    role: str
    nonce: str
    signature_required: bool


class ListedSession(msgspec.Struct, frozen=True):
    session_id: Uuid
    app_id: str
    role: str
    model: str
    windows_completed: Count
    facts_in_warm_state: Count
    created_at: Moment
    expires_at: Moment


class SessionList(msgspec.Struct, frozen=True):
    sessions: list[ListedSession]
    count: Count


class Status(msgspec.Struct, frozen=True):
    session_id: Uuid
    windows_completed: Count
    total_input_tokens: Count
    total_output_tokens: Count
    facts_in_warm_state: Count
    overhead_ratio: Annotated[float, msgspec.Meta(ge=0)]
    remaining_budget: RemainingBudget | None
    is_active: bool
    model: str
    context_window: Count
    expires_at: Moment
    resumable_dispatch: str | None
    integrity_violations: Count


class Closed(msgspec.Struct, frozen=True):
    session_id: Uuid
    closed: bool


class Flags(msgspec.Struct, frozen=True):
    injection_markers_detected: Count
    injection_marker_details: tuple[InjectionMarker, ...]
    unicode_normalized: bool
    control_chars_stripped: Count
    input_truncated: bool
    integrity_violations: Count
    injection_detected: bool


class Quality(msgspec.Struct, frozen=True):
    session_id: Uuid
    window_id: Uuid
    output: str
    facts_extracted: Count
    continuation_windows: Count
    envelope_saturation: Fraction
    quality_tier: Tier
    tier: Tier
    facts_in_envelope: Count
    security_flags: Flags
    telemetry: Telemetry | None
    groundedness: Groundedness | None
    fact_ids: tuple[str, ...]


class PendingCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    arguments: dict[str, Any]


class DispatchResponse(msgspec.Struct, frozen=True):
    output: str
    quality_report: Quality
    session_id: Uuid
    window_id: Uuid
    continuation_windows: Count
    total_input_tokens: Count
    total_output_tokens: Count
    tool_calls: list[PendingCall]
    trace: list[dict[str, Any]]


class Ingested(msgspec.Struct, frozen=True):
    facts_extracted: Count
    source_label: str
    fact_ids: tuple[str, ...]
    source_window: str
    bytes_read: Count
    known: bool
    contradictions: Count
    batch_quarantined: bool
    security_flags: Flags


class FactView(msgspec.Struct, frozen=True):
    id: str
    text: str
    confidence: Fraction
    extraction_type: str
    source_window_id: str
    is_superseded: bool
    source: str
    start: Count
    end: Count
    context: str
    entity: str
    relation: str
    hash: str
    superseded_by: str | None
    folded_into: str | None
    quarantined: bool
    score: float | None = None


class FactList(msgspec.Struct, frozen=True):
    facts: list[FactView]
    count: Count
    total: Count


class Shared(msgspec.Struct, frozen=True):
    facts_shared: Count
    target_session_id: str


class Registered(msgspec.Struct, frozen=True):
    provider: str
    priority: int
    registered: bool


class Exported(msgspec.Struct, frozen=True):
    state: Annotated[str, msgspec.Meta(description="Base64 of the export.")]
    checksum: str
    records: Count


class RpcRequest(msgspec.Struct, frozen=True):
    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, Any] = {}
    id: str | int | msgspec.UnsetType | None = msgspec.UNSET


RpcBatch = Annotated[list[RpcRequest], msgspec.Meta(min_length=1, max_length=100)]


class RpcAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    jsonrpc: Literal["2.0"]
    id: str | int | None
    result: Any = None
    error: dict[str, Any] | None = None

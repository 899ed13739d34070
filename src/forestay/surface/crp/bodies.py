"""The sidecar's requests and answers over HTTP. Times are ISO 8601 here, numbers in the library (CRP C5, C11)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from forestay.relay import (
    Count,
    ExtractionResult,
    Fraction,
    Positive,
    QualityReport,
    Reason,
    Role,
    SecurityFlags,
    SemVer,
    SessionConfig,
    SessionHandle,
    SessionStatus,
    Tier,
    Uuid,
)

Moment = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Text = Annotated[str, msgspec.Meta(max_length=50_000_000)]
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request body: an unknown field is an error."""


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
    role: Role = "OPERATOR"
    binding_secret: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None
    config: SessionConfig = SessionConfig()


class ResumeSession(Request, frozen=True):
    binding_secret: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None


class DispatchRequest(Request, frozen=True):
    """With `resume`, the dispatch that was interrupted goes on and prompt and task are not looked at.

    With `remember`, the model's answer becomes facts; left out, the session's `remember_answers` decides.
    """

    system_prompt: Text
    task_input: Text
    generation_reserve: Positive | None = None
    max_windows: Positive | None = None
    description: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    resume: bool = False
    remember: bool | None = None


class ToolsRequest(DispatchRequest, frozen=True):
    tools: Annotated[list[ToolDefinition], msgspec.Meta(max_length=128)] = []


class AgenticRequest(ToolsRequest, frozen=True):
    max_steps: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10


class IngestRequest(Request, frozen=True):
    text: Text
    source_label: Label | None = None
    supersedes: Annotated[list[Label], msgspec.Meta(max_length=100)] = []


class RestoreRequest(Request, frozen=True):
    """The facts that stand again: these, or every one of a source."""

    fact_ids: Annotated[list[str], msgspec.Meta(min_length=1, max_length=100_000)] | None = None
    source_label: Label | None = None


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
    quarantined: bool = False
    explain: bool = False


class EnvelopeQuery(Request, frozen=True):
    system_prompt: str = ""
    task_input: str = ""


# Answers


def _shown(name: str, of: type[msgspec.Struct], **changes: Any) -> Any:
    """Make the HTTP form of a library type: every field is required; `changes` gives other types and new fields."""
    fields: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(of)}
    return msgspec.defstruct(name, [*{**fields, **changes}.items()], frozen=True)


Handle = _shown("Handle", SessionHandle, created_at=Moment, expires_at=Moment)
Status = _shown("Status", SessionStatus, expires_at=Moment)
Flags = _shown("Flags", SecurityFlags, injection_detected=bool)
Quality = _shown("Quality", QualityReport, security_flags=Flags, tier=Tier, facts_in_envelope=Count)
Ingested = _shown("Ingested", ExtractionResult, security_flags=Flags)


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


class Closed(msgspec.Struct, frozen=True):
    session_id: Uuid
    closed: bool


class PendingCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    arguments: dict[str, Any]


class DispatchResponse(msgspec.Struct, frozen=True):
    output: str
    quality_report: Quality  # type: ignore[valid-type]
    session_id: Uuid
    window_id: Uuid
    continuation_windows: Count
    total_input_tokens: Count
    total_output_tokens: Count
    tool_calls: list[PendingCall]
    trace: list[dict[str, Any]]


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
    taken_back: bool
    folded_into: str | None
    quarantined: bool
    score: float | None = None
    why: Reason | None = None


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

"""The relay's requests and answers, in the contract's words (CRP 2.0). Data only; times are seconds since 1970 (C5)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

PROTOCOL_VERSION = "2.0.0"
SCHEMA_VERSION = "1.0.0"

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]  # every JSON reader and every table can hold it
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
SemVer = Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+\.\d+$")]
Uuid = Annotated[
    str,
    msgspec.Meta(
        pattern="^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
        extra_json_schema={"format": "uuid"},
    ),
]
Tier = Literal["S", "A", "B", "C", "D"]
Stop = Literal["complete", "max_windows", "max_continuations", "no_new_text", "information_flow", "filtered"]


class TaskIntent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's task; every field is optional."""

    description: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    system_prompt: str | None = None
    task_input: str | None = None
    expected_output_type: Literal["text", "json", "markdown", "code"] | None = None
    max_windows: Positive | None = None
    max_output_tokens: Positive | None = None
    metadata: Annotated[dict[str, Any], msgspec.Meta(max_length=50)] | None = None


class InjectionMarker(msgspec.Struct, frozen=True):
    """A place in the raw input that looks like an instruction; the offset counts code points (C15)."""

    offset: Count
    pattern_name: str
    matched_text: str


class SecurityFlags(msgspec.Struct, frozen=True):
    injection_markers_detected: Count = 0
    injection_marker_details: tuple[InjectionMarker, ...] = ()
    unicode_normalized: bool = False
    control_chars_stripped: Count = 0
    input_truncated: bool = False
    integrity_violations: Count = 0


class Support(msgspec.Struct, frozen=True):
    """A sentence of the output (its span in code points) and the facts of the envelope that say the same."""

    start: Count
    end: Count
    fact_ids: tuple[str, ...]


class Groundedness(msgspec.Struct, frozen=True):
    """The share of the output's sentences that facts in the envelope support; null when there is no sentence (C3)."""

    score: Fraction | None
    sentences: Count
    supported: Count
    support: tuple[Support, ...] = ()


class SeamReport(msgspec.Struct, frozen=True):
    """What was removed where window `window` joins the one before it."""

    window: Positive
    removed_characters: Count
    ambiguous: bool
    other_length: Count = 0


class Fallback(msgspec.Struct, frozen=True):
    """A model of the caller's list that failed before the answer began, and the Problem it failed with (C18)."""

    model: str
    problem: str


class Telemetry(msgspec.Struct, frozen=True):
    windows: Positive
    input_tokens: Count
    output_tokens: Count
    finish_reason: str
    stopped_by: Stop
    seams: tuple[SeamReport, ...] = ()
    facts_in_envelope: Count = 0
    overhead_ratio: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    auto_ingested: bool = False
    model: str = ""
    cost_usd: float | None = None
    tool_calls: Count = 0
    resumed: bool = False
    regroundings: Count = 0
    fallbacks: tuple[Fallback, ...] = ()
    served_by: str = ""


class QualityReport(msgspec.Struct, frozen=True):
    session_id: Uuid
    window_id: Uuid
    output: str
    facts_extracted: Count
    continuation_windows: Count
    envelope_saturation: Fraction
    quality_tier: Tier
    security_flags: SecurityFlags
    telemetry: Telemetry | None = None
    groundedness: Groundedness | None = None
    fact_ids: tuple[str, ...] = ()


class SessionHandle(msgspec.Struct, frozen=True):
    """A session as its caller gets it. It does not include the key, which the caller derives from the binding secret:
    HMAC-SHA256(binding_secret, nonce)."""

    session_id: Uuid
    protocol_version: SemVer
    capabilities: tuple[str, ...]
    created_at: float
    expires_at: float
    app_id: str
    role: str
    nonce: str
    signature_required: bool


class RemainingBudget(msgspec.Struct, frozen=True):
    windows_remaining: Count | None = None
    input_tokens_remaining: Count | None = None
    output_tokens_remaining: Count | None = None


class SessionStatus(msgspec.Struct, frozen=True):
    session_id: Uuid
    windows_completed: Count
    total_input_tokens: Count
    total_output_tokens: Count
    facts_in_warm_state: Count
    overhead_ratio: Annotated[float, msgspec.Meta(ge=0.0)]
    remaining_budget: RemainingBudget | None
    is_active: bool
    model: str
    context_window: Count
    expires_at: float
    resumable_dispatch: str | None = None
    integrity_violations: Count = 0


class PackedFact(msgspec.Struct, frozen=True):
    """Why a fact is in the envelope."""

    id: str
    text: str
    section: str
    tokens: Count
    score: float
    relevance: float
    recency: float
    novelty: float
    graph: float


class EnvelopePreview(msgspec.Struct, frozen=True):
    total_tokens: Count
    envelope_tokens: Count
    generation_reserve: Count
    facts_included: Count
    facts_available: Count
    saturation: Fraction
    envelope_text: str
    budget_tokens: Count
    used_tokens: Count
    system_tokens: Count
    task_tokens: Count
    auto_ingest: bool
    facts: tuple[PackedFact, ...] = ()


class StreamEvent(msgspec.Struct, frozen=True):
    """`data` is a string for token, a QualityReport for done, a CrpError for error, and an object for the others."""

    event_type: Literal["token", "extraction", "continuation", "window_complete", "done", "error"]
    data: Any


class CostEstimate(msgspec.Struct, frozen=True):
    estimated_windows: Positive
    estimated_input_tokens: Count
    estimated_output_tokens: Count
    estimated_cost_usd: float | None
    confidence: Literal["high", "medium", "low"]


class CrpError(msgspec.Struct, frozen=True):
    code: Annotated[int, msgspec.Meta(ge=1001, le=1031)]
    message: str
    details: dict[str, Any]


class PersistedStateHeader(msgspec.Struct, frozen=True):
    schema_version: SemVer
    protocol_version: SemVer
    created_at: float
    checksum: str
    cipher: Literal["AES-256-GCM"]
    kdf: Literal["HKDF-SHA256"]
    salt: str
    nonce: str
    session_id: Uuid
    records: Count


class Superseded(msgspec.Struct, frozen=True):
    """A fact that a later ingest corrected: it is kept and marked (C16)."""

    fact_id: str
    text: str
    source_label: str
    superseded_by: str
    because: Literal["same_source", "superseding_source"]


class Quarantined(msgspec.Struct, frozen=True):
    """A fact that is kept but not shown, because it instructs the model; `because` names the pattern."""

    fact_id: str
    text: str
    because: str


class Restored(msgspec.Struct, frozen=True):
    """The restored facts: no longer in quarantine, no longer superseded."""

    facts_restored: Count
    fact_ids: tuple[str, ...]


class ExtractionResult(msgspec.Struct, frozen=True):
    """The result of an ingest: the facts that it kept, superseded (and why) and quarantined.

    `known`: this text was ingested under this label before, so nothing was kept again.
    """

    facts_extracted: Count
    source_label: str
    fact_ids: tuple[str, ...]
    source_window: str
    bytes_read: Count
    known: bool
    facts_superseded: Count
    superseded: tuple[Superseded, ...]
    facts_taken_back: Count
    facts_quarantined: Count
    quarantined: tuple[Quarantined, ...]
    security_flags: SecurityFlags


class Pricing(msgspec.Struct, frozen=True):
    """Prices from the caller, in USD per million tokens."""

    input_per_million: float
    output_per_million: float


class SessionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a session; None means no limit. `max_windows` is another name of `max_windows_per_session`.

    `prices` maps a model's name to its prices; `pricing` applies to all other models.
    """

    context_window: Annotated[int, msgspec.Meta(ge=256, le=100_000_000)] | None = None
    max_output_tokens: Positive | None = None
    max_windows: Positive | None = None
    max_windows_per_session: Positive | None = None
    max_total_input_tokens: Positive | None = None
    max_total_output_tokens: Positive | None = None
    max_continuations: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 50
    session_timeout: Annotated[int, msgspec.Meta(ge=3600, le=604_800)] = 86_400
    dispatches_per_minute: Positive = 60
    ingest_bytes_per_minute: Positive = 100_000_000
    provider_timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    saturate: bool | None = None
    remember_answers: bool = False
    structural_validation: bool = True
    pricing: Pricing | None = None
    prices: Annotated[dict[str, Pricing], msgspec.Meta(max_length=200)] = {}


class Reply(msgspec.Struct, frozen=True):
    """What `dispatch` returns; unpacks as (output, report)."""

    output: str
    report: QualityReport

    def __iter__(self) -> Any:
        return iter((self.output, self.report))

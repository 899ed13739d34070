"""The JSON Schemas of what the relay takes and gives, generated from the types (CRP §1.15)."""

from __future__ import annotations

from typing import Any

from forestay.kernel import schema_of
from forestay.relay.types import (
    CostEstimate,
    CrpError,
    EnvelopePreview,
    ExtractionResult,
    PersistedStateHeader,
    QualityReport,
    SessionConfig,
    SessionHandle,
    SessionStatus,
    StreamEvent,
    TaskIntent,
)

TYPES: dict[str, Any] = {
    "task-intent": TaskIntent,
    "quality-report": QualityReport,
    "session-handle": SessionHandle,
    "session-status": SessionStatus,
    "envelope-preview": EnvelopePreview,
    "stream-event": StreamEvent,
    "cost-estimate": CostEstimate,
    "crp-error": CrpError,
    "persisted-state-header": PersistedStateHeader,
    "extraction-result": ExtractionResult,
    "session-config": SessionConfig,
}


def schemas() -> dict[str, dict[str, Any]]:
    return {name: schema_of(type) for name, type in TYPES.items()}

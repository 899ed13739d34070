"""The JSON Schemas of what the relay takes and gives, generated from the types (CRP §1.15), and reading by them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from forestay.kernel import Problem, canonical, schema_of
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


T = TypeVar("T")


def read(values: dict[str, Any], type: type[T], what: str, root: str = "$") -> T:
    """`values` as `type`, or a Problem that says where `what` has a mistake."""
    try:
        return msgspec.convert(values, type)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, root)
        raise Problem("schema_mismatch", f"The {what} has a mistake: {message}", at=where) from error


def intent_of(**values: Any) -> TaskIntent:
    return read(values, TaskIntent, "task")


def config_of(values: dict[str, Any]) -> SessionConfig:
    return read(values, SessionConfig, "configuration", "$.config")

"""The relay: the right context into a model, output of any length out of it, nothing altered (CRP 2.0)."""

from holdfast.relay.relay import Relay
from holdfast.relay.session import Session
from holdfast.relay.types import (
    CostEstimate,
    EnvelopePreview,
    ExtractionResult,
    Pricing,
    QualityReport,
    Reply,
    SessionConfig,
    SessionHandle,
    SessionStatus,
    StreamEvent,
    TaskIntent,
)

__all__ = [
    "CostEstimate",
    "EnvelopePreview",
    "ExtractionResult",
    "Pricing",
    "QualityReport",
    "Relay",
    "Reply",
    "Session",
    "SessionConfig",
    "SessionHandle",
    "SessionStatus",
    "StreamEvent",
    "TaskIntent",
]

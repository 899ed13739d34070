"""The relay: the right context into a model, output of any length out of it, nothing altered (CRP 2.0)."""

from forestay.relay.relay import Relay
from forestay.relay.session import Session
from forestay.relay.types import (
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

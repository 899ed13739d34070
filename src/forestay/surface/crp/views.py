"""The library's objects as the sidecar shows them: with the OpenAPI names of the contract, and times as ISO 8601."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.kernel import iso
from forestay.models import ToolCall, ToolSpec, whole
from forestay.relay import (
    ExtractionResult,
    QualityReport,
    SecurityFlags,
    Session,
    SessionHandle,
    SessionStatus,
    StreamEvent,
)
from forestay.surface.crp.bodies import ToolDefinition


def handle(found: SessionHandle) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(found)
    return {
        **shown,
        "created_at": iso(round(found.created_at * 1000)),
        "expires_at": iso(round(found.expires_at * 1000)),
    }


def status(found: SessionStatus) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(found)
    return {**shown, "expires_at": iso(round(found.expires_at * 1000))}


def listed(row: dict[str, Any], model: str) -> dict[str, Any]:
    shown = {key: value for key, value in row.items() if not key.endswith("_ms")}
    return {**shown, "model": model, "created_at": iso(row["created_ms"]), "expires_at": iso(row["expires_ms"])}


def flags(found: SecurityFlags) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(found)
    return {**shown, "injection_detected": found.injection_markers_detected > 0}


def quality(report: QualityReport) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(report)
    return {
        **shown,
        "output": whole(report.output),
        "tier": report.quality_tier,
        "facts_in_envelope": report.telemetry.facts_in_envelope if report.telemetry is not None else 0,
        "security_flags": flags(report.security_flags),
    }


def dispatched(
    session: Session,
    output: str,
    report: QualityReport,
    calls: tuple[ToolCall, ...] = (),
    trace: tuple[dict[str, Any], ...] = (),
) -> dict[str, Any]:
    return {
        "output": whole(output),
        "quality_report": quality(report),
        "session_id": session.id,
        "window_id": report.window_id,
        "continuation_windows": report.continuation_windows,
        "total_input_tokens": session.warm.input_tokens,
        "total_output_tokens": session.warm.output_tokens,
        "tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls],
        "trace": list(trace),
    }


def ingested(result: ExtractionResult) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(result)
    return {**shown, "security_flags": flags(result.security_flags)}


def event(found: StreamEvent) -> dict[str, Any]:
    data = found.data
    if isinstance(data, QualityReport):
        data = quality(data)
    elif isinstance(data, str):
        data = whole(data)
    return {"event_type": found.event_type, "data": data}


def tools(given: list[ToolDefinition]) -> list[ToolSpec]:
    return [
        ToolSpec(item.function.name, item.function.description, item.function.parameters or {"type": "object"})
        for item in given
    ]

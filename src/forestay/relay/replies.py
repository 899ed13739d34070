"""Events folded into a reply, failures as events, records as audit events, and values read into types."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from forestay.kernel import Problem, Record, canonical, iso
from forestay.relay.types import QualityReport, Reply, SessionConfig, StreamEvent, TaskIntent

_SEVERE = frozenset({"crp.dispatch.error", "crp.dispatch.fallback", "crp.session.expire"})


async def fold(events: AsyncGenerator[StreamEvent, None]) -> Reply:
    """A stream of events as one reply (C2)."""
    texts: list[str] = []
    report: QualityReport | None = None
    async with aclosing(events):
        async for event in events:
            if event.event_type == "token":
                texts.append(event.data)
            elif event.event_type == "done":
                report = event.data
    assert report is not None, "a stream ends with done, or raises"
    return Reply("".join(texts), report)


async def told(events: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent, None]:
    """Events whose last one is `error` where the dispatch fails."""
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except Problem as problem:
        yield StreamEvent("error", error_body(problem))


def error_body(problem: Problem) -> dict[str, Any]:
    """`{code, message, details}`, with the partial output as the model wrote it: it is not ours to redact."""
    body = problem.as_crp()
    if "partial_output" in problem.details:
        body["details"]["partial_output"] = problem.details["partial_output"]
    return body


def audit_event(session_id: str, record: Record) -> dict[str, Any]:
    severe = record.type.startswith("crp.security.") or record.type in _SEVERE
    return {
        "timestamp": iso(record.ts),
        "event_type": record.type,
        "session_id": session_id,
        "severity": "warning" if severe else "info",
        "payload": record.payload,
        "hash": record.hash,
    }


def config_of(values: dict[str, Any]) -> SessionConfig:
    try:
        return msgspec.convert(values, SessionConfig)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$.config")
        raise Problem("schema_mismatch", f"The configuration has a mistake: {message}", at=where) from error


def intent_of(values: dict[str, Any]) -> TaskIntent:
    try:
        return msgspec.convert(values, TaskIntent)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error)
        raise Problem("schema_mismatch", f"The task has a mistake: {message}", at=where) from error

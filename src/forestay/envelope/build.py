"""Builds envelopes; every envelope from here validates (R12 to R17).

- B1  `success` has no error, `failure` always has one; a failed operation may still carry a result (R13, R14).
- B2  Absent stays absent: no null `page`, no null `error` (R15).
- B3  Values are copies in plain JSON, so changing the original does not change the envelope.
- B4  An error always says how to retry and what to do (R20, R22).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from forestay.envelope.deprecations import level_of
from forestay.envelope.types import (
    SCHEMA_URL,
    SCHEMA_VERSION,
    SPEC_VERSION,
    Envelope,
    Error,
    Meta,
    Mvi,
    Page,
    Result,
    Transport,
    Warning,
)
from forestay.kernel import Problem, canonical

if TYPE_CHECKING:  # the clock imports asyncio: the command line loads it only to build an envelope
    from forestay.kernel import Clock, Ids

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Beside(TypedDict, total=False):
    """The optional members of an envelope beside its outcome."""

    clock: Clock | None
    ids: Ids | None
    transport: Transport
    page: Page | None
    warnings: Sequence[Warning]
    request_id: str | None
    session_id: str | None
    context_version: int
    strict: bool
    mvi: Mvi | bool
    extensions: Mapping[str, Any] | None


def success(operation: str, result: object = None, **beside: Unpack[Beside]) -> Envelope:
    """Build the answer of an operation that succeeded."""
    return _envelope(operation, result, UNSET, **beside)


def failure(problem: Problem, operation: str, *, result: object = None, **beside: Unpack[Beside]) -> Envelope:
    """Build the answer of an operation that failed; `result` may hold what it completed before."""
    return _envelope(operation, result, error_of(problem), **beside)


def _envelope(
    operation: str,
    result: object,
    error: Error | UnsetType,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    transport: Transport = "sdk",
    page: Page | None = None,
    warnings: Sequence[Warning] = (),
    request_id: str | None = None,
    session_id: str | None = None,
    context_version: int = 0,
    strict: bool = True,
    mvi: Mvi | bool = "standard",
    extensions: Mapping[str, Any] | None = None,
) -> Envelope:
    from forestay.kernel import Ids, SystemClock, iso

    clock = clock or SystemClock()
    level, deprecated = level_of(mvi)
    if context_version < 0:
        raise Problem(
            "out_of_range", "A context version counts from 0.", at="$._meta.contextVersion", observed=context_version
        )
    meta = Meta(
        spec_version=SPEC_VERSION,
        schema_version=SCHEMA_VERSION,
        timestamp=iso(clock.now_ms()),
        operation=_within("operation", operation, 1, 128),
        request_id=(ids or Ids(clock)).new("req") if request_id is None else _within("requestId", request_id, 3, 128),
        transport=transport,
        strict=strict,
        mvi=level,
        context_version=context_version,
        session_id=UNSET if session_id is None else _within("sessionId", session_id, 1, 256),
        warnings=[*warnings, *deprecated] or UNSET,
    )
    return Envelope(
        schema=SCHEMA_URL,
        meta=meta,
        success=error is UNSET,
        result=_plain(result),
        page=UNSET if page is None else page,
        error=error,
        extensions=_extensions(extensions),
    )


def error_of(problem: Problem) -> Error:
    """Return the `error` member for `problem`: the registry's row with the problem's message (R20 to R24)."""
    said = problem.as_lafs()
    after = said["retryAfterMs"]
    return Error(
        code=said["code"],
        message=said["message"],
        category=said["category"],
        retryable=said["retryable"],
        retry_after_ms=None if after is None else max(0, int(after)),
        details=said["details"],
        agent_action=said["agentAction"],
        escalation_required=said["escalationRequired"],
        suggested_action=said["suggestedAction"],
        doc_url=said["docUrl"],
    )


def encode(envelope: Envelope) -> bytes:
    """Return the envelope as JSON, members in the contract's order."""
    return _encode(envelope)


def _within(name: str, text: str, least: int, most: int) -> str:
    if least <= len(text) <= most:
        return text
    raise Problem(
        "out_of_range",
        f"{name} has {len(text)} characters.",
        at=f"$._meta.{name}",
        least=least,
        most=most,
        fix=f"Use {least} to {most} characters.",
    )


def _plain(value: object) -> Result:
    """Return `value` as plain JSON: an object, an array or null (R12, B3)."""
    if value is None:
        return None
    plain = _as_json(value, "$.result")
    if isinstance(plain, (dict, list)):
        return plain
    raise Problem(
        "schema_mismatch",
        f"A result is an object, an array or null; this is {type(value).__name__}.",
        at="$.result",
        fix="Wrap the value in an object, with a name that says what it is.",
    )


def _as_json(value: object, at: str) -> Any:
    """Return a copy of `value` in plain JSON: encoded and decoded again."""
    try:
        return _decode(_encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Problem(
            "invalid_json",
            "This value cannot be written as JSON.",
            at=at,
            reason=canonical.reason_of(error),
            fix="Use objects with string keys, arrays, valid Unicode strings, numbers, booleans and null.",
        ) from error


def _extensions(extensions: Mapping[str, Any] | None) -> dict[str, Any] | UnsetType:
    """Return the vendor members; their keys must start with `x-` (R17)."""
    if not extensions:
        return UNSET
    for key in extensions:
        if not key.startswith("x-"):
            raise Problem(
                "schema_mismatch",
                f"The extension key {key[:80]!r} does not start with x-.",
                at="$._extensions",
                fix="Name it x-<vendor>-<what>.",
            )
    plain: dict[str, Any] = _as_json(dict(extensions), "$._extensions")
    return plain

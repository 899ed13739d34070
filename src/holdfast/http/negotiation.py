"""Which media type a caller wants (RFC 9110 §12.5.1), and the LAFS envelope around a body.

The contract's own JSON is the default; an answer is never refused because of `Accept`.
"""

from __future__ import annotations

from typing import Any, Literal

from holdfast.kernel.clock import iso
from holdfast.kernel.problems import Problem

Form = Literal["own", "lafs", "problem"]

JSON = "application/json"
LAFS = "application/vnd.lafs.envelope+json"
PROBLEM_JSON = "application/problem+json"
_FORMS: dict[str, Form] = {JSON: "own", "application/*": "own", "*/*": "own", LAFS: "lafs", PROBLEM_JSON: "problem"}
_MAX_ACCEPT = 1024
_ENVELOPE_SCHEMA = "https://lafs.dev/schemas/v1/envelope.schema.json"


def form_of(accept: str, *, failed: bool) -> Form:
    """The form a caller prefers; `problem` only for a failure. Ties go to the contract's own form."""
    if not accept or accept == "*/*" or len(accept) > _MAX_ACCEPT:
        return "own"
    best: Form = "own"
    best_quality = 0.0
    for item in accept.split(","):
        name, _, parameters = item.partition(";")
        form = _FORMS.get(name.strip().lower())
        if form is None or (form == "problem" and not failed):
            continue
        quality = _quality(parameters)
        if quality > best_quality or (quality == best_quality and form == "own"):
            best, best_quality = form, quality
    return best


def _quality(parameters: str) -> float:
    for item in parameters.split(";"):
        name, _, value = item.partition("=")
        if name.strip().lower() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0


def envelope(
    operation: str, request_id: str, now_ms: int, result: Any, problem: Problem | None = None
) -> dict[str, Any]:
    """`result` or `problem` in a full LAFS envelope (LAFS R12 to R14)."""
    body: dict[str, Any] = {
        "$schema": _ENVELOPE_SCHEMA,
        "_meta": {
            "specVersion": "1.8.0",
            "schemaVersion": "1.0.0",
            "timestamp": iso(now_ms),
            "operation": operation,
            "requestId": request_id,
            "transport": "http",
            "strict": True,
            "mvi": "full",
            "contextVersion": 0,
        },
        "success": problem is None,
        "result": result,
    }
    if problem is not None:
        body["error"] = problem.as_lafs()
    return body

"""Chooses the media type of an answer (RFC 9110 §12.5.1).

The contract's own JSON is the default; an answer is never refused because of `Accept`.
"""

from __future__ import annotations

from typing import Literal

from forestay.envelope import MEDIA_TYPE

Form = Literal["own", "lafs", "problem"]

JSON = "application/json"
LAFS = MEDIA_TYPE
PROBLEM_JSON = "application/problem+json"
EVENTS = "text/event-stream"
_FORMS: dict[str, Form] = {JSON: "own", "application/*": "own", "*/*": "own", LAFS: "lafs", PROBLEM_JSON: "problem"}
_MAX_ACCEPT = 1024


def form_of(accept: str, *, failed: bool) -> Form:
    """Return the form that a caller prefers; `problem` only for a failure. Ties go to the contract's own form."""
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

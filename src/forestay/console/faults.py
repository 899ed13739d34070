"""A refused form: the page shows the error beside its field and keeps what the person typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forestay.kernel import Problem, canonical

_TYPED = (400, 404, 409, 422)  # statuses of a mistake in the typed values


class Refused(msgspec.Struct, frozen=True):
    """The typed values and their error: at `field`, or of the whole form when `field` is empty."""

    given: Mapping[str, str] = {}
    field: str = ""
    message: str = ""


def refused(problem: Problem, given: Mapping[str, str], fields: Iterable[str]) -> Refused:
    """Return the problem for the form's page; raise it again when it is not about the typed values."""
    if problem.row.http not in _TYPED:
        raise problem
    place = str(problem.details.get("at", "")).removeprefix("$.").removeprefix("$")
    found = next((name for name in fields if place == name or place.startswith((f"{name}.", f"{name}["))), "")
    return Refused({name: given.get(name, "") for name in fields}, found, problem.message)


def typed_inputs(text: str) -> dict[str, Any]:
    """Decode the inputs of a run, typed as JSON; an empty text means no inputs."""
    try:
        found = canonical.decode(text.strip() or "{}")
    except Problem as problem:
        raise Problem("schema_mismatch", "Inputs are not valid JSON.", at="inputs") from problem
    if not isinstance(found, dict):
        raise Problem("schema_mismatch", "Inputs are a JSON object.", at="inputs")
    return found

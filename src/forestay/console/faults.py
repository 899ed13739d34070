"""A form that was refused: what is wrong stands beside the field, and what was typed stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forestay.kernel import Problem, canonical

_TYPED = (400, 404, 409, 422)  # what may be wrong with what somebody typed


class Refused(msgspec.Struct, frozen=True):
    """What was typed, and what is wrong with it: at a field, or with all of it (an empty name)."""

    given: Mapping[str, str] = {}
    field: str = ""
    message: str = ""


def refused(problem: Problem, given: Mapping[str, str], fields: Iterable[str]) -> Refused:
    """The problem as the form's page shows it; raised again when it is not about what was typed."""
    if problem.row.http not in _TYPED:
        raise problem
    place = str(problem.details.get("at", "")).removeprefix("$.").removeprefix("$")
    found = next((name for name in fields if place == name or place.startswith((f"{name}.", f"{name}["))), "")
    return Refused({name: given.get(name, "") for name in fields}, found, problem.message)


def typed_inputs(text: str) -> dict[str, Any]:
    """The inputs of a run that somebody typed as JSON; nothing typed is none."""
    try:
        found = canonical.decode(text.strip() or "{}")
    except Problem as problem:
        raise Problem("schema_mismatch", "Inputs are not valid JSON.", at="inputs") from problem
    if not isinstance(found, dict):
        raise Problem("schema_mismatch", "Inputs are a JSON object.", at="inputs")
    return found

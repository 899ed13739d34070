"""JSON Schemas that come from somebody else: they fetch nothing, and their patterns run in linear time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from holdfast.kernel import canonical
from holdfast.kernel.problems import Problem

_MOST_MISTAKES = 20
# Patterns with look-around, as JavaScript has them, cost a bounded number of steps.
_BOUNDED = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1_000_000, dfa_size_limit=1_000_000)


class Mistake(msgspec.Struct, frozen=True):
    """What is wrong and where: `at` is a path such as `$.limits.turns`."""

    at: str
    message: str


def object_schema(required: Sequence[str] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def schema_mistake(schema: Any) -> str | None:
    """Why `schema` is no JSON Schema that can be used here, or None."""
    if not isinstance(schema, dict):
        return "A schema is an object."
    try:
        compiled(canonical.encode(schema))
    except (ValueError, jsonschema_rs.ReferencingError, Problem) as error:
        return f"This is not a JSON Schema: {str(error).splitlines()[0][:200]}"
    return None


def check_schema(schema: Any, at: str) -> Iterator[tuple[str, str]]:
    """A finding when `schema` is there and cannot be used."""
    if schema is not None and (mistake := schema_mistake(schema)) is not None:
        yield at, mistake


def mistakes(schema: dict[str, Any], value: Any) -> list[Mistake]:
    """What keeps `value` from fitting `schema`, at most twenty of it."""
    found = []
    for error in compiled(canonical.encode(schema)).iter_errors(value):
        found.append(Mistake("$" + path(error.instance_path), error.message[:300]))
        if len(found) == _MOST_MISTAKES:
            break
    return found


def misfit(schema: dict[str, Any], value: Any) -> tuple[str, str] | None:
    """Where and why `value` does not fit, or None; a path begins with `.` or `[`, and is empty at the root."""
    if (mistake := schema_mistake(schema)) is not None:
        return "", mistake
    error = next(compiled(canonical.encode(schema)).iter_errors(value), None)
    return None if error is None else (path(error.instance_path), error.message[:300])


def path(parts: list[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


@lru_cache(maxsize=512)
def compiled(schema: bytes, *, javascript: bool = False) -> jsonschema_rs.Validator:
    """The validator of a schema's canonical bytes; `javascript` reads its patterns as that language does."""
    return jsonschema_rs.validator_for(
        canonical.decode(schema),
        retriever=_refuse,
        pattern_options=_BOUNDED if javascript else jsonschema_rs.RegexOptions(),
    )


def _refuse(address: str) -> Any:
    raise ValueError(f"a schema must not refer to {address}; put what it needs under $defs")

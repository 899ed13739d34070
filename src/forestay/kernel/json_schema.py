"""Validates values against JSON Schemas from outside, safely.

A schema fetches nothing, its patterns run in linear time, and the work that its references cause is counted first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from forestay.kernel import canonical
from forestay.kernel.problems import Problem
from forestay.kernel.schema_cost import MOST, Cost, depth_of, grows

if TYPE_CHECKING:
    import jsonschema_rs

_MOST_MISTAKES = 20


class Mistake(msgspec.Struct, frozen=True):
    """A mistake and its place: `at` is a path such as `$.limits.turns`."""

    at: str
    message: str


def object_schema(required: Sequence[str] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def schema_mistake(schema: Any) -> str | None:
    """Return why `schema` cannot be used as a JSON Schema, or None."""
    if not isinstance(schema, dict):
        return "A schema must be an object."
    from jsonschema_rs import ReferencingError  # a large package, loaded only for a check

    try:
        compiled(canonical.encode(schema))
    except (ValueError, ReferencingError, Problem) as error:
        return f"This is not a JSON Schema: {str(error).splitlines()[0][:200]}"
    return None


def check_schema(schema: Any, at: str) -> Iterator[tuple[str, str]]:
    """Yield a finding when a schema is given and cannot be used."""
    if schema is not None and (mistake := schema_mistake(schema)) is not None:
        yield at, mistake


def mistakes(schema: dict[str, Any], value: Any) -> list[Mistake]:
    """Return where `value` does not fit `schema`, at most twenty mistakes."""
    found = []
    for error in compiled(canonical.encode(schema)).iter_errors(value):
        found.append(Mistake("$" + json_path(error.instance_path), error.message[:300]))
        if len(found) == _MOST_MISTAKES:
            break
    return found


def misfit(schema: dict[str, Any], value: Any) -> tuple[str, str] | None:
    """Return where and why `value` does not fit, or None; a path begins with `.` or `[`, and is empty at the root."""
    if (mistake := schema_mistake(schema)) is not None:
        return "", mistake
    error = next(compiled(canonical.encode(schema)).iter_errors(value), None)
    return None if error is None else (json_path(error.instance_path), error.message[:300])


def json_path(parts: list[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


class Validator(Protocol):
    """The methods of a compiled schema."""

    def is_valid(self, instance: Any) -> bool: ...

    def iter_errors(self, instance: Any) -> Iterator[jsonschema_rs.ValidationError]: ...


class _Counted:
    """A schema with references: refuses a value for which they would cause too much work."""

    def __init__(self, validator: jsonschema_rs.Validator, cost: Cost) -> None:
        self._validator = validator
        self._cost = cost

    def is_valid(self, instance: Any) -> bool:
        self._admit(instance)
        return self._validator.is_valid(instance)

    def iter_errors(self, instance: Any) -> Iterator[jsonschema_rs.ValidationError]:
        self._admit(instance)
        return iter(self._validator.iter_errors(instance))

    def _admit(self, instance: Any) -> None:
        if self._cost.of(depth_of(instance)) > MOST:
            raise Problem(
                "payload_too_large",
                "The value is too deep: the references of its schema would cause too much work.",
                limit=MOST,
                fix="Use fewer alternatives that refer to the same definition, or a flatter value.",
            )


@lru_cache(maxsize=512)
def compiled(schema: bytes, *, javascript: bool = False) -> Validator:
    """Return the validator of a schema's canonical bytes; `javascript` reads patterns and tuples as JavaScript does."""
    import jsonschema_rs

    decoded = canonical.decode(schema)
    if javascript and isinstance(decoded, dict) and "$schema" not in decoded:
        decoded = _with_tuples(decoded)
    cost = Cost(decoded) if grows(decoded) else None
    if cost is not None and cost.of(0) > MOST:
        raise ValueError(f"its references apply more than {MOST} sub-schemas to one value")
    # Patterns with look-around, as JavaScript has them, cost a bounded number of steps.
    bounded = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1_000_000, dfa_size_limit=1_000_000)
    patterns = bounded if javascript else jsonschema_rs.RegexOptions()
    validator = jsonschema_rs.validator_for(decoded, retriever=_refuse, pattern_options=patterns)
    return validator if cost is None else _Counted(validator, cost)


_VALUES = frozenset(("const", "enum", "default", "examples"))  # their values are not schemas
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))


def _with_tuples(schema: Any) -> Any:
    """Write tuples as in the newest draft: TypeBox still writes `items` with one schema for each position."""
    if isinstance(schema, list):
        return [_with_tuples(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            found[key] = {name: _with_tuples(item) for name, item in value.items()}
        else:
            found[key] = value if key in _VALUES else _with_tuples(value)
    if isinstance(found.get("items"), list):
        rest = found.pop("additionalItems", True)
        found.update(prefixItems=found["items"], items=rest)
    return found


def _refuse(address: str) -> Any:
    raise ValueError(f"a schema must not refer to {address}; put what it needs under $defs")

"""Tool arguments, before a tool sees them: converted where the schema asks for another simple type, then validated.

Models write "4" where a number belongs; pi converts it, and so does this (P10).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs

from holdfast.kernel import canonical
from holdfast.kernel.json_schema import compiled
from holdfast.kernel.problems import Problem

_MAX_DEPTH = 64


def checker(schema: Mapping[str, Any]) -> Any:
    """The compiled form of a tool's schema."""
    return _validator(canonical.encode(schema))


def prepare(tool: str, schema: Mapping[str, Any], arguments: Any, check: Any = None) -> Any:
    """The arguments as the tool may have them, or a Problem that names each place that is wrong."""
    check = check or checker(schema)
    if check.is_valid(arguments):
        return arguments
    converted = _convert(copy.deepcopy(arguments), schema, 0)
    errors = [
        {
            "at": "$" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path),
            "reason": error.message,
        }
        for error in check.iter_errors(converted)
    ]
    if errors:
        listed = "; ".join(f"{error['at']}: {error['reason']}" for error in errors[:5])
        raise Problem(
            "schema_mismatch",
            f'Validation failed for tool "{tool}": {listed}',
            tool=tool,
            errors=errors[:20],
            fix="Correct the arguments at each place that `errors` names.",
        )
    return converted


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Any:
    try:
        return compiled(schema, javascript=True)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise Problem(
            "registration_invalid", "The tool's parameters are no JSON Schema.", reason=str(error)[:300]
        ) from error


def _convert(value: Any, schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return value
    for part in _list(schema.get("allOf")):
        value = _convert(value, part, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            value = _convert_to_one_of(value, schema[key], depth)
    types = [schema["type"]] if isinstance(schema.get("type"), str) else _list(schema.get("type"))
    if types and not any(_is(value, kind) for kind in types):
        for kind in types:
            changed = _simple(value, kind)
            if changed is not value:
                value = changed
                break
    if "object" in types and isinstance(value, dict):
        _convert_object(value, schema, depth)
    if "array" in types and isinstance(value, list):
        items = schema.get("items")
        for index, item in enumerate(value):
            part = items[index] if isinstance(items, list) and index < len(items) else items
            value[index] = _convert(item, part, depth + 1)
    return value


def _convert_object(value: dict[str, Any], schema: Mapping[str, Any], depth: int) -> None:
    known = schema.get("properties")
    known = known if isinstance(known, Mapping) else {}
    others = schema.get("additionalProperties")
    for key in list(value):
        value[key] = _convert(value[key], known.get(key, others), depth + 1)


def _convert_to_one_of(value: Any, schemas: list[Any], depth: int) -> Any:
    for schema in schemas:
        candidate = _convert(copy.deepcopy(value), schema, depth + 1)
        if isinstance(schema, Mapping) and _validator(canonical.encode(schema)).is_valid(candidate):
            return candidate
    return value


def _is(value: Any, kind: Any) -> bool:
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return _is(value, "number") and float(value).is_integer()
    python = {"boolean": bool, "string": str, "null": type(None), "array": list, "object": dict}.get(kind)
    return python is not None and isinstance(value, python)


def _simple(value: Any, kind: Any) -> Any:
    """`value` as the simple type `kind`, or `value` itself when there is no such reading of it."""
    if kind in ("number", "integer"):
        return _number(value, whole=kind == "integer")
    if kind == "boolean":
        if value is None:
            return False
        return (
            {"true": True, "false": False, 1: True, 0: False}.get(value, value)
            if isinstance(value, str | int | float)
            else value
        )
    if kind == "string":
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return canonical.encode(value).decode() if isinstance(value, int | float) else value
    if kind == "null" and isinstance(value, str | int | float) and value in ("", 0, False):
        return None
    return value


def _number(value: Any, *, whole: bool) -> Any:
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str) or not value.strip() or "_" in value:
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    if not math.isfinite(number) or (whole and not number.is_integer()):
        return value
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

"""JSON Schemas that come from workflow authors: they fetch nothing, and their patterns run in linear time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from holdfast.kernel import canonical
from holdfast.kernel.problems import Problem


def schema_mistake(schema: Any) -> str | None:
    """Why `schema` is no JSON Schema that can be used here, or None."""
    if not isinstance(schema, dict):
        return "A schema is an object."
    try:
        _validator(canonical.encode(schema))
    except (ValueError, jsonschema_rs.ReferencingError, Problem) as error:
        return f"This is not a JSON Schema: {str(error).splitlines()[0][:200]}"
    return None


def check_schema(schema: Any, at: str) -> Iterator[tuple[str, str]]:
    """A finding when `schema` is there and cannot be used."""
    if schema is not None and (mistake := schema_mistake(schema)) is not None:
        yield at, mistake


def misfit(schema: dict[str, Any], value: Any) -> tuple[str, str] | None:
    """Where and why `value` does not fit, or None; a path begins with `.` or `[`, and is empty at the root."""
    if (mistake := schema_mistake(schema)) is not None:
        return "", mistake
    error = next(_validator(canonical.encode(schema)).iter_errors(value), None)
    if error is None:
        return None
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    return path, error.message[:300]


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        msgspec.json.decode(schema), retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
    )


def _refuse(address: str) -> Any:
    raise ValueError(f"a schema must not refer to {address}; put what it needs under $defs")

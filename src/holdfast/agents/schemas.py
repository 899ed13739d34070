"""JSON Schema for agents: manifests, tasks, tool arguments and answers, with the place of every mistake."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from holdfast.kernel import canonical

_MOST_MISTAKES = 20


class Mistake(msgspec.Struct, frozen=True):
    """What is wrong and where: `at` is a path such as `$.limits.turns`."""

    at: str
    message: str


def mistakes(schema: dict[str, Any], value: Any) -> list[Mistake]:
    """What keeps `value` from fitting `schema`, at most twenty of it."""
    found = []
    for error in _validator(canonical.encode(schema)).iter_errors(value):
        found.append(Mistake(path(error.instance_path), error.message[:300]))
        if len(found) == _MOST_MISTAKES:
            break
    return found


def schema_mistake(schema: Any) -> str | None:
    """Why `schema` is no JSON Schema that can be used here, or None."""
    if not isinstance(schema, dict):
        return "a schema is an object"
    try:
        _validator(canonical.encode(schema))
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return str(error).splitlines()[0][:300]
    return None


def path(parts: list[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        msgspec.json.decode(schema),
        retriever=_refuse,
        # The linear engine: a pattern comes from a tool's author and must not be able to stop the host.
        pattern_options=jsonschema_rs.RegexOptions(),
    )


def _refuse(address: str) -> Any:
    raise ValueError(f"a schema must not refer to {address}; put what it needs under $defs")

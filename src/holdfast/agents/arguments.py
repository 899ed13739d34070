"""A tool's arguments as its schema wants them: coerced where the meaning is plain, refused otherwise (Pi P10)."""

from __future__ import annotations

from typing import Any

from holdfast.agents.ports import Tool
from holdfast.kernel.json_schema import mistakes
from holdfast.kernel.problems import Problem

_WORDS = {"true": True, "false": False}


def fitted(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments` that fit the tool's schema, or a Problem that tells the model what is wrong."""
    candidate = _coerced(tool.parameters, arguments)
    found = mistakes(tool.parameters, candidate)
    if found:
        raise Problem(
            "schema_mismatch",
            f"The arguments of {tool.name} do not fit: "
            + "; ".join(f"{mistake.at}: {mistake.message}" for mistake in found[:5]),
            at=found[0].at,
            errors=[{"at": mistake.at, "message": mistake.message} for mistake in found],
        )
    return dict(candidate)


def _coerced(schema: Any, value: Any) -> Any:
    """`"4"` is 4 where a number is wanted, 4 is `"4"` where text is; nothing else is touched."""
    if not isinstance(schema, dict):
        return value
    kind = schema.get("type")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {name: _coerced(properties.get(name), item) for name, item in value.items()}
    if isinstance(value, list):
        return [_coerced(schema.get("items"), item) for item in value]
    if isinstance(value, str) and kind in ("number", "integer"):
        return _number(value, kind)
    if isinstance(value, str) and kind == "boolean":
        return _WORDS.get(value.strip().lower(), value)
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _number(text: str, kind: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    if number != number or number in (float("inf"), float("-inf")):
        return text
    return int(number) if kind == "integer" and number.is_integer() else number

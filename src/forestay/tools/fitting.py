"""The arguments of one tool, called again and again: its schema is read once (`arguments.py`).

A conversion makes valid what is not. So arguments that are valid are taken as they are, where the schema is `steady`:
one that would convert nothing valid. Most are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.tools.arguments import checker, copied, fitted

_CHOOSING = ("allOf", "anyOf", "oneOf", "patternProperties", "prefixItems", "$ref", "$dynamicRef", "$recursiveRef")
"""Keywords with which a valid value may be converted: one of several schemas is tried, or another one counts."""
_MAX_DEPTH = 16


class Fitting:
    """Converts and checks the arguments of a tool, as `fitted` does."""

    def __init__(self, tool: str, schema: Mapping[str, Any], *, typebox: bool = False) -> None:
        self._tool = tool
        self._schema = schema
        self._typebox = typebox
        self._check = checker(schema)
        self._steady = not typebox and steady(schema)

    def __call__(self, arguments: Any) -> Any:
        """The arguments as the tool may have them, a copy; or a Problem that names each place that is wrong."""
        if self._steady and self._check.is_valid(arguments):
            return copied(arguments)
        return fitted(self._tool, self._schema, arguments, typebox=self._typebox, check=self._check)


def steady(schema: Any, depth: int = 0) -> bool:
    """Whether the conversions of plain JSON Schema leave every value alone that the schema allows.

    A conversion looks at `type`, and goes on in `properties`, `additionalProperties` and `items`. A valid value is of
    one of the types, and its parts are valid there. Only 4.0 is an integer that becomes another one.
    """
    if not isinstance(schema, dict):
        return True
    kinds = schema.get("type")
    if depth > _MAX_DEPTH or kinds == "integer" or (isinstance(kinds, list) and "integer" in kinds):
        return False
    if any(keyword in schema for keyword in _CHOOSING):
        return False
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(items, list):
        return False
    parts = [*(properties.values() if isinstance(properties, dict) else ()), schema.get("additionalProperties"), items]
    return all(steady(part, depth + 1) for part in parts)

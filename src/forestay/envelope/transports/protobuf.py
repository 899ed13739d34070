"""JSON inside protobuf's `Struct` and `Value`, where every number is a double."""

from __future__ import annotations

from typing import Any


def whole_numbers(value: Any) -> Any:
    """Turn whole doubles back into integers; beyond 2**53 a double has lost digits and stays one."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: whole_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return value

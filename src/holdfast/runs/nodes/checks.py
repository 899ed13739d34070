"""What checks of node configurations share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.kernel.problems import Problem
from holdfast.runs.expressions import compile_expression


def compiles(text: Any, at: str) -> Iterator[tuple[str, str]]:
    """A finding when `text` is no expression."""
    if not isinstance(text, str):
        yield at, "An expression is expected."
        return
    try:
        compile_expression(text)
    except Problem as problem:
        yield at, problem.message


def positive(config: dict[str, Any], key: str) -> Iterator[tuple[str, str]]:
    """A finding when `key` is there and is no whole number from 1 on."""
    value = config.get(key, 1)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        yield f".{key}", "A positive number is expected."


def needs_text(config: dict[str, Any], *keys: str) -> Iterator[tuple[str, str]]:
    for key in keys:
        if not isinstance(config.get(key), str) or not config[key]:
            yield f".{key}", f"`{key}` is missing."

"""Shared checks of node configurations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forestay.kernel import Problem
from forestay.runs.expressions import compile_expression
from forestay.runs.nodes.registry import NodeType


def check_config(kind: NodeType, config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of a node's configuration, with their places inside it."""
    if kind.check is not None:
        yield from kind.check(config)
    for key in kind.expressions:
        if isinstance(text := config.get(key), str):
            yield from compiles(text, f".{key}")


def compiles(text: Any, at: str) -> Iterator[tuple[str, str]]:
    """Yield a finding when `text` is not an expression."""
    if not isinstance(text, str):
        yield at, "An expression is expected."
        return
    try:
        compile_expression(text)
    except Problem as problem:
        yield at, problem.message


def positive(config: dict[str, Any], *keys: str) -> Iterator[tuple[str, str]]:
    """Yield a finding for each given key of `keys` that is not a whole number from 1 on."""
    for key in keys:
        value = config.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**53:
            yield f".{key}", "A positive number is expected."


def numbers(config: dict[str, Any], *keys: str) -> Iterator[tuple[str, str]]:
    """Yield a finding for each given key of `keys` that is not a number from 0 on."""
    for key in keys:
        value = config.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2**53:
            yield f".{key}", "A number from 0 on is expected."


_SHAPES: dict[type, str] = {dict: "An object", list: "An array", str: "A string"}


def shaped(config: dict[str, Any], shape: type, *keys: str) -> Iterator[tuple[str, str]]:
    """Yield a finding for each given key of `keys` that is not null and has another shape."""
    for key in keys:
        if config.get(key) is not None and not isinstance(config[key], shape):
            yield f".{key}", f"{_SHAPES[shape]} is expected."


def needs_text(config: dict[str, Any], *keys: str) -> Iterator[tuple[str, str]]:
    for key in keys:
        if not isinstance(config.get(key), str) or not config[key]:
            yield f".{key}", f"`{key}` is missing."

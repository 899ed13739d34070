"""Conditions on edges, and the names that conditions and expressions can read (W12)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from forestay.kernel import Problem
from forestay.runs.definition import Condition
from forestay.runs.expressions import compile_expression
from forestay.runs.values import compile_pattern, equal, holds, matches, member, truthy

Scope = Callable[[str], Any]
Test = Callable[[Scope], bool]

_LINK = re.compile(r"[^.\[\]]+|\[([0-9]+)\]")
_MISSING = object()


def compile_condition(condition: Condition) -> Test:
    """Return the condition as a test over a scope; `expression_invalid` when it cannot be read."""
    kind = condition.type or ("expression" if condition.expression else "equals")
    if kind == "expression":
        if not condition.expression:
            raise Problem("expression_invalid", "A condition of type expression needs `expression`.")
        compiled = compile_expression(condition.expression)
        return lambda scope: truthy(compiled.evaluate(scope))
    if not condition.left:
        raise Problem("expression_invalid", f"A condition of type {kind} needs `left`.")
    path, right = compile_path(condition.left), condition.right
    if kind == "regex":
        if not isinstance(right, str):
            raise Problem("expression_invalid", "A condition of type regex needs a pattern in `right`.")
        compile_pattern(right)
        return lambda scope: matches(path(scope), right)
    if kind == "contains":
        return lambda scope: holds(path(scope), right)
    if kind == "notEquals":
        return lambda scope: not equal(path(scope), right)
    return lambda scope: equal(path(scope), right)


def compile_path(text: str) -> Callable[[Scope], Any]:
    """Compile a plain path, as in `condition.left`: names may contain hyphens, `[2]` and `.2` are indexes."""
    if len(text) > 512:
        raise Problem("expression_invalid", "A path may have at most 512 characters.", limit=512)
    links: list[Any] = []
    for match in _LINK.finditer(text):
        part = match.group(1) or match.group()
        links.append(int(part) if part.isascii() and part.isdigit() else part)
    if not links or not isinstance(links[0], str):
        raise Problem("expression_invalid", f"{text!r} is not a path.")
    first, rest = links[0], links[1:]

    def read(scope: Scope) -> Any:
        value = scope(first)
        for link in rest:
            if isinstance(link, int) and isinstance(value, dict):
                link = str(link)
            value = member(value, link)
        return value

    return read


def make_scope(
    *,
    output: Any,
    status: str | None,
    inputs: Mapping[str, Any],
    variables: Mapping[str, Any],
    channels: Callable[[], Mapping[str, Any]],
    nodes: Callable[[], Mapping[str, Any]],
    extra: Mapping[str, Any] | None = None,
) -> Scope:
    """Return a scope with the names of W12; it looks up any other name in the source's output, then the variables."""

    def scope(name: str) -> Any:
        if extra is not None and name in extra:
            return extra[name]
        if name == "output":
            return output
        if name == "status":
            return status
        if name == "inputs":
            return inputs
        if name == "variables":
            return variables
        if name == "channels":
            return channels()
        if name == "nodes":
            return nodes()
        value = output.get(name, _MISSING) if isinstance(output, dict) else _MISSING
        return variables.get(name) if value is _MISSING else value

    return scope

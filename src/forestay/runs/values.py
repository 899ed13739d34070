"""Operations on JSON values: equality, membership, patterns, size, a copy. `visit` counts the members read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from forestay.kernel import Problem, canonical

MAX_PATTERN = 512
MAX_VALUE = 4 * 1024 * 1024
"""The size of an expression's result: the characters of its texts, and eight for each member."""
MAX_NESTING = 64

Visit = Callable[[int], None]

MAX_VALUE_BYTES = 7 * 1024 * 1024
"""A record of the ledger may contain two values: the old and the new one of a variable."""
plain = functools.partial(canonical.plain, limit=MAX_VALUE_BYTES)
"""Returns a value as the log will return it: a copy, as JSON, small enough to be written."""


def truthy(value: Any) -> bool:
    """Whether a condition counts a value as true: everything but null, false, zero and empty values."""
    return bool(value)


def check_size(value: Any) -> None:
    """Refuse a value that is too large or too deep to be written."""
    weight, level, depth = 0, [value], 0
    while level:
        depth += 1
        below: list[Any] = []
        for item in level:
            weight += 8 + (len(item) if isinstance(item, str) else 0)
            if weight > MAX_VALUE:
                raise Problem("expression_invalid", "The expression's result is too large.", limit=MAX_VALUE)
            if isinstance(item, dict):
                weight += sum(map(len, item))
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below
        if depth > MAX_NESTING:
            raise Problem("expression_invalid", f"A value may be nested at most {MAX_NESTING} deep.", limit=MAX_NESTING)


def _free(count: int) -> None:
    """A budget without a limit."""


def equal(left: Any, right: Any, visit: Visit = _free) -> bool:
    """JSON equality: 1 is 1.0, true is not 1 (E4)."""
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if isinstance(left, dict) and isinstance(right, dict):
        visit(len(left))
        return left.keys() == right.keys() and all(equal(left[key], right[key], visit) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        visit(len(left))
        return len(left) == len(right) and all(equal(a, b, visit) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def holds(container: Any, item: Any, visit: Visit = _free) -> bool:
    """Whether a string contains a text, an array an element, or an object a key."""
    if isinstance(container, str):
        visit(len(container))
        return isinstance(item, str) and item in container
    if isinstance(container, list):
        visit(len(container))
        return any(equal(member, item, visit) for member in container)
    if isinstance(container, dict):
        return isinstance(item, str) and item in container
    return False


def matches(text: Any, pattern: Any) -> bool:
    """Whether `pattern` matches in `text`, by a linear-time engine (E5)."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        return False
    return compile_pattern(pattern).search(text) is not None


@functools.lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise Problem("expression_invalid", f"A pattern may have at most {MAX_PATTERN} characters.", limit=MAX_PATTERN)
    import re2  # a large library, loaded only for patterns

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        message = f"{pattern[:80]!r} is not a valid pattern."
        raise Problem("expression_invalid", message, reason=str(error)[:200]) from error


def member(value: Any, key: Any) -> Any:
    """Return `value.key`, or null if it is missing (E3)."""
    if isinstance(value, dict):
        return value.get(key) if isinstance(key, str) else None
    if isinstance(value, list | str) and isinstance(key, int) and not isinstance(key, bool):
        return value[key] if -len(value) <= key < len(value) else None
    return None

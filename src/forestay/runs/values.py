"""What can be asked of JSON values: equality, membership, patterns, size, a copy. Who counts what is read says so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from forestay.kernel import Problem, canonical

MAX_PATTERN = 512
MAX_VALUE = 4 * 1024 * 1024
"""Characters of the texts in a value that an expression makes, and eight for each member."""
MAX_NESTING = 64

Visit = Callable[[int], None]

MAX_VALUE_BYTES = 7 * 1024 * 1024
"""A record of the ledger holds two of them: a variable's old value and its new one."""
plain = functools.partial(canonical.plain, limit=MAX_VALUE_BYTES)
"""A value as the log will give it back: a copy, as JSON, and small enough to be written."""


def truthy(value: Any) -> bool:
    """What a condition takes for true: everything but null, false, zero and what is empty."""
    return bool(value)


def check_size(value: Any) -> None:
    """Refuse a value that would be too large or too deep when it is written down."""
    weight, level, depth = 0, [value], 0
    while level:
        depth += 1
        below: list[Any] = []
        for item in level:
            weight += 8 + (len(item) if isinstance(item, str) else 0)
            if weight > MAX_VALUE:
                raise Problem("expression_invalid", "The expression makes too large a value.", limit=MAX_VALUE)
            if isinstance(item, dict):
                weight += sum(map(len, item))
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below
        if depth > MAX_NESTING:
            raise Problem("expression_invalid", f"A value may be nested {MAX_NESTING} deep.", limit=MAX_NESTING)


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
    """Whether a string has a part, an array an element, an object a key."""
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
    """Whether `pattern` is found in `text`, by a linear-time engine (E5)."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        return False
    return compile_pattern(pattern).search(text) is not None


@functools.lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise Problem("expression_invalid", f"A pattern may have {MAX_PATTERN} characters.", limit=MAX_PATTERN)
    import re2  # a large library, for those who use a pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        raise Problem("expression_invalid", f"{pattern[:80]!r} is not a pattern.", reason=str(error)[:200]) from error


def member(value: Any, key: Any) -> Any:
    """`value.key`: null where there is nothing (E3)."""
    if isinstance(value, dict):
        return value.get(key) if isinstance(key, str) else None
    if isinstance(value, list | str) and isinstance(key, int) and not isinstance(key, bool):
        return value[key] if -len(value) <= key < len(value) else None
    return None

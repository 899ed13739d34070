"""Which lines of a module's functions a set of inputs reaches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

Line = tuple[str, int]


def lines_in(modules: Iterable[ModuleType]) -> set[Line]:
    """The lines inside functions; what runs on import is no parsing."""
    found: set[Line] = set()
    for module in modules:
        assert module.__file__ is not None
        outer = compile(Path(module.__file__).read_text("utf-8"), module.__file__, "exec")
        for code in _functions(outer):
            body = {line for _, _, line in code.co_lines() if line is not None} - {code.co_firstlineno}
            found |= {(module.__file__, line) for line in body}
    return found


def _functions(outer: CodeType) -> Iterator[CodeType]:
    for code in outer.co_consts:
        if isinstance(code, CodeType):
            if code.co_flags & 2:  # CO_NEWLOCALS: a function, not the body of a class
                yield code
            yield from _functions(code)


def reached(modules: Iterable[ModuleType], work: Callable[[], object]) -> set[Line]:
    """The lines of `lines_in(modules)` that `work` runs."""
    wanted = lines_in(modules)
    files = {file for file, _ in wanted}
    seen: set[Line] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return step if frame.f_code.co_filename in files else None

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return seen & wanted

"""Finds where in an extension's own source an error happened: maps its stack through the source map (Pi §2A.7)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from forestay.extensions.compiler.sourcemap import SourceMap

_FRAME = re.compile(r"^\s*at (?:(?P<function>.*?) \()?(?P<file>[^()]*?):(?P<line>\d{1,9}):(?P<column>\d{1,9})\)?$")
_CALLED = re.compile(r"^\s*at (?P<function>[^ (]*)")
_MAX_LINES, _MAX_FRAMES = 400, 20


class Frame(msgspec.Struct, frozen=True):
    function: str
    file: str
    line: int
    column: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        return f"{self.function or '<anonymous>'} ({self.place})"


def location(error: dict[str, Any], artifact: str, source_map: str) -> tuple[str | None, list[str]]:
    """Return where a described error happened, and its stack in source positions."""
    found = frames(str(error.get("stack") or ""), artifact, source_map, str(error.get("name") or "Error"))
    return (found[0].place if found else None), [str(frame) for frame in found]


def frames(stack: str, artifact: str, source_map: str, error: str = "Error") -> list[Frame]:
    """Return the extension's own frames of a stack, in its source files, without the bridge's frames."""
    found: list[Frame] = []
    callee: str | None = None  # the function that this frame called; None in the innermost frame
    for text in stack.splitlines()[:_MAX_LINES]:
        match = _FRAME.match(text)
        if match and match["file"] == artifact and len(found) < _MAX_FRAMES:
            function, line, column = match["function"] or "", int(match["line"]), int(match["column"])
            found.append(_mapped(Frame(function, artifact, line, column), source_map, callee, error))
        named = _CALLED.match(text)
        callee = named["function"] if named else callee
    return _without_constructors(found, source_map)


def _without_constructors(found: list[Frame], source_map: str) -> list[Frame]:
    """Remove constructor frames, as Node does: the stack of an error begins at its `new`."""
    table = _table(source_map) if source_map else None
    while table is not None and len(found) > 1:
        from forestay.extensions.compiler.artifact import Location
        from forestay.extensions.compiler.call_sites import is_construction, makes

        first, second = found[0], found[1]
        inner, outer = table.content(first.file), table.content(second.file)
        if inner is None or outer is None or not first.function:
            break
        if not makes(Location(second.file, second.line, second.column), outer, first.function):
            break
        if not is_construction(Location(first.file, first.line, first.column), inner):
            break
        found = found[1:]
    return found


def _mapped(frame: Frame, source_map: str, callee: str | None, error: str) -> Frame:
    table = _table(source_map) if source_map else None
    original = table.original(frame.line, frame.column) if table is not None else None
    if table is None or original is None:
        return frame
    source = table.content(original.file)
    if source is not None:
        from forestay.extensions.compiler.call_sites import called_at, made_at

        original = made_at(original, source, error) if callee is None else called_at(original, source, callee)
    return Frame(frame.function, original.file, original.line, original.column)


@lru_cache(maxsize=16)
def _table(text: str) -> SourceMap | None:
    """Return the decoded map; the compiler package is imported only when an error must be mapped."""
    from forestay.extensions.compiler.sourcemap import SourceMap

    try:
        table = SourceMap(text.encode())
        table.original(1)
    except (ValueError, KeyError, IndexError, TypeError):
        return None  # with a damaged map, positions are only less precise
    return table

"""Where in an extension's own source an error happened: stack frames read, and mapped through the source map."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import Any

import msgspec

_FRAME = re.compile(r"^\s*at (?:(?P<function>.*?) \()?(?P<file>[^()]*?):(?P<line>\d+):(?P<column>\d+)\)?$")
_DIGITS = {
    letter: index for index, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
}
_MAX_FRAMES = 20


class Frame(msgspec.Struct, frozen=True):
    function: str
    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.function or '<anonymous>'} ({self.file}:{self.line}:{self.column})"


class _SourceMap(msgspec.Struct, frozen=True):
    mappings: str
    sources: list[str | None]


def frames(stack: str, artifact: str, source_map: str) -> list[Frame]:
    """The extension's own frames of a stack, in its own files; the bridge's frames are left out."""
    found = []
    for text in stack.splitlines()[:400]:
        match = _FRAME.match(text)
        if match and match["file"] == artifact:
            found.append(
                _mapped(match["function"] or "", artifact, int(match["line"]), int(match["column"]), source_map)
            )
            if len(found) >= _MAX_FRAMES:
                break
    return found


def _mapped(function: str, file: str, line: int, column: int, source_map: str) -> Frame:
    table = _table(source_map) if source_map else None
    if table is not None and 0 < line <= len(table):
        columns, segments = table[line - 1]
        index = bisect_right(columns, column - 1) - 1
        if index >= 0:
            source, original_line, original_column = segments[index]
            return Frame(function, source, original_line + 1, original_column + 1)
    return Frame(function, file, line, column)


@lru_cache(maxsize=16)
def _table(text: str) -> list[tuple[list[int], list[tuple[str, int, int]]]] | None:
    """For each generated line: where segments start, and what each stands for."""
    try:
        parsed = msgspec.json.decode(text, type=_SourceMap)
        return _decode(parsed)
    except (msgspec.MsgspecError, KeyError, IndexError):
        return None  # a damaged map only costs precision


def _decode(parsed: _SourceMap) -> list[tuple[list[int], list[tuple[str, int, int]]]]:
    table: list[tuple[list[int], list[tuple[str, int, int]]]] = []
    source = line = column = 0
    for row in parsed.mappings.split(";"):
        columns: list[int] = []
        segments: list[tuple[str, int, int]] = []
        start = 0
        for segment in row.split(","):
            values = _numbers(segment)
            if not values:
                continue
            start += values[0]
            if len(values) >= 4:
                source, line, column = source + values[1], line + values[2], column + values[3]
                columns.append(start)
                segments.append((parsed.sources[source] or "", line, column))
        table.append((columns, segments))
    return table


def _numbers(segment: str) -> list[int]:
    """A segment's base-64 variable-length numbers."""
    values: list[int] = []
    value = shift = 0
    for letter in segment:
        digit = _DIGITS[letter]
        value |= (digit & 31) << shift
        if digit & 32:
            shift += 5
            continue
        values.append(-(value >> 1) if value & 1 else value >> 1)
        value = shift = 0
    return values


def location(error: dict[str, Any], artifact: str, source_map: str) -> tuple[str | None, list[str]]:
    """Where a described error happened, and its stack in source positions."""
    found = frames(str(error.get("stack") or ""), artifact, source_map)
    return (f"{found[0].file}:{found[0].line}:{found[0].column}" if found else None), [str(frame) for frame in found]

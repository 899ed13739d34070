"""Source maps (Pi §2A.7): decode, map a position, rewrite a stack trace.

Positions count from 1 in everything that leaves this module; the map itself counts from 0.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from forestay.extensions.compiler.artifact import Location

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_VALUE = {char: index for index, char in enumerate(_ALPHABET)}

# One generated position: (column, source, line, column of the original, name); the last four may be absent.
Segment = tuple[int, ...]


class SourceMap:
    """A decoded map."""

    def __init__(self, data: bytes | dict[str, Any]) -> None:
        document: dict[str, Any] = json.loads(data) if isinstance(data, bytes) else data
        self.sources: list[str] = document["sources"]
        self.contents: list[str | None] = document.get("sourcesContent") or [None] * len(self.sources)
        self._mappings: str = document["mappings"]

    @cached_property
    def lines(self) -> list[list[Segment]]:
        return decode_mappings(self._mappings)

    @cached_property
    def _columns(self) -> list[list[int]]:
        return [[segment[0] for segment in line] for line in self.lines]

    def original(self, line: int, column: int = 1) -> Location | None:
        """Where the character at `line`:`column` of the generated code comes from."""
        if not 1 <= line <= len(self.lines):
            return None
        index = bisect.bisect_right(self._columns[line - 1], column - 1) - 1
        if index < 0:
            return None
        segment = self.lines[line - 1][index]
        if len(segment) < 4:
            return None
        return Location(self.sources[segment[1]], segment[2] + 1, segment[3] + 1)

    def content(self, file: str) -> str | None:
        """The source of `file`, when the map carries it."""
        return self.contents[self.sources.index(file)] if file in self.sources else None


def decode_mappings(mappings: str) -> list[list[Segment]]:
    """The `mappings` member as lines of segments with absolute values."""
    lines: list[list[Segment]] = []
    source = line = column = name = 0
    for group in mappings.split(";"):
        generated = 0
        segments: list[Segment] = []
        for text in group.split(",") if group else ():
            fields = list(_decode_vlq(text))
            generated += fields[0]
            if len(fields) < 4:
                segments.append((generated,))
                continue
            source, line, column = source + fields[1], line + fields[2], column + fields[3]
            if len(fields) > 4:
                name += fields[4]
                segments.append((generated, source, line, column, name))
            else:
                segments.append((generated, source, line, column))
        lines.append(segments)
    return lines


def encode_mappings(lines: Iterable[Iterable[Segment]]) -> str:
    """The inverse of `decode_mappings`."""
    groups: list[str] = []
    previous = [0, 0, 0, 0]
    for segments in lines:
        generated = 0
        parts: list[str] = []
        for segment in segments:
            text = _encode_vlq(segment[0] - generated)
            generated = segment[0]
            for index, value in enumerate(segment[1:]):
                text += _encode_vlq(value - previous[index])
                previous[index] = value
            parts.append(text)
        groups.append(",".join(parts))
    return ";".join(groups)


def shift_first_lines(source_map: dict[str, Any], prefixes: dict[str, int]) -> dict[str, Any]:
    """The map as if nothing had been put in front of the first line of the sources in `prefixes`."""
    by_index = {i: prefixes[name] for i, name in enumerate(source_map["sources"]) if name in prefixes}
    lines = [
        [
            (s[0], s[1], s[2], max(0, s[3] - by_index[s[1]]), *s[4:])
            if len(s) > 3 and s[2] == 0 and s[1] in by_index
            else s
            for s in segments
        ]
        for segments in decode_mappings(source_map["mappings"])
    ]
    return {**source_map, "mappings": encode_mappings(lines)}


def _decode_vlq(text: str) -> Iterator[int]:
    value = shift = 0
    for char in text:
        digit = _VALUE[char]
        value |= (digit & 31) << shift
        if digit & 32:
            shift += 5
            continue
        yield -(value >> 1) if value & 1 else value >> 1
        value = shift = 0


def _encode_vlq(value: int) -> str:
    rest = (-value << 1) | 1 if value < 0 else value << 1
    text = ""
    while True:
        digit = rest & 31
        rest >>= 5
        text += _ALPHABET[digit | 32 if rest else digit]
        if not rest:
            return text

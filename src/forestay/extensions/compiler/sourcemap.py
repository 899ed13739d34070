"""Source maps (Pi §2A.7): decode, map a position, rewrite a stack trace.

Positions count from 1 in everything that leaves this module; the map itself counts from 0.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from forestay.extensions.compiler.artifact import Location

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_NO_MAPPING = re.compile("[^A-Za-z0-9+/,;]")
_VALUE = {char: index for index, char in enumerate(_ALPHABET)}

# One generated position: (column, source, line, column of the original, name); the last four may be absent.
Segment = tuple[int, ...]

# Source, line, column and name of the last segment that had them: the next one is told by the difference.
Reached = tuple[int, int, int, int]
_NOWHERE: Reached = (0, 0, 0, 0)


class _Document(msgspec.Struct, frozen=True):
    """What is read of a map."""

    sources: list[str]
    mappings: str
    contents: list[str | None] | None = msgspec.field(name="sourcesContent", default=None)


class SourceMap:
    """A decoded map."""

    def __init__(self, data: bytes | dict[str, Any]) -> None:
        """What is no source map is a ValueError."""
        try:
            read = (
                msgspec.json.decode(data, type=_Document)
                if isinstance(data, bytes)
                else msgspec.convert(data, _Document)
            )
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"This is no source map: {error}") from error
        if _NO_MAPPING.search(read.mappings):
            raise ValueError("This is no source map: its mappings have letters that no mapping has.")
        self.sources = read.sources
        self.contents: list[str | None] = read.contents or [None] * len(self.sources)
        self._mappings = read.mappings
        self._decoded: dict[int, tuple[list[int], list[Segment]]] = {}
        self._known_lines, self._known = [0], [_NOWHERE]  # lines whose beginning is known, and what is known of it

    @cached_property
    def _groups(self) -> list[str]:
        """The mappings of each generated line."""
        return self._mappings.split(";")

    def original(self, line: int, column: int = 1) -> Location | None:
        """Where the character at `line`:`column` of the generated code comes from."""
        if not 1 <= line <= len(self._groups):
            return None
        columns, segments = self._line(line - 1)
        index = bisect.bisect_right(columns, column - 1) - 1
        if index < 0:
            return None
        segment = segments[index]
        if len(segment) < 4 or not 0 <= segment[1] < len(self.sources):
            return None
        return Location(self.sources[segment[1]], segment[2] + 1, segment[3] + 1)

    def _line(self, index: int) -> tuple[list[int], list[Segment]]:
        """The segments of one generated line, and their columns; only lines that are asked for are decoded."""
        known = self._decoded.get(index)
        if known is None:
            segments, _ = _decode_line(self._groups[index], self._before(index))
            known = self._decoded[index] = [segment[0] for segment in segments], segments
        return known

    def _before(self, index: int) -> Reached:
        """What the segments in front of a line add up to.

        A map of ten megabytes has millions of segments and some thousand different ones: each of those is decoded once.
        """
        place = bisect.bisect_right(self._known_lines, index) - 1
        start = self._known_lines[place]
        if start < index:
            reached = list(self._known[place])
            for text, times in Counter(",".join(self._groups[start:index]).split(",")).items():
                fields = decode_segment(text)
                for at, value in enumerate(fields[1:5] if len(fields) > 3 else ()):
                    reached[at] += times * value
            place += 1
            self._known_lines.insert(place, index)
            self._known.insert(place, (reached[0], reached[1], reached[2], reached[3]))
        return self._known[place]

    def content(self, file: str) -> str | None:
        """The source of `file`, when the map carries it."""
        return self.contents[self.sources.index(file)] if file in self.sources else None


def decode_mappings(mappings: str) -> list[list[Segment]]:
    """The `mappings` member as lines of segments with absolute values."""
    lines: list[list[Segment]] = []
    reached = _NOWHERE
    for group in mappings.split(";"):
        segments, reached = _decode_line(group, reached)
        lines.append(segments)
    return lines


def _decode_line(group: str, reached: Reached) -> tuple[list[Segment], Reached]:
    """The segments of one line, and where the next line goes on."""
    source, line, column, name = reached
    generated = 0
    segments: list[Segment] = []
    for text in group.split(",") if group else ():
        fields = decode_segment(text)
        if not fields:
            continue  # half a number, or none
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
    return segments, (source, line, column, name)


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


@lru_cache(maxsize=16384)  # a map has few different segments
def decode_segment(text: str) -> tuple[int, ...]:
    """The numbers of one segment."""
    numbers: list[int] = []
    value = shift = 0
    for char in text:
        digit = _VALUE[char]
        value |= (digit & 31) << shift
        if digit & 32:
            shift += 5
            continue
        numbers.append(-(value >> 1) if value & 1 else value >> 1)
        value = shift = 0
    return tuple(numbers)


def _encode_vlq(value: int) -> str:
    rest = (-value << 1) | 1 if value < 0 else value << 1
    text = ""
    while True:
        digit = rest & 31
        rest >>= 5
        text += _ALPHABET[digit | 32 if rest else digit]
        if not rest:
            return text

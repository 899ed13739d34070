"""Where the code of some sources stands in a bundle, as its source map tells.

A map has a segment wherever a file begins, so a stretch reaches from the first segment of a source to the next segment
of another one. The bundler opens a module that is run later with a line of its own, which has no segment: that line
belongs to what follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from forestay.extensions.compiler.scan.syntax import Span
from forestay.extensions.compiler.sourcemap import decode_segment

_OPENING = re.compile(rb"var [\w$]+=__(?:esm|commonJS)\(\{\"[^\"]*\"\([\w$,]*\)\{\Z")
_LONGEST_OPENING = 600


def stretches_of(prefix: str, code: bytes, source_map: dict[str, Any]) -> tuple[Span, ...]:
    """The stretches of `code` that come from sources whose names begin with `prefix`; none when that is not sure."""
    wanted = {index for index, name in enumerate(source_map["sources"]) if name.startswith(prefix)}
    if not wanted or not code.isascii():  # a column counts characters
        return ()
    spans: list[Span] = []
    begun = -1
    for place, source in _changes(code, source_map["mappings"]):
        if source is None:
            return ()
        if source in wanted and begun < 0:
            begun = place
        elif source not in wanted and begun >= 0:
            spans.append((begun, _before_opening(code, begun, place)))
            begun = -1
    return tuple(spans) if begun < 0 else ()  # the entry of an extension comes last


def _changes(code: bytes, mappings: str) -> Iterator[tuple[int, int | None]]:
    """Each place where another source begins, and which one; None for a segment that names none."""
    source, is_first, line_start = 0, True, 0
    fields: dict[str, tuple[int, ...]] = {}  # by segment: most of a map are the same few
    moves: dict[str, int] = {}
    changing: set[str] = set()
    for group in mappings.split(";"):
        segments = group.split(",") if group else []
        for text in set(segments).difference(fields):
            found = fields[text] = decode_segment(text)
            moves[text] = found[0] if found else 0
            if len(found) < 4 or found[1]:
                changing.add(text)
        asked = [at for at, text in enumerate(segments) if text in changing]
        if is_first and segments:
            asked, is_first = sorted({0, *asked}), False
        place, done = line_start, 0
        for at in asked:
            place += sum(map(moves.__getitem__, segments[done : at + 1]))
            done = at + 1
            found = fields[segments[at]]
            source += found[1] if len(found) > 3 else 0
            yield place, source if len(found) > 3 else None
        line_start = code.find(b"\n", line_start) + 1


def _before_opening(code: bytes, start: int, end: int) -> int:
    found = _OPENING.search(code, max(start, end - _LONGEST_OPENING), end)
    return found.start() if found else end

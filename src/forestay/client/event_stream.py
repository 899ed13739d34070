"""Parses server-sent events as they arrive: takes chunks of bytes, returns the data of whole events. Pure.

A line ends with LF, CR or both, and with nothing else: a text may hold U+2028 or U+0085, at which `str.splitlines`
breaks.
"""

from __future__ import annotations

import re

from forestay.kernel import Problem

MAX_EVENT = 64 * 1024 * 1024
_END = re.compile(rb"\r\n|\n|\r")


class EventStream:
    """The parser of one connection."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that `chunk` completes."""
        found: list[bytes] = []
        pending = self._rest + chunk
        at = 0
        for end in _END.finditer(pending, max(0, len(self._rest) - 1)):
            if end.group() == b"\r" and end.end() == len(pending):
                break  # its LF may come with the next chunk
            self._line(pending[at : end.start()], found)
            at = end.end()
        self._rest = pending[at:]
        self._check(len(self._rest))
        return found

    def _line(self, line: bytes, found: list[bytes]) -> None:
        if line.startswith(b"data:"):
            self._check(len(line))
            self._size += len(line)
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            found.append(b"\n".join(self._data))
            self._data, self._size = [], 0

    def _check(self, more: int) -> None:
        if self._size + more > MAX_EVENT:
            raise Problem("upstream_confused", "The host sent an event without an end.", limit=MAX_EVENT)

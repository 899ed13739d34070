"""Joining windows: when to go on, what to ask, and which characters of the next window are an echo (CRP §1.4).

What to ask follows from where the long output stands (open blocks, heading, list position). Whether to go on follows
from whether it says anything new.

Invariants (`out` is what the caller has been given, `W` the raw text of the next window):

- J1  Joining removes a prefix of `W` and nothing else; no character of `out` is ever taken back (C1).
- J2  What is removed is the longest S with out[-2000:].endswith(S) and W.startswith(S), if it has 20 characters
      or more (C12).
- J3  The pieces that `Seam.feed` and `Seam.end` give, put together, are W without that prefix, however W was cut
      into deltas (C2).
- J4  At most 2000 characters are held back, and only while a longer echo is still possible.
- J5  Time is linear in the characters fed and the 2000 characters of tail.
- J6  An echo is `ambiguous` when the text itself repeats there, so that a shorter echo, or none, would fit as well.
"""

from __future__ import annotations

import re

import msgspec

from forestay.models import words

REACH = 2000
FLOOR = 20
ANCHOR = 500
LEAST_ANCHOR = 200
_WALLS = frozenset({"length", "max_tokens", "limit"})
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_NUMBERED = re.compile(r"[ \t]*(\d{1,9})[.)][ \t]")
_BULLET = re.compile(r"[ \t]*[-*+][ \t]")
_FENCE = re.compile(r"[ \t]*(```+|~~~+)[ \t]*(\S*)")
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\[\]{}]')
_ENDS_WELL = re.compile(r"[^\n]{50,}[.!?]\Z")
_LEAST_TRIGRAMS = 50
_PATIENCE = 3
_HEADING_SHOWN = 120
_CLOSERS = {"{": "}", "[": "]"}


class Echo(msgspec.Struct, frozen=True):
    """What a seam removed: `length` characters; `other` is the next shorter echo that would also have fitted."""

    length: int = 0
    ambiguous: bool = False
    other: int = 0


class Seam:
    """Finds the echo while the window streams in.

    The tail of `out` is matched against the growing window as Knuth, Morris and Pratt do it, with the window as the
    pattern: whenever the whole known window is matched, the leftmost alignment, which is the longest possible echo, is
    still alive and the scan pauses until more of the window is known. Where the scan meets the end of the tail, the
    matched length is the longest echo.
    """

    def __init__(self, before: str) -> None:
        self._tail = before[-REACH:]
        self._at = 0  # how much of the tail has been scanned
        self._matched = 0
        self._window: list[str] = []  # characters of the window, while they may be an echo
        self._fail: list[int] = []
        self.echo: Echo | None = None if self._tail else Echo()

    @property
    def held(self) -> int:
        """How many characters wait for the decision."""
        return 0 if self.echo is not None else len(self._window)

    def fresh(self) -> Seam:
        """The same seam before anything was fed: for a window that is asked for again."""
        return Seam(self._tail)

    def feed(self, text: str) -> str:
        """The part of the window that can be shown now."""
        if self.echo is not None:
            return text
        for index, character in enumerate(text):
            self._extend(character)
            self._scan()
            # The longest echo that is still possible; below the floor there is nothing to wait for.
            if self._at == len(self._tail) or len(self._tail) - self._at + self._matched < FLOOR:
                return self._decide() + text[index + 1 :]
        return ""

    def end(self) -> str:
        """The rest of the window: nothing more will come."""
        if self.echo is not None:
            return ""
        self._scan(closed=True)
        return self._decide()

    def _extend(self, character: str) -> None:
        window, fail = self._window, self._fail
        window.append(character)
        if len(window) == 1:
            fail.append(0)
            return
        length = fail[-1]
        while length and window[length] != character:
            length = fail[length - 1]
        fail.append(length + 1 if window[length] == character else 0)

    def _scan(self, *, closed: bool = False) -> None:
        tail, window, fail = self._tail, self._window, self._fail
        at, matched, known = self._at, self._matched, len(self._window)
        while at < len(tail):
            if matched == known:
                if not closed or not known:
                    break
                matched = fail[matched - 1]
                continue
            if tail[at] == window[matched]:
                matched += 1
                at += 1
            elif matched:
                matched = fail[matched - 1]
            else:
                at += 1
        if closed and not known:
            at = len(tail)
        self._at, self._matched = at, matched

    def _decide(self) -> str:
        length = self._matched
        other = self._fail[length - 1] if length else 0
        if length < FLOOR:
            length, self.echo = 0, Echo()
        else:
            self.echo = Echo(length, self._repeats(length, other), other)
        rest = "".join(self._window[length:])
        self._window, self._fail = [], []
        return rest

    def _repeats(self, length: int, other: int) -> bool:
        """J6: a second overlap fits, the echo is made of repetitions, or the same text stands right before it."""
        period = length - other
        return other >= FLOOR or 2 * period <= length or self._tail[-2 * length : -length] == self._tail[-length:]


def join(before: str, window: str) -> tuple[str, Echo]:
    """`before` and the part of `window` that is new."""
    seam = Seam(before)
    new = seam.feed(window) + seam.end()
    assert seam.echo is not None
    return before + new, seam.echo


def is_wall(finish_reason: str | None, output_tokens: int, max_output_tokens: int) -> bool:
    """Whether the window ended because it was full (CRP §1.4)."""
    if finish_reason is None:
        return output_tokens >= max_output_tokens - 1
    return finish_reason in _WALLS


class Structure:
    """Reads the output line by line as it grows; each character is read once."""

    def __init__(self) -> None:
        self.heading = ""
        self.item = ""
        self.table = False
        self._fence: tuple[str, str] | None = None
        self._brackets: list[str] = []
        self._rest = ""
        self._json: bool | None = None

    def feed(self, text: str) -> None:
        if self._json is None and text.strip():
            self._json = text.lstrip()[0] in "[{"
        lines = (self._rest + text).split("\n")
        self._rest = lines.pop()
        for line in lines:
            self._line(line)

    def _line(self, line: str) -> None:
        fence = _FENCE.match(line)
        if fence is not None:
            if self._fence is None:
                self._fence = (fence.group(1)[:3], fence.group(2))
            elif fence.group(1).startswith(self._fence[0]):
                self._fence = None
            return
        if self._fence is not None:
            return
        if self._json:
            self._track(line)
            return
        if heading := _HEADING.match(line):
            self.heading, self.item, self.table = heading.group(2).strip(), "", False
        elif number := _NUMBERED.match(line):
            self.item = number.group(1)
        elif _BULLET.match(line):
            self.item = self.item or "a bullet"
        elif not line.strip():
            self.table = False
        else:
            self.table = line.lstrip().startswith("|")
            if not line.startswith((" ", "\t")):
                self.item = ""

    def _track(self, line: str) -> None:
        for mark in _STRING_OR_BRACKET.findall(line):
            if mark in _CLOSERS:
                self._brackets.append(mark)
            elif mark in ("}", "]") and self._brackets:
                self._brackets.pop()

    def open_blocks(self) -> list[str]:
        """What has been opened and not closed, innermost last."""
        found = []
        if self._fence is not None:
            found.append(f"a code block opened with {self._fence[0]}{self._fence[1]}")
        if self._brackets:
            found.append("JSON that still needs " + "".join(_CLOSERS[mark] for mark in reversed(self._brackets[-20:])))
        if self.table:
            found.append("a table")
        return found

    @property
    def splittable(self) -> bool:
        """Whether the text could be cut here without cutting a block."""
        return self._fence is None and not self._brackets


def continuation_prompt(output: str, structure: Structure, anchor: int = ANCHOR) -> str:
    """What asks for the next window: where the text stands, and its last characters, verbatim (C13)."""
    lines = [
        "Continue writing from where the previous section ended.",
        "Write only what comes next, beginning with the very next character; repeat nothing and comment on nothing.",
    ]
    if structure.heading:
        lines.append(f"You were writing: {structure.heading[:_HEADING_SHOWN]}")
    if structure.item:
        lines.append(f"List position: item {structure.item}")
    blocks = structure.open_blocks()
    if blocks:
        lines.append("Open blocks to close: " + "; ".join(blocks))
    lines.append("The text so far ends with:\n" + output[-anchor:])
    return "\n".join(lines)


class Flow:
    """Whether windows still bring something: the share of word triples that were not written before.

    A wall says that the model had more to say, so only a model that goes in circles is stopped: several windows in a
    row, each long enough to judge, with hardly a new triple among them.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._dry = 0
        self.novelty = self.before = 1.0  # the share of new triples, in the last window and in the one before it

    def alive(self, text: str) -> bool:
        """Read one more window; False when the last few said nothing new."""
        stems = words(text)
        triples = {hash(triple) for triple in zip(stems, stems[1:], stems[2:], strict=False)}
        new = len(triples - self._seen)
        self._seen |= triples
        if len(stems) < _LEAST_TRIGRAMS:
            return True
        self.before, self.novelty = self.novelty, new / (len(stems) - 2)
        self._dry = self._dry + 1 if new < 0.05 * (len(stems) - 2) else 0
        return self._dry < _PATIENCE


def safe_cut(text: str, start: int) -> int:
    """How far `text` can be read for facts while more is coming: to the last paragraph, else sentence, else line."""
    at = text.rfind("\n\n", start)
    if at >= 0:
        return at + 2
    for mark in (". ", ".\n", "。", "\n"):
        at = text.rfind(mark, start)
        if at >= 0:
            return at + len(mark)
    return start

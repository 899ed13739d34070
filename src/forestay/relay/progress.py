"""Where a long output stands (open blocks, heading, list position), and whether it says anything new (CRP §1.4)."""

from __future__ import annotations

import re

from forestay.models import words
from forestay.relay.continuation import ANCHOR

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

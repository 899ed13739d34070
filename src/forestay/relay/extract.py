"""Cutting a text into facts without a model and without losing anything (CRP C6, §1.5).

Invariants:

- X1  Every character that is not white space lies in exactly one unit, except on lines that only draw a rule
      (`---`, `====`).
- X2  A unit never crosses a blank line, except inside a fenced block or a JSON block.
- X3  Units come in the order of the text, and time is linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from forestay.relay.entities import is_name

Kind = Literal["sentence", "item", "row", "pair", "code", "json", "heading"]

SENTENCE_LIMIT = 1000
BLOCK_LIMIT = 8000


class Unit(NamedTuple):
    """A piece of the text: its span in code points, what it is, and the headings, table head or record above it."""

    start: int
    end: int
    kind: Kind
    context: str


_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HEADING = re.compile(r"#{1,6}[ \t]+\S")
_ITEM = re.compile(r"[ \t]*(?:[-*+•‣–]|\d{1,9}[.)]|[A-Za-z][.)])[ \t]+\S")
_RULE = re.compile(r"[\s\-=_*#|:+~·•]*\Z")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-{2,}[-:| \t]*\Z")
_PAIR = re.compile(r"[ \t]*[\"']?([^\W_][\w .\-/()]{0,47}?)[\"']?[ \t]*(?::[ \t]|:$|=(?!=))[ \t]*(?=\S|$)")
_STAMPED = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]|\[?\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|"
    r"\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b"
)
_CODE = re.compile(
    r"[ \t]*(?:def |class |async |import |from [\w.]+ import |return\b|raise |yield |elif |else:|try:|except\b|"
    r"finally:|with .*:$|(?:if|for|while) .*[:{]$|const |let |var |function |export |interface |type \w+ =|public |"
    r"private |#include|@\w+|//|/\*|\*/|[}\])]+[;,]?$)"
)
_CODE_ENDS = ("{", "}", ";", "):", ");", "},", "],", "),", "=> {")
# The end of a sentence: its mark with closing quotes, then white space; the wide marks need none.
# A run of marks is looked at once, from its beginning: a text of a million dots must not cost a million squared.
_STOP = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s)|[。！？]+[”’」』）]*|(?<![؟۔।])[؟۔।]++(?=\s)")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e cf al fig no vol pp ed inc ltd co corp approx dept est resp".split()
)
_JSON_MARK = re.compile(r'[\[\]{}]|"(?:[^"\\\n]|\\.)*"')
_BREAK = re.compile(r"[;:,)\]}]\s|\s")


def units(text: str) -> Iterator[Unit]:
    """The units of `text`, in order (X1 to X3)."""
    return _Scanner(text).run()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._headings: list[tuple[int, str]] = []
        self._context = ""
        self._head = ""  # the head of the table or list of rows that is being read
        self._record = ""  # the pair that says what the pairs around it are about
        self._lines: list[tuple[int, int]] = []  # lines of the paragraph that is being read
        self._no_json_before = 0

    def run(self) -> Iterator[Unit]:
        text, at, end = self._text, 0, len(self._text)
        while at < end:
            line = _LINE.match(text, at)
            assert line is not None
            stop = line.end()
            body = line.group().strip()
            if not body:
                yield from self._flush()
                self._head = ""
                at = stop
                continue
            first = body[0]
            if first in "`~" and body.startswith(("```", "~~~")):
                yield from self._flush()
                stop = self._fence_end(stop, body[:3])
                yield from self._pieces(at, stop, "code", BLOCK_LIMIT)
            elif first == "|" and body.count("|") > 1:
                yield from self._flush()
                yield from self._row(at, stop, body)
            elif first in "{[" and not self._lines and (close := self._json_end(at)):
                stop = close
                yield from self._pieces(at, stop, "json", BLOCK_LIMIT)
            elif first == "#" and _HEADING.match(body):
                yield from self._flush()
                yield self._heading(at, stop, len(body) - len(body.lstrip("#")), body.strip("# \t"))
            elif first in "-=_*#|:+~·•" and _RULE.match(body):
                yield from self._underline(at, stop, first)
            elif _ITEM.match(line.group()):
                yield from self._flush()
                stop = self._item_end(stop)
                yield from self._pieces(at, stop, "item", SENTENCE_LIMIT)
            else:
                self._lines.append((at, stop))
            at = stop
        yield from self._flush()

    # Lines that say by themselves what they are

    def _heading(self, start: int, end: int, level: int, title: str) -> Unit:
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        unit = self._unit(start, end, "heading")
        assert unit is not None, "a heading has a title"
        self._headings.append((level, title[:120]))
        self._context = " > ".join(title for _, title in self._headings)
        self._head = ""
        return unit

    def _underline(self, start: int, end: int, mark: str) -> Iterator[Unit]:
        """A rule; under a single line of text it makes that line a heading."""
        begin, stop = self._lines[0] if self._lines else (0, 0)
        if mark in "=-" and len(self._lines) == 1 and stop - begin <= 120 and not _STOP.search(self._text, begin, stop):
            self._lines.clear()
            yield self._heading(begin, stop, 1 if mark == "=" else 2, self._text[begin:stop].strip())
        else:
            yield from self._flush()

    def _row(self, start: int, end: int, body: str) -> Iterator[Unit]:
        if _TABLE_RULE.match(body):
            return
        yield from self._pieces(start, end, "row", BLOCK_LIMIT)
        if not self._head:
            self._head = " ".join(cell.strip() for cell in body[:400].split("|")).strip()[:200]

    def _fence_end(self, at: int, fence: str) -> int:
        """The end of the line that closes the fence, or of the text."""
        text = self._text
        while at < len(text):
            line = _LINE.match(text, at)
            assert line is not None
            at = line.end()
            if line.group().lstrip().startswith(fence):
                return at
        return at

    def _json_end(self, start: int) -> int:
        """The end of the line on which the bracket that opens here is closed; 0 when it never is."""
        if start < self._no_json_before:
            return 0
        depth = 0
        for mark in _JSON_MARK.finditer(self._text, start):
            character = mark.group()
            if character in "[{":
                depth += 1
            elif character in "]}":
                depth -= 1
                if depth == 0:
                    end = self._text.find("\n", mark.end())
                    end = len(self._text) if end < 0 else end + 1
                    if self._text[mark.end() : end].strip(" \t\r\n,;"):
                        break  # text goes on behind the bracket: a sentence that began with one
                    return end
        # Looked at once: what lies before this mark is not looked at again, which keeps the whole linear (X3).
        self._no_json_before = mark.end() if depth == 0 else len(self._text)
        return 0

    def _item_end(self, at: int) -> int:
        """Indented lines that follow an item belong to it."""
        text = self._text
        while at < len(text) and text[at] in " \t":
            line = _LINE.match(text, at)
            assert line is not None
            body = line.group()
            if not body.strip() or _ITEM.match(body) or body.lstrip().startswith(("```", "~~~", "|")):
                break
            at = line.end()
        return at

    # Paragraphs

    def _flush(self) -> Iterator[Unit]:
        """The paragraph that was read, as what it turns out to be."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        bodies = [self._text[start:end].rstrip() for start, end in lines]
        kind = _kind_of(bodies)
        if kind == "sentence":
            yield from self._sentences(lines[0][0], lines[-1][1])
        elif kind == "code":
            yield from self._pieces(lines[0][0], lines[-1][1], "code", BLOCK_LIMIT)
        else:
            self._record = _record_of(bodies) if kind == "pair" else ""
            for (start, end), body in zip(lines, bodies, strict=True):
                yield from self._pieces(start, end, kind, SENTENCE_LIMIT)
                if kind == "row" and not self._head and not _STAMPED.match(body):
                    self._head = re.sub(r"[,;\t]+", " ", body)[:200]

    def _sentences(self, start: int, end: int) -> Iterator[Unit]:
        text, at = self._text, start
        for mark in _STOP.finditer(text, start, end):
            stop = mark.end()
            if text[mark.start()] == "." and stop - mark.start() == 1 and _is_abbreviation(text, at, mark.start()):
                continue
            if stop - at > SENTENCE_LIMIT:
                yield from self._pieces(at, stop, "sentence", SENTENCE_LIMIT)
            elif (unit := self._unit(at, stop, "sentence")) is not None:
                yield unit
            at = stop
        yield from self._pieces(at, end, "sentence", SENTENCE_LIMIT)

    def _pieces(self, start: int, end: int, kind: Kind, limit: int) -> Iterator[Unit]:
        """The span as one unit, or as several of at most `limit` characters cut at a line, a comma or a space."""
        text = self._text
        while end - start > limit:
            cut = text.rfind("\n", start + limit // 2, start + limit) + 1
            if not cut:
                cut = max(
                    (found.end() for found in _BREAK.finditer(text, start + limit // 2, start + limit)), default=0
                )
            cut = cut or start + limit
            if (unit := self._unit(start, cut, kind)) is not None:
                yield unit
            start = cut
        if (unit := self._unit(start, end, kind)) is not None:
            yield unit

    def _unit(self, start: int, end: int, kind: Kind) -> Unit | None:
        """The span without the white space around it; None where nothing else is in it."""
        text = self._text[start:end]
        body = text.strip()
        if not body:
            return None
        start += text.index(body[0])
        context = self._context
        above = self._head if kind == "row" else self._record if kind == "pair" else ""
        if above:
            context = f"{context} > {above}" if context else above
        return Unit(start, start + len(body), kind, context)


def _kind_of(bodies: list[str]) -> Kind:
    """What a paragraph is: rows of a table or log, pairs, code, or prose."""
    count = len(bodies)
    stamped = sum(1 for body in bodies if _STAMPED.match(body))
    if 2 * stamped > count:
        return "row"
    if count > 1:
        for delimiter, least in (("\t", 1), (",", 2), (";", 2)):
            columns = bodies[0].count(delimiter)
            if columns < least or delimiter + " " in bodies[0]:
                continue
            alike = sum(1 for body in bodies if body.count(delimiter) >= columns)
            if 5 * alike >= 4 * count:
                return "row"
    code = sum(1 for body in bodies if body.endswith(_CODE_ENDS) or _CODE.match(body))
    if 2 * code > count:
        return "code"
    if all(_PAIR.match(body) for body in bodies):
        return "pair"
    return "sentence"


def _record_of(bodies: list[str]) -> str:
    """`Ship: Aurora` where the first of several pairs names what the others are about; else nothing.

    A key that stands twice makes it a conversation or a log, and no record.
    """
    found = [_PAIR.match(body) for body in bodies]
    keys = {pair.group(1).strip().lower() for pair in found if pair is not None}
    if len(bodies) < 2 or len(keys) < len(bodies) or found[0] is None:
        return ""
    first = bodies[0].strip()
    value = bodies[0][found[0].end() :].strip()
    return first[:120] if is_name(found[0].group(1), value) else ""


def _is_abbreviation(text: str, start: int, dot: int) -> bool:
    """Whether the full stop at `dot` belongs to the word before it: an initial, a number in a list, `e.g.`."""
    begin = max(start, dot - 12)
    words = text[begin:dot].split()
    word = words[-1] if words else ""
    if text[dot + 1 : dot + 2] == "\n" and text[dot + 1 : dot + 3] == "\n\n":
        return False
    return (len(word) == 1 and word.isalpha() and word.isupper()) or word.lstrip("([\"'").lower() in _ABBREVIATIONS

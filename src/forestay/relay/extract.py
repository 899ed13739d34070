"""Cutting a text into facts without a model and without losing anything, and what each fact speaks of (CRP C6, §1.5).

A fact speaks of addresses, identifiers, quantities, dates and names, sets an attribute to a value, and may relate to
the fact before it.

Invariants:

- X1  Every character that is not white space lies in exactly one unit, except on lines that only draw a rule
      (`---`, `====`).
- X2  A unit never crosses a blank line, except inside a fenced block or a JSON block.
- X3  Units come in the order of the text, and time is linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from forestay.models import stem

_TRIM = ".,;:!?()[]{}<>\"'`“”‘’«»|*"
_LONGEST = 200

# Tried in this order on one word, from its first character to its last.
_TYPES = re.compile(
    "|".join(
        f"(?P<{kind}>{pattern})"
        for kind, pattern in {
            "url": r"(?i:[a-z][a-z0-9+.-]{1,20}://\S+)",
            "email": r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}",
            "cve": r"(?i:CVE-\d{4}-\d{4,7})",
            "date": r"\d{4}-\d\d-\d\d(?:[T ][\d:.]{5,15}(?:Z|[+-]\d\d:?\d\d)?)?|\d{1,2}[./]\d{1,2}[./]\d{4}",
            "address": r"(?i:\d{1,3}(?:\.\d{1,3}){3}(?:[:/]\d{1,5})?|(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4})",
            "version": r"(?i:v\d{1,5}(?:\.\d{1,5}){0,3}|\d{1,5}(?:\.\d{1,5}){2,3}(?:-[\w.]{1,20})?)",
            "error": r"[A-Z]{2,16}[-_]?\d{2,6}|E[A-Z]{3,15}|\w{2,60}(?:Error|Exception)|0x[0-9a-fA-F]{2,16}",
            "number": r"[€$£]?[+-]?\d[\d,.]{0,30}(?:%|[A-Za-zµ°]{1,6}(?:/[a-z]{1,3})?)?[€$£]?",
            "identifier": r"[\w-]*\d[\w./:#-]*",
        }.items()
    )
)
_TYPED = re.compile(r"[0-9@]")
_UNIT = re.compile(r"[A-Za-zµ°%]{1,12}")

RELATIONS: dict[str, tuple[str, ...]] = {
    "condition": ("if", "unless", "provided", "otherwise"),
    "cause-effect": ("because", "therefore", "thus", "hence", "consequently", "so"),
    "contrast": ("however", "but", "whereas", "instead", "unlike"),
    "elaboration": ("specifically", "namely", "moreover", "furthermore", "additionally", "also"),
    "concession": ("although", "though", "despite", "nevertheless", "nonetheless"),
    "dependency": ("requires", "depends", "needs"),
    "sequence": ("then", "next", "finally", "afterwards", "subsequently", "before", "after"),
}
_RELATION_OF = {stem(word): name for name, words in RELATIONS.items() for word in words}
_MARKERS = frozenset(_RELATION_OF)
_POINTS_BACK = frozenset(
    stem(word) for word in ("it", "its", "this", "that", "these", "those", "they", "their", "such", "he", "she")
)

# These name who speaks, or what kind of line it is, and never what something is set to.
_SPEAKERS = frozenset("user assistant system human ai bot agent speaker me you q a question answer note todo".split())
_IDENTITIES = frozenset("id uuid no nr number name title key ref reference serial code".split())
_CLAIM = re.compile(r"\s(?:is|are|was|were|equals|costs|has|have|=)\s(?:now\s|set to\s|currently\s)?")


def entities(text: str) -> Iterator[tuple[str, str]]:
    """The typed words of `text` and its names, each as (type, value), in order."""
    name: list[str] = []
    words = text.split()
    for place, raw in enumerate(words):
        if raw.isalpha() and raw[0].islower():  # most words: not worth a closer look
            if name:
                yield from _named(name)
                name = []
            continue
        word = raw.strip(_TRIM)
        if word.isalpha():
            if word[0].isupper() and not word.isupper() and len(word) > 1:
                name.append(word)
                if raw[-1] not in ".,;:!?":
                    continue
            yield from _named(name)
            name = []
            if word.endswith(("Error", "Exception")) and len(word) > 9:
                yield "error", word
            continue
        yield from _named(name)
        name = []
        if not word or len(word) > _LONGEST:
            continue
        kind = _type_of(word)
        unit = words[place + 1].strip(_TRIM) if kind == "number" and place + 1 < len(words) else ""
        if kind:
            yield kind, f"{word} {unit}" if word[-1].isdigit() and _UNIT.fullmatch(unit) else word
    yield from _named(name)


def _type_of(word: str) -> str | None:
    found = _TYPES.fullmatch(word)
    return found.lastgroup if found is not None else None


def _named(name: Sequence[str]) -> Iterator[tuple[str, str]]:
    """One capital is how a sentence starts; two in a row are a name."""
    if len(name) > 1:
        yield "name", " ".join(name[:4])


def first_entity(text: str) -> str:
    """The first typed word or name of `text`; empty where it has none."""
    if text[1:].islower() and text.isascii() and "://" not in text and not _TYPED.search(text):
        return ""  # one capital at most, no digit: most sentences
    return next(entities(text), ("", ""))[1]


def relation(words: Sequence[str]) -> str:
    """How a sentence with these stems relates to the one before it: the first discourse marker says so."""
    if _MARKERS.isdisjoint(words):
        return "elaboration" if words and words[0] in _POINTS_BACK else ""
    return next(_RELATION_OF[word] for word in words if word in _MARKERS)


def claim(text: str, kind: str, *, alone: bool = False) -> tuple[str, str] | None:
    """What the fact sets, and to which value; None when it sets nothing.

    The value is empty where the attribute is one that says things and has no value: who speaks in a conversation.
    A text that is nothing but `Ann: Yes` (`alone`) is taken for speech.
    """
    if kind == "pair":
        at = min((place for mark in (":", "=") if (place := text.find(mark)) > 0), default=0)
        attribute, value = " ".join(text[:at].strip("\"' \t").lower().split()), text[at + 1 :].strip()
        if not attribute or not value or attribute in _SPEAKERS:
            return None
        named = alone and text[:1].isupper() and not any(_type_of(word.strip(_TRIM)) for word in value.split())
        return (attribute, "") if named or _is_speech(value) else (attribute, _plain(value))
    if kind != "sentence" or (verb := _CLAIM.search(text)) is None:
        return None
    subject, said = " ".join(text[: verb.start()].lower().split()).removeprefix("the "), text[verb.end() :].split()
    typed = [_type_of(word.strip(_TRIM)) is not None for word in said]
    if not subject or subject in _POINTS_BACK or len(subject.split()) > 8 or len(said) > 8 or not any(typed):
        return None
    # 9 m deep and 12 m wide are two attributes: the words around the value name what is measured.
    around = " ".join("#" if value else _plain(word) for word, value in zip(said, typed, strict=True))
    past = "was " if verb.group().split()[0] in ("was", "were") else ""
    return f"{subject} {past}{around}", _plain(" ".join(said))


def is_name(key: str, value: str) -> bool:
    """Whether the first pair of a record names what the others are about: `Ship: Aurora`, `id: 17`."""
    if " ".join(key.lower().split()) in _IDENTITIES:
        return True
    return bool(value) and value[0].isupper() and len(value.split()) <= 6 and not _is_speech(value)


def _is_speech(value: str) -> bool:
    return len(value.split()) > 8 or value[-1] in ".!?…。！？"


def _plain(text: str) -> str:
    return " ".join(text.strip(_TRIM).lower().split())


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


_MONTHS = (
    "january february march april may june july august september october november december "
    "jan feb mar apr may jun jul aug sep oct nov dec"
).split()
_NAMED = "|".join(sorted({month.title() for month in _MONTHS}, key=len, reverse=True))
_DATE = re.compile(
    rf"\b(?P<year>\d{{4}})-(?P<number>\d\d)-(?P<iso>\d\d)\b"
    rf"|\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?)?(?P<month>{_NAMED})\b\.?(?:\s+(?P<after>\d{{1,2}})\b(?!\d))?"
)


def dates(text: str) -> list[str]:
    """The months and days that `text` names, in one spelling whichever way they are written."""
    found: list[str] = []
    for match in _DATE.finditer(text):
        if match["number"]:
            month, day = int(match["number"]), int(match["iso"])
        else:
            month = _MONTHS.index(match["month"].lower()) % 12 + 1
            day = int(match["before"] or match["after"] or 0)
        found.append(f"@{month:02}")
        if day:
            found.append(f"@{month:02}-{day:02}")
    return found

"""A bundle without what the host provides; a large one part by part, together where one counts for the other.

P1  A part is one or more files of the bundle: the bundler tells how many bytes each became. Two files are only parted
    where a statement ends; what does not parse by itself has the whole read as one.
P2  What belongs to nobody (the helpers of the bundler, the virtual modules, the exports) is read with every part.
P3  A part stands alone when no name that it looked for is declared in another part, and no name of it whose calls,
    members or readers count is mentioned by a part that imports it. Then reading the whole would tell the same of it.
P4  Parts that do not stand alone are read together, until all do. Nothing is judged from a reading that was not closed.
P5  A package that the host provides is trusted, imports nothing of an extension, and what it does itself is not told:
    only what it gives back counts. So the rest is read without it, unless that looks for a name which it declares.
    Where the package stands is told by the source map, which no input can change, and not by how much each file became.

The tree of ten megabytes takes four hundred; that of a part is let go before the next one is parsed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from forestay.extensions.compiler.scan.reach import Reach
from forestay.extensions.compiler.scan.syntax import File, Span
from forestay.extensions.compiler.scan.uses import DECISIVE, MODULES, Finding, findings, ordered
from forestay.extensions.compiler.scan.values import Values

_LARGE = 1_500_000  # bytes, from which on a bundle is read in parts
_OWN_PART = 65_536  # a file of this size is a part; smaller ones of one package are a part together
_MOST_PROVIDED = 64  # texts whose names are remembered: they differ only where the bundler renamed something
_WORD = re.compile(rb"[\w$\\]+")
_BEGINS_NAME = re.compile(rb"[A-Za-z_$]")


class Section(msgspec.Struct, frozen=True):
    """The bytes of one file in a bundle; `package` is what it belongs to, "" when every part needs it."""

    name: str
    package: str
    start: int
    end: int
    imports: tuple[str, ...] = ()


class _Read(msgspec.Struct, frozen=True):
    """What reading some sections told."""

    sections: tuple[Section, ...]
    findings: list[Finding]
    asked: set[str]
    offered: set[str]
    declared: set[str]
    parses: bool


def read_program(
    name: str, text: bytes, sections: Sequence[Section], provided: Sequence[Span] = (), large: int = _LARGE
) -> list[Finding]:
    """Every finding of a bundle, in the order of the text; `provided` is where packages of the host stand."""
    if provided and len(text) < large:
        beside = _beside(name, text, provided)
        return beside.findings if beside is not None else _read(name, text, ()).findings
    parts = _parts(text, sections) if len(text) >= large else []
    if len(parts) < 2:
        return _read(name, text, ()).findings
    common = _rest(len(text), [section for part in parts for section in part])
    done: list[_Read] = []
    for part in parts:
        done.append(_read(name, text, part, common))
        if not done[-1].parses:
            return _read(name, text, ()).findings
    while True:
        groups = _linked(text, done)
        if len(groups) == len(done):
            return ordered(finding for one in done for finding in one.findings)
        if max(sum(s.end - s.start for one in group for s in one.sections) for group in groups) > len(text) // 2:
            return _read(name, text, ()).findings
        done = [group[0] if len(group) == 1 else _together(name, text, group, common) for group in groups]


def _beside(name: str, text: bytes, provided: Sequence[Span]) -> _Read | None:
    """What stands beside the packages of the host; None when they count for it (P5)."""
    if not all(_is_boundary(text, place) for span in provided for place in span):
        return None
    declared = _declared_in(b"".join(text[start:end] for start, end in provided))
    if declared is None:
        return None
    read = _read_spans(name, text, _between(len(text), provided))
    return read if read.parses and not read.asked & declared else None


def _declared_in(text: bytes) -> frozenset[str] | None:
    """The names that a text declares; None when it does not parse. A package is the same in almost every bundle."""
    key = hashlib.sha256(text).digest()
    known = _declared.get(key)
    if known is None:
        file = File("", text, "js")
        if file.root.has_error:
            return None
        while len(_declared) >= _MOST_PROVIDED:
            _declared.pop(next(iter(_declared)), None)
        known = _declared[key] = frozenset(file.declared())
    return known


_declared: dict[bytes, frozenset[str]] = {}


def _together(name: str, text: bytes, group: list[_Read], common: list[Span]) -> _Read:
    sections = sorted((section for one in group for section in one.sections), key=lambda section: section.start)
    return _read(name, text, sections, common)


def _read(name: str, text: bytes, part: Sequence[Section], common: Iterable[Span] = ()) -> _Read:
    spans = sorted([*((section.start, section.end) for section in part), *common]) if part else ()
    return _read_spans(name, text, spans, part)


def _read_spans(name: str, text: bytes, spans: Sequence[Span], part: Sequence[Section] = ()) -> _Read:
    file = File(name, text, "js", spans)
    values = Values(file)
    found = findings(file, values, Reach(file, values, DECISIVE, MODULES))
    declared = set(file.declared()) if part else set()
    return _Read(tuple(part), found, file.asked, file.offered, declared, not file.root.has_error)


def _parts(text: bytes, sections: Sequence[Section]) -> list[list[Section]]:
    """The sections in parts (P1)."""
    parts: dict[str, list[Section]] = {}
    home = ""
    for place, section in enumerate(sections):
        # A file whose first byte is in the middle of a statement belongs to what is before it.
        if place == 0 or _is_boundary(text, section.start):
            home = section.package and (section.name if section.end - section.start >= _OWN_PART else section.package)
        if home:
            parts.setdefault(home, []).append(section)
    return list(parts.values())


def _is_boundary(text: bytes, place: int) -> bool:
    before = text[place - 1 : place]
    return before in (b";", b"\n") or (before == b"}" and _BEGINS_NAME.match(text, place) is not None)


def _rest(size: int, sections: list[Section]) -> list[Span]:
    """What no section covers (P2)."""
    return _between(size, sorted((section.start, section.end) for section in sections))


def _between(size: int, spans: Iterable[Span]) -> list[Span]:
    """What some stretches of a text leave."""
    left, reached = [], 0
    for start, end in spans:
        if start > reached:
            left.append((reached, start))
        reached = end
    return [*left, (reached, size)] if reached < size else left


def _linked(text: bytes, done: list[_Read]) -> list[list[_Read]]:
    """What has to be read together (P3)."""
    shared = set.intersection(*(one.declared for one in done))
    home = list(range(len(done)))

    def find(at: int) -> int:
        while home[at] != at:
            at = home[at]
        return at

    declaring: dict[str, list[int]] = {}
    for at, one in enumerate(done):
        for name in one.declared - shared:
            declaring.setdefault(name, []).append(at)
    words = _Words(text, done)
    for at, one in enumerate(done):
        for name in one.asked & declaring.keys():
            for other in declaring[name]:
                home[find(other)] = find(at)
        offered = one.offered - shared
        for other in words.importers(at) if offered else ():
            if find(other) != find(at) and words.mentions(other, offered):
                home[find(other)] = find(at)
    groups: dict[int, list[_Read]] = {}
    for at, one in enumerate(done):
        groups.setdefault(find(at), []).append(one)
    return list(groups.values())


class _Words:
    """Who imports whom, and the names that each mentions."""

    def __init__(self, text: bytes, done: list[_Read]) -> None:
        self._text = text
        self._done = done
        self._words: dict[int, set[bytes]] = {}
        of = {section.name: at for at, one in enumerate(done) for section in one.sections}
        self._by: list[set[int]] = [set() for _ in done]
        for at, one in enumerate(done):
            for target in (target for section in one.sections for target in section.imports):
                if target in of and of[target] != at:
                    self._by[of[target]].add(at)

    def importers(self, at: int) -> set[int]:
        """Every part that imports something of a part, also through others."""
        found: set[int] = set()
        pending = [at]
        while pending:
            new = self._by[pending.pop()] - found
            found |= new
            pending += new
        return found - {at}

    def mentions(self, at: int, names: set[str]) -> bool:
        """Whether a part has one of some names; a name that may be spelled otherwise counts as mentioned."""
        if at not in self._words:
            spans = [(section.start, section.end) for section in self._done[at].sections]
            self._words[at] = {word for start, end in spans for word in _WORD.findall(self._text, start, end)}
        return any(not name.isascii() or name.encode() in self._words[at] for name in names)

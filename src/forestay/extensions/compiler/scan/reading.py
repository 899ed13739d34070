"""Each text is read once: what it uses and what it needs, kept by the hash of its bytes.

N1  A text is parsed once and walked once, for both questions.
N2  What is kept is small: findings and needs, never a tree or a text. The least recently asked for goes first.
    Under which name a text was read first is of no matter: the same text under another name is told with that one.
N3  A bundle is a text like any other, but only asked what it uses: what it needs is told by its parts. Keys that are
    made up are looked for in the bundle alone: it has every subscript that its parts have, and knows more of each.
"""

from __future__ import annotations

import gc
import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from forestay.extensions.compiler.scan.needs import NETWORK, Use, needs
from forestay.extensions.compiler.scan.program import Section, read_program
from forestay.extensions.compiler.scan.reach import Reach
from forestay.extensions.compiler.scan.rules import DECISIVE_WORDS
from forestay.extensions.compiler.scan.syntax import Dialect, File, Span
from forestay.extensions.compiler.scan.uses import DECISIVE, MODULES, Finding, findings, has_uses, unparsed
from forestay.extensions.compiler.scan.values import Values
from forestay.extensions.compiler.scan.words import any_of

_NEEDS = re.compile(
    rb"\b(?:fs|fs/promises|os|child_process|https?|http2|dns|undici|sqlite|fetch|process|XMLHttpRequest|WebSocket|EventSource|"
    rb"pi|ui|exec|tool|sessionManager|ExtensionAPI|registerProvider|http)\b"
)
_BOTH = re.compile(rb"\b" + any_of(DECISIVE_WORDS | NETWORK) + rb"\b")
_MOST = 8192  # texts that are remembered


class Reading(msgspec.Struct, frozen=True):
    """What a text tells."""

    findings: tuple[Finding, ...] = ()
    uses: tuple[Use, ...] = ()

    def of(self, name: str) -> Reading:
        """The same, told of the file with this name."""
        places = [*(one.location for one in self.findings), *(one.location for one in self.uses)]
        if all(place.file == name for place in places):
            return self
        return Reading(
            tuple(replace(one, location=replace(one.location, file=name)) for one in self.findings),
            tuple(replace(one, location=replace(one.location, file=name)) for one in self.uses),
        )


class Text(msgspec.Struct, frozen=True):
    """One source as it is read."""

    name: str
    contents: bytes
    dialect: Dialect


def read(name: str, text: bytes, dialect: Dialect) -> Reading:
    """What one source uses, and needs; the same text under another name is not read again."""
    kept = _kept.reading(_key(text, dialect), lambda: _read(name, text, dialect))
    return kept.of(name)


def is_kept(text: Text) -> bool:
    """Whether a text was read before."""
    return _kept.has(_key(text.contents, text.dialect))


def keep(text: Text, reading: Reading) -> None:
    """Remember what was read elsewhere."""
    _kept.reading(_key(text.contents, text.dialect), lambda: reading)


def read_bundle(
    name: str, text: bytes, sections: Sequence[Section] = (), provided: Sequence[Span] = ()
) -> tuple[Finding, ...]:
    """What a whole program uses; `sections` are the files that it was made of, `provided` what is the host's own."""
    key = (name, "bundle", hashlib.sha256(text).digest())
    return _kept.reading(key, lambda: Reading(_read_bundle(name, text, sections, provided))).findings


def forget() -> None:
    """Let go of everything that is kept."""
    _kept.clear()


Key = tuple[str, str, bytes]


def _key(text: bytes, dialect: Dialect) -> Key:
    return "", dialect, hashlib.sha256(text).digest()


class _Kept:
    def __init__(self) -> None:
        self._readings: OrderedDict[Key, Reading] = OrderedDict()
        self._lock = threading.Lock()

    def reading(self, key: Key, made_by: Callable[[], Reading]) -> Reading:
        with self._lock:
            known = self._readings.get(key)
            if known is not None:
                self._readings.move_to_end(key)
                return known
        made = made_by()
        with self._lock:
            self._readings[key] = made
            while len(self._readings) > _MOST:
                self._readings.popitem(last=False)
        return made

    def has(self, key: Key) -> bool:
        with self._lock:
            return key in self._readings

    def clear(self) -> None:
        with self._lock:
            self._readings.clear()


def _read_bundle(name: str, text: bytes, sections: Sequence[Section], provided: Sequence[Span]) -> tuple[Finding, ...]:
    if not has_uses(text):
        return tuple(unparsed(File(name, text, "js")))
    with _uncollected():
        return tuple(read_program(name, text, sections, provided))


def _read(name: str, text: bytes, dialect: Dialect) -> Reading:
    is_asked = _NEEDS.search(text) is not None
    file = File(name, text, dialect)
    if not is_asked and not has_uses(text):
        return Reading(tuple(unparsed(file)))
    with _uncollected():
        values = Values(file)
        words, modules = (_BOTH, None) if is_asked else (DECISIVE, MODULES)
        reach = Reach(file, values, words, modules, is_part=True)
        return Reading(tuple(findings(file, values, reach)), tuple(needs(file, values, reach)) if is_asked else ())


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic collector: it would go through a million nodes again and again, and none is in a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_kept = _Kept()

"""What a fact speaks of: addresses, identifiers, quantities, dates, names; and how it relates to the one before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.models.words import stem

_TRIM = ".,;:!?()[]{}<>\"'`“”‘’«»|*"
_LONGEST = 200

# Tried in this order on one word, from its first character to its last.
_TYPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("url", re.compile(r"[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)),
    ("email", re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")),
    ("cve", re.compile(r"CVE-\d{4}-\d{4,7}", re.IGNORECASE)),
    ("date", re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.]{5,15}(?:Z|[+-]\d\d:?\d\d)?)?|\d{1,2}[./]\d{1,2}[./]\d{4}")),
    (
        "address",
        re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?:[:/]\d{1,5})?|(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}", re.IGNORECASE),
    ),
    ("version", re.compile(r"v\d{1,5}(?:\.\d{1,5}){0,3}|\d{1,5}(?:\.\d{1,5}){2,3}(?:-[\w.]{1,20})?", re.IGNORECASE)),
    ("error", re.compile(r"[A-Z]{2,16}[-_]?\d{2,6}|E[A-Z]{3,15}|\w{2,60}(?:Error|Exception)|0x[0-9a-fA-F]{2,16}")),
    ("number", re.compile(r"[€$£]?[+-]?\d[\d,.]{0,30}(?:%|[A-Za-zµ°]{1,6}(?:/[a-z]{1,3})?)?[€$£]?")),
    ("identifier", re.compile(r"[\w-]*\d[\w./:#-]*")),
)
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

_CLAIM = re.compile(r"\s(?:is|are|was|were|equals|costs|has|have|=)\s(?:now\s|set to\s|currently\s)?")


def entities(text: str) -> list[tuple[str, str]]:
    """The typed words of `text` and its names, each as (type, value), in order."""
    found: list[tuple[str, str]] = []
    name: list[str] = []
    words = text.split()
    for place, raw in enumerate(words):
        if raw.isalpha() and raw[0].islower():  # most words: not worth a closer look
            if name:
                _end_name(found, name)
            continue
        word = raw.strip(_TRIM)
        if word.isalpha():
            if word[0].isupper() and not word.isupper() and len(word) > 1:
                name.append(word)
                if raw[-1] not in ".,;:!?":
                    continue
            _end_name(found, name)
            if word.endswith(("Error", "Exception")) and len(word) > 9:
                found.append(("error", word))
            continue
        _end_name(found, name)
        if not word or len(word) > _LONGEST:
            continue
        kind = _type_of(word)
        if (
            kind == "number"
            and word[-1].isdigit()
            and place + 1 < len(words)
            and _UNIT.fullmatch(words[place + 1].strip(_TRIM))
        ):
            found.append(("number", f"{word} {words[place + 1].strip(_TRIM)}"))
        elif kind:
            found.append((kind, word))
    _end_name(found, name)
    return found


def _type_of(word: str) -> str | None:
    for kind, pattern in _TYPES:
        if pattern.fullmatch(word):
            return kind
    return None


def _end_name(found: list[tuple[str, str]], name: list[str]) -> None:
    """One capital is how a sentence starts; two in a row are a name."""
    if len(name) > 1:
        found.append(("name", " ".join(name[:4])))
    name.clear()


def relation(words: Sequence[str]) -> str:
    """How a sentence with these stems relates to the one before it: the first discourse marker says so."""
    if _MARKERS.isdisjoint(words):
        return "elaboration" if words and words[0] in _POINTS_BACK else ""
    return next(_RELATION_OF[word] for word in words if word in _MARKERS)


def claim(text: str, kind: str) -> tuple[str, str] | None:
    """What the fact says about what: (subject, value), when it sets one value of one thing; else None."""
    if kind == "pair":
        at = min((place for mark in (":", "=") if (place := text.find(mark)) > 0), default=0)
        subject, value = text[:at], text[at + 1 :]
    elif kind == "sentence":
        verb = _CLAIM.search(text)
        if verb is None:
            return None
        subject, value = text[: verb.start()], text[verb.end() :]
        if (
            len(subject.split()) > 8
            or len(value.split()) > 8
            or not any(_type_of(word.strip(_TRIM)) for word in value.split())
        ):
            return None
    else:
        return None
    subject, value = " ".join(subject.lower().split()), " ".join(value.strip(_TRIM).lower().split())
    if subject.startswith("the "):
        subject = subject[4:]
    return (subject, value) if subject and value and subject not in _POINTS_BACK else None

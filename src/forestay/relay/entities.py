"""What a fact speaks of: addresses, identifiers, quantities, dates, names; and how it relates to the one before it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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

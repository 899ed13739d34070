"""Finding the sentence that answers a question, and where it stands."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from forestay.models.local.expects import holds, kind_of, needed, without_asking
from forestay.models.vocabulary import content_words

# A line that names what follows: `[source: notes.md]`, `Source: notes.md`, `<document source="notes.md">`, a heading.
_MARK = re.compile(
    r"""(?ix) ^ (?: (?:[\[<(]\w+\s+|[\W_]*) (?:source|file|document|path) \s*[:=]\s* ["'`]? | \#{1,6}\s+ | =+\s+ )
        (?P<name>[^"'`\]\)>\n;,]{1,200}?) \s* (?:["'`\]\)>;,].*|=+)? $"""
)
# A line that only opens or closes a part of the context: `[DISCOVERIES]`, `[/SOURCE_PASSAGE]`, `</document>`.
_FRAME = re.compile(r"^(?:\[/?[A-Z][A-Z_ ]*\]|</\w+>)$")
_TRAILING = re.compile(r"\s*[\[(](?:source|from|file)\s*[:=]\s*(?P<name>[^\])]+)[\])]\s*$", re.IGNORECASE)
# Where a sentence ends. A run of marks is looked at once, from its beginning: long runs must not cost their square.
_END = re.compile(
    r"""(?x) (?<![.!?。！？]) (?: [.!?]*+ [。！？] [.!?。！？]*+ ["')\]”]*+ | [.!?]++ ["')\]”]*+ (?=\s|$) )"""
)
_LONGEST_MARK = 400
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
# A sentence that opens with one of these goes on about what the sentence before it is about.
_GOES_ON = re.compile(
    r"""^["'“(]*(?:and |but |then |so )?(?:she|he|it|they|her|his|its|their|this|these|those)\b""", re.IGNORECASE
)
_NAME = re.compile(r"(?<=[\w,;:)] )[A-Z]\w+")
_GENERAL = re.compile(r"\b(?:what|which|whose)\s+(\w+)", re.IGNORECASE)
_LIGHT = content_words("have take make get need do happen mean work find long last say give go come there called name")
_PLAIN = re.compile(r"\w+")
_LONGEST_SUBJECT = 3
_CARRIED = 0.8  # what a word of the sentence before counts
_LEAST_COVERAGE = 0.55
_FEW = 2  # of so few words none may be missing
_FITS = 1.25  # a sentence that holds what the question asks for, where that is not required


class Sentence(msgspec.Struct, frozen=True):
    """A piece of the context, verbatim, and the name of what it was taken from."""

    text: str
    source: str | None


def sentences(context: str, source: str | None = None) -> list[Sentence]:
    """The sentences of `context`, each under the last source that a line named."""
    found: list[Sentence] = []
    for line in context.splitlines():
        body, here = line.strip(), source
        if _FRAME.match(body):
            source = None
            continue
        if len(body) <= _LONGEST_MARK and (mark := _MARK.search(body)):
            source = mark["name"].strip() or source
            continue
        tail = max(0, len(body) - _LONGEST_MARK)
        if trailing := _TRAILING.search(body[tail:]):
            body, here = body[: tail + trailing.start()], trailing["name"].strip()
        found.extend(Sentence(text, here) for text in _split(_BULLET.sub("", body)))
    return found


def _split(text: str) -> list[str]:
    """The sentences of one line."""
    ends = [match.end() for match in _END.finditer(text)]
    starts = [0, *ends]
    parts = (text[start:end].strip() for start, end in zip(starts, [*ends, len(text)], strict=True))
    return [part for part in parts if part]


def best(question: str, candidates: Iterable[Sentence]) -> Sentence | None:
    """The sentence that answers the question: it shares the most telling words and holds the kind of thing that is
    asked for. None when no sentence does."""
    asked = asking_part(question)
    wanted, kind, names = content_words(without_asking(asked)), kind_of(asked), _names(asked)
    pool = _readings(candidates)
    if not wanted or not pool:
        return None
    frequency = Counter(word for reading in pool for word in reading.own & wanted)
    weight = {word: math.log(1 + (len(pool) + 1) / (1 + frequency[word])) for word in wanted}
    whole = sum(weight.values())
    if asked.endswith("?") and any(word.isascii() and not frequency[word] for word in wanted - asked_for(asked)):
        return None  # the text knows nothing of it
    top: tuple[float, Sentence] | None = None
    for sentence, own, carried in pool:
        shared = sum(weight[word] for word in own & wanted)
        shared += _CARRIED * sum(weight[word] for word in (carried - own) & wanted)
        if shared / whole < _LEAST_COVERAGE or asked in sentence.text:  # restating a question answers nothing
            continue
        if not (wanted if len(wanted) <= _FEW else names) <= own | carried:
            continue
        fits = kind is None or holds(kind, sentence.text, asked)
        if not fits and needed(kind):
            continue
        score = shared / (1 + 0.02 * len(own))  # between equals the shorter one says it better
        if kind is not None and fits:
            score *= _FITS
        if sentence.text.endswith("?"):
            score *= 0.5  # a question seldom answers one
        if top is None or score > top[0]:
            top = (score, sentence)
    return top[1] if top else None


def asking_part(question: str) -> str:
    """The sentence that asks, where a text also says what to do; else the whole text."""
    asking = [part for part in _split(question) if part.endswith(("?", "？"))]
    return asking[-1] if asking else question


def asked_for(question: str) -> frozenset[str]:
    """The words that an answer need not repeat: what a thing is called in general, and verbs that say little."""
    return content_words(" ".join(_GENERAL.findall(question))) | _LIGHT


def _names(question: str) -> frozenset[str]:
    """The words that the question writes as names: what is said of another one answers nothing."""
    return content_words(" ".join(_NAME.findall(question)))


class _Reading(NamedTuple):
    """A sentence, its own words, and the subject of what it goes on about."""

    sentence: Sentence
    own: frozenset[str]
    carried: frozenset[str]


def _readings(candidates: Iterable[Sentence]) -> list[_Reading]:
    found: list[_Reading] = []
    for sentence in candidates:
        before = found[-1] if found and found[-1].sentence.source == sentence.source else None
        goes_on = before is not None and _GOES_ON.match(sentence.text)
        carried = _subject(before.sentence.text) | before.carried if before and goes_on else frozenset[str]()
        found.append(_Reading(sentence, content_words(sentence.text), carried))
    return found


def _subject(text: str) -> frozenset[str]:
    """What a sentence seems to be about: its first words that carry meaning, a name whole and alone."""
    found: list[str] = []
    for word in _PLAIN.findall(text):
        if not content_words(word):
            if found:
                break
            continue
        if found and found[0][0].isupper() and not word[0].isupper():
            break
        found.append(word)
        if len(found) == _LONGEST_SUBJECT:
            break
    return content_words(" ".join(found))

"""Finds the sentence that answers a question, and its source."""

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
# The end of a sentence. A run of marks is matched once, from its beginning, so that long runs take linear time.
_END = re.compile(
    r"""(?x) (?<![.!?。！？]) (?: [.!?]*+ [。！？] [.!?。！？]*+ ["')\]”]*+ | [.!?]++ ["')\]”]*+ (?=\s|$) )"""
)
_LONGEST_MARK = 400
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
# A sentence that opens with one of these continues the subject of the sentence before it.
_GOES_ON = re.compile(
    r"""^["'“(]*(?:and |but |then |so )?(?:she|he|it|they|her|his|its|their|this|these|those)\b""", re.IGNORECASE
)
_NAME = re.compile(r"(?<=[\w,;:)] )[A-Z]\w+")
_GENERAL = re.compile(r"\b(?:what|which|whose)\s+(\w+)", re.IGNORECASE)
_LIGHT = content_words("have take make get need do happen mean work find long last say give go come there called name")
_PLAIN = re.compile(r"\w+")
_LONGEST_SUBJECT = 3
_CARRIED = 0.8  # the weight of a word from the sentence before
_LEAST_COVERAGE = 0.55
_FEW = 2  # up to this number of words, none may be missing
_FITS = 1.25  # the factor for a sentence with the kind that the question asks for


class Sentence(msgspec.Struct, frozen=True):
    """A piece of the context, verbatim, and the name of its source."""

    text: str
    source: str | None


def sentences(context: str, source: str | None = None) -> list[Sentence]:
    """Return the sentences of `context`, each with the last source that a line before it named."""
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
    """Return the sentences of one line."""
    ends = [match.end() for match in _END.finditer(text)]
    starts = [0, *ends]
    parts = (text[start:end].strip() for start, end in zip(starts, [*ends, len(text)], strict=True))
    return [part for part in parts if part]


def best(question: str, candidates: Iterable[Sentence]) -> Sentence | None:
    """Return the sentence that answers the question: it shares the most important words and has the kind of answer that
    is asked for. None when no sentence does."""
    asked = asking_part(question)
    wanted, kind, names = content_words(without_asking(asked)), kind_of(asked), _names(asked)
    pool = _readings(candidates)
    if not wanted or not pool:
        return None
    frequency = Counter(word for reading in pool for word in reading.own & wanted)
    weight = {word: math.log(1 + (len(pool) + 1) / (1 + frequency[word])) for word in wanted}
    whole = sum(weight.values())
    if asked.endswith("?") and any(word.isascii() and not frequency[word] for word in wanted - asked_for(asked)):
        return None  # the text has nothing about it
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
        score = shared / (1 + 0.02 * len(own))  # of equals, prefer the shorter one
        if kind is not None and fits:
            score *= _FITS
        if sentence.text.endswith("?"):
            score *= 0.5  # a question seldom answers a question
        if top is None or score > top[0]:
            top = (score, sentence)
    return top[1] if top else None


def asking_part(question: str) -> str:
    """Return the last sentence that asks, else the whole text."""
    asking = [part for part in _split(question) if part.endswith(("?", "？"))]
    return asking[-1] if asking else question


def asked_for(question: str) -> frozenset[str]:
    """Return the words that an answer need not repeat: general nouns after `which`, and verbs that say little."""
    return content_words(" ".join(_GENERAL.findall(question))) | _LIGHT


def _names(question: str) -> frozenset[str]:
    """Return the words that the question writes as names: a sentence about another name is no answer."""
    return content_words(" ".join(_NAME.findall(question)))


class _Reading(NamedTuple):
    """A sentence, its own words, and the subject that it continues from the sentences before it."""

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
    """Return a sentence's likely subject: its first words with meaning; a name is taken whole and alone."""
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

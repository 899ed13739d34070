"""Finding the sentence that answers a question, and where it stands."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from holdfast.models.local.words import content_words

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
_LEAST_COVERAGE = 0.34


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
    """The sentence that shares the most telling words with the question, or None when none shares enough."""
    wanted = content_words(question)
    pool = [(sentence, content_words(sentence.text)) for sentence in candidates]
    frequency = Counter(word for _, words in pool for word in words & wanted)
    if not wanted or not pool:
        return None
    weight = {word: math.log(1 + (len(pool) + 1) / (1 + frequency[word])) for word in wanted}
    whole = sum(weight.values())
    top: tuple[float, Sentence] | None = None
    for sentence, words in pool:
        shared = sum(weight[word] for word in words & wanted)
        if shared / whole < _LEAST_COVERAGE or question in sentence.text:  # restating a question answers nothing
            continue
        score = shared / (1 + 0.02 * len(words))  # between equals the shorter one says it better
        if sentence.text.endswith("?"):
            score *= 0.5  # a question seldom answers one
        if top is None or score > top[0]:
            top = (score, sentence)
    return top[1] if top else None

"""A line and what stands around it: facts found by the words of their neighbours, their speaker and their date.

Many lines say little by themselves: the subject of an answer stands in the question before it, that of a pronoun in the
sentence before it. For each word of a query a fact therefore counts the best of its own gain and of its neighbours'
gains, each with a weight. What the text is decides the weights: in talk a line leans on what was said before it, in
prose a little, and rows of a table and settings on nothing but their head. Code and items lend nothing, and lean on
the sentence beside them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter

from forestay.models import words
from forestay.relay.facts import Fact, speaker
from forestay.relay.index import Index

Found = list[tuple[int, float]]

SPEAKER = 1.3  # how much more a line counts when the person whom the query names speaks
_LENDERS = 100  # as many of the best facts lend their words

# What a fact lends to the facts around it, by their distance from it: those behind it, then those before it.
_NUMBER = itemgetter(0)
_Lends = tuple[tuple[int, float], ...]
_TALK: _Lends = ((1, 0.5), (2, 0.3), (-1, 0.3), (-2, 0.1))
_ASKED: _Lends = ((1, 0.7), *_TALK[1:])  # what is asked is what the next line speaks of
_PROSE: _Lends = ((1, 0.3), (-1, 0.1))
_NOTHING: _Lends = ()
_REACH = 2
_ALONE = ("pair", "row")

_MONTHS = (
    "january february march april may june july august september october november december "
    "jan feb mar apr may jun jul aug sep oct nov dec"
).split()
_NAMED = "|".join(sorted({month.title() for month in _MONTHS}, key=len, reverse=True))
_DATE = re.compile(
    rf"\b(?P<year>\d{{4}})-(?P<number>\d\d)-(?P<iso>\d\d)\b"
    rf"|\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?)?(?P<month>{_NAMED})\b\.?(?:\s+(?P<after>\d{{1,2}})\b(?!\d))?"
)


def lends(fact: Fact) -> _Lends:
    """To which neighbours `fact` lends its words, and how much of them; what no longer stands lends nothing."""
    if not fact.stands:
        return _NOTHING
    if fact.talk:
        return _ASKED if fact.text.endswith("?") else _TALK
    return _PROSE if fact.kind == "sentence" else _NOTHING


def in_one_text(one: Fact, other: Fact) -> bool:
    """Whether two facts stand under one heading of one text; a later text of a source begins at its start again."""
    same = (one.origin is other.origin or one.source == other.source) and one.context == other.context
    return same and (one.number < other.number) == (one.start < other.start)


def leans(fact: Fact, other: Fact) -> bool:
    """Whether `fact` is read together with `other` beside it: a setting or a row among sentences stands for itself."""
    return (fact.talk or fact.kind not in _ALONE) and in_one_text(fact, other)


def in_context(facts: Sequence[Fact], index: Index, query: Mapping[str, float], found: Found, limit: int) -> Found:
    """What the words of `query` find when the best of `found` lend their words to those around them, best first."""
    spread = {number: around for number, _ in found[:_LENDERS] if (around := _around(facts, index, number))}
    if not spread:
        return found
    touched = dict.fromkeys(spread, 0.0)
    for around in spread.values():
        touched.update(dict.fromkeys(map(_NUMBER, around), 0.0))
    scores = {**dict(found), **touched}
    for gains in index.gains(query, touched).values():
        for number, gain in _shared(gains, spread).items():
            scores[number] += gain
    return in_order(scores.items())[:limit]


def in_order(scores: Iterable[tuple[int, float]]) -> Found:
    """The best first, the earlier of equals."""
    return [(number, -score) for score, number in sorted([(-score, number) for number, score in scores])]


def by_speaker(facts: Sequence[Fact], found: Found, asked: Collection[str]) -> Found:
    """`found` with the lines of the people whom the query names moved up."""
    if not any(facts[number].talk for number, _ in found):
        return found
    named = functools.cache(lambda name: all(word in asked for word in words(name)))
    return in_order(
        (number, score * SPEAKER if facts[number].talk and named(speaker(facts[number].text)) else score)
        for number, score in found
    )


def is_named(fact: Fact, asked: Collection[str]) -> bool:
    """Whether the words of a query name the person who says this line."""
    return fact.talk and all(word in asked for word in words(speaker(fact.text)))


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


def lends_to(facts: Sequence[Fact], index: Index, number: int) -> dict[int, float]:
    """The facts around `number` that lend their words to it, each with its weight."""
    nearby = range(max(0, number - _REACH), min(len(facts), number + _REACH + 1))
    return {
        other: weight
        for other in nearby
        if other != number and other in index
        for target, weight in _around(facts, index, other)
        if target == number
    }


def _around(facts: Sequence[Fact], index: Index, number: int) -> list[tuple[int, float]]:
    """To which facts `number` lends its words, and how much of them; as `leans` says, without its calls."""
    fact, end = facts[number], len(facts)
    origin, context, start = fact.origin, fact.context, fact.start
    found = []
    for step, weight in lends(fact):
        place = number + step
        if not 0 <= place < end:
            continue
        other = facts[place]
        if (
            (other.origin is origin or other.origin.source == origin.source)
            and other.context == context
            and (step < 0) == (other.start < start)
            and (other.talk or other.kind not in _ALONE)
            and other.stands
            and place in index
        ):
            found.append((place, weight))
    return found


def _shared(gains: Mapping[int, float], spread: Mapping[int, Sequence[tuple[int, float]]]) -> dict[int, float]:
    """For one word: what each fact gains by it, of its own or from the best of its neighbours."""
    best = dict(gains)
    get = best.get
    for number in gains.keys() & spread.keys():
        gain = gains[number]
        for target, weight in spread[number]:
            if get(target, 0.0) < (lent := gain * weight):
                best[target] = lent
    return best

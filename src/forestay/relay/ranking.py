"""Which facts a task needs: words first, then recency, novelty and neighbours (CRP §1.6).

score = relevance x recency x novelty x trust + graph, where relevance is the cube of BM25 divided by the best BM25 (the
contract's cosine, without a model), recency is exp(-0.1 age) but never below a floor, novelty is 1.5, 1 or 0.5 by how
often the fact was shown, trust follows confidence, and graph is what neighbours joined by a discourse relation lend by
their likeness, at most 0.5. The cube lets novelty outweigh a third of what words say, and recency a fifth, not more: an
answer that was shown often, or long ago, is still the answer.

A task that asks several things has aspects: relevance is then 0.7 of the best aspect's, divided by the place among
what that aspect finds so that one question's near misses leave room for the next one, and 0.3 of the whole's. Where
vectors are kept, likeness in meaning is added (`relay/meaning.py`); without them, what the words of a question and of a
fact are about together (`models/word_vectors.py`).

Many lines say little by themselves: the subject of an answer stands in the question before it, that of a pronoun in the
sentence before it. For each word of a query a fact therefore counts the best of its own gain and of its neighbours'
gains, each with a weight. What the text is decides the weights: in talk a line leans on what was said before it, in
prose a little, and rows of a table and settings on nothing but their head. Code and items lend nothing, and lean on
the sentence beside them. A line counts more when its speaker is named in the query.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from forestay.models import STOP, alike, answering, further, gist, related, words
from forestay.relay.extract import dates, entities
from forestay.relay.facts import QUARANTINE_FACTOR, Fact, speaker
from forestay.relay.index import Index
from forestay.relay.warm import INGEST, Warm

if TYPE_CHECKING:
    from forestay.relay.meaning import Near

CANDIDATES = 200
_QUERY_TERMS = 48
_OTHER_TERMS = 48
_RECENCY_FLOOR = 0.5
_GRAPH_SHARE = 0.3
_GRAPH_MOST = 0.5
_LENDERS = 100  # as many of the best facts lend their words, or what they are worth
_ASPECT_SHARE = 0.7
_ASPECTS = 8
_SHARP = 3  # the power of relevance
_WEAK = 0.3
_SYNONYM = 0.8  # what a word counts that stands for one of the query
_FURTHER = 0.4  # what a synonym's synonym counts, for a word that no fact has
_RELATED = 0.7  # what a word counts that is nearest in meaning to one of the query
_ANSWER = 0.4  # what a word counts that answers are likely to hold
_TOLD = 0.8  # the part of a question that a fact has to say for its words to say all
_GIST_OF = 100  # so many of the facts that words find are looked at as a whole
_GIST_PLACES = 10  # the place at which being about the same counts half
_BETWEEN_ASPECTS = re.compile(r"(?<=[.!?;。！？；])\s+|\n+")


class Ranked(msgspec.Struct, frozen=True):
    """A fact's place in the ranking and what put it there."""

    number: int
    score: float
    relevance: float
    recency: float
    novelty: float
    graph: float


class Terms(msgspec.Struct, frozen=True):
    """Which terms of the score count; all of them, unless an evaluation leaves one out."""

    recency: bool = True
    novelty: bool = True
    graph: bool = True
    aspects: bool = True
    neighbours: bool = True
    speaker: bool = True
    dates: bool = True
    synonyms: bool = True
    related: bool = True
    gist: bool = True
    meaning: bool = True


ALL_TERMS = Terms()


def query_terms(warm: Warm, text: str) -> dict[str, float]:
    """The words of `text` that can find something, the rarest first when there are many; typed words count double."""
    weights: dict[str, float] = {}
    every = words(text[-20_000:] if len(text) > 40_000 else text)
    for word in [word for word in every if word not in STOP] or every:
        weights[word] = 1.0
    for kind, value in entities(text[:4000]):
        if kind != "name" and not value.isalnum():
            weights[value.lower()] = 2.0
    if len(weights) > _QUERY_TERMS:
        frequency = warm.index.frequency
        known = sorted((word for word in weights if frequency(word)), key=lambda word: (frequency(word), word))
        weights = {word: weights[word] for word in known[:_QUERY_TERMS]}
    return weights


def others_of(warm: Warm, query: Mapping[str, float], text: str, terms: Terms = ALL_TERMS) -> dict[str, float]:
    """The words that can stand for those of `query`, are near to them, or that an answer to `text` is likely to hold.

    Each of them gains as much as a word that is as common as its family: a rare synonym says no more than the others.
    Of many the ones that gain most are kept.
    """
    found: dict[str, float] = {}

    def join(family: Iterable[tuple[str, float]], weight: float, *own: str) -> None:
        known = [(other, near) for other, near in family if other not in query and warm.index.frequency(other)]
        gain = weight * warm.index.idf(*own, *(other for other, _ in known))
        for other, near in known:
            found[other] = max(found.get(other, 0.0), gain * near / warm.index.idf(other))

    for word, weight in query.items():
        if terms.synonyms:
            join(_wholly(alike(word)), _SYNONYM * weight, word)
            if not warm.index.frequency(word):
                join(_wholly(further(word)), _FURTHER * weight, word)
        if terms.related:
            join(related(word), _RELATED * weight, word)
    for family in answering(text) if terms.synonyms else ():
        join(_wholly(family), _ANSWER)
    if len(found) <= _OTHER_TERMS:
        return found
    best = sorted(found, key=lambda word: (-found[word] * warm.index.idf(word), word))
    return {word: found[word] for word in best[:_OTHER_TERMS]}


def _wholly(family: Iterable[str]) -> Iterable[tuple[str, float]]:
    return ((word, 1.0) for word in family)


def aspects_of(text: str) -> list[str]:
    """The questions that `text` is made of, at most eight: its first and its last ones when it has more."""
    if len(text) > 4000:
        text = f"{text[:2000]}\n{text[-2000:]}"
    parts = [part for part in _BETWEEN_ASPECTS.split(text) if len(part) > 2]
    return parts if len(parts) <= _ASPECTS else parts[: _ASPECTS // 2] + parts[-_ASPECTS // 2 :]


def _hits(warm: Warm, text: str, limit: int, terms: Terms, every: bool = False) -> list[tuple[int, float]]:
    """What the words of `text` find: in the facts themselves, around them, from the people and days that it names."""
    query = query_terms(warm, text)
    others = others_of(warm, query, text, terms)
    if terms.dates:
        query.update(dict.fromkeys(dates(text), 1.0))
    found = _around(warm, query, limit, terms, every)
    if others and (more := _around(warm, others, limit, terms, every)):
        found = _together(warm, query, found, more, limit)
    return by_speaker(warm.facts, found, query) if terms.speaker else found


def _around(warm: Warm, query: Mapping[str, float], limit: int, terms: Terms, every: bool) -> Found:
    """What words find, in the facts themselves and around them."""
    found = warm.index.search(query, limit, every=every, without=warm.out)
    return in_context(warm.facts, warm.index, query, found, limit) if terms.neighbours and found else found


def _together(warm: Warm, query: Mapping[str, float], own: Found, others: Found, limit: int) -> Found:
    """A synonym counts as far as the question's own words are missing: who holds them all stands before all others."""
    idf = warm.index.idf
    whole = sum(weight * (idf(word) or idf(*alike(word))) for word, weight in query.items())
    most = max(whole, own[0][1] if own else 0.0) or 1.0
    scores = dict(own)
    for number, gain in others:
        held = scores.get(number, 0.0)
        scores[number] = held + min(gain, _SYNONYM * most) * (1 - held / most)
    return in_order(scores.items())[:limit]


def _in_words(
    warm: Warm, text: str, limit: int, terms: Terms, cold: bool, every: bool
) -> tuple[dict[int, float], float]:
    """Likeness in words, near 1 for the best: of the whole text, and of its best aspect where it has several.

    And from 0 to 1 how much of the text the best fact does not say.
    """
    found = _hits(warm, text, limit, terms, every)
    if cold:
        query = query_terms(warm, text)
        more = {**dict(warm.index.search(query, limit)), **dict(warm.cold.search(query, limit)), **dict(found)}
        found = sorted(more.items(), key=lambda item: (-item[1], item[0]))  # the old takes no place of the new
    if not found:
        return {}, 1.0
    best = found[0][1] or 1.0
    missing = _missing(warm, text, best)
    parts = aspects_of(text) if terms.aspects else []
    if len(parts) < 2:
        relevance = {number: (score / best) ** _SHARP for number, score in found}
        if terms.gist:
            _add_gist(warm, text, relevance, missing)
        return relevance, missing
    whole = {number: (1 - _ASPECT_SHARE) * (score / best) ** _SHARP for number, score in found}
    searched = [hits for part in parts if (hits := _hits(warm, part, limit // len(parts) + 1, terms))]
    strongest = max((hits[0][1] for hits in searched), default=1.0) or 1.0
    asked: dict[int, float] = {}
    for hits in searched:
        # Each aspect gets its best facts in; an aspect that hardly finds anything is not a question of its own.
        own = hits[0][1] or 1.0
        scale = _ASPECT_SHARE * min(1.0, own / (_WEAK * strongest))
        place, before = 0, 0.0
        for number, score in hits:
            place, before = (place if score == before else place + 1), score
            asked[number] = max(asked.get(number, 0.0), (score / own) ** _SHARP * scale / place)
    together = {number: whole.get(number, 0.0) + asked.get(number, 0.0) for number in (*whole, *asked)}
    order = sorted(together, key=lambda number: (-together[number], number))
    return {number: together[number] for number in order[:limit]}, missing


def _missing(warm: Warm, text: str, best: float) -> float:
    """From 0 to 1: how much of `text` the fact with the score `best` does not say."""
    unknown = warm.index.idf_of(0)
    whole = sum(weight * (warm.index.idf(word) or unknown) for word, weight in query_terms(warm, text).items()) or 1.0
    return max(0.0, 1 - best / (_TOLD * whole))


def _add_gist(warm: Warm, text: str, relevance: dict[int, float], missing: float) -> None:
    """What is about the same as `text` as a whole moves up, by its place, the more the less words say of it.

    Words say all there is to say when the best fact holds the question's own; they say little when it holds a few words
    that can stand for them. In talk a line is about what those around it say, so there it counts for nothing.
    """
    facts, first = warm.facts, list(relevance)[:_GIST_OF]
    if missing <= 0 or 2 * sum([facts[number].talk for number in first]) > len(first):
        return
    asked = gist(words(without_speakers(warm, text)))
    if asked is None:
        return
    headings: dict[str, list[str]] = {}
    likeness: list[tuple[float, int]] = []
    for number in first:
        fact = facts[number]
        if (heading := headings.get(fact.context)) is None:
            heading = headings[fact.context] = words(fact.context)
        if (like := asked.likeness(heading + words(fact.text))) > 0:
            likeness.append((-like, number))
    most = missing * asked.clear
    for place, (_, number) in enumerate(sorted(likeness)):
        own = relevance[number]
        relevance[number] = own + most * _GIST_PLACES / (_GIST_PLACES + place) * (1 - own / 2)


def rank(
    warm: Warm,
    text: str,
    *,
    limit: int = CANDIDATES,
    terms: Terms = ALL_TERMS,
    near: Near | None = None,
    cold: bool = False,
    every: bool = False,
) -> list[Ranked]:
    """The facts for `text`, best first; superseded facts count half, quarantined ones not at all.

    `near` says which facts are like it in meaning, where vectors are kept. With `cold`, facts that a compaction put
    away are looked for too; with `every`, facts that share nothing but a common word.
    """
    alike = near if near is not None and near.likeness else None
    if alike is not None and not alike.stands_in:
        terms = msgspec.structs.replace(terms, gist=False)  # an embedder says it better
    relevance, missing = _in_words(warm, text, limit, terms, cold, every)
    found = list(relevance.items())
    if alike is not None and terms.meaning:
        asked = len(aspects_of(text)) if terms.aspects else 1
        alike.add_to(warm, text, relevance, asked, cold, missing=missing)
    if not relevance:
        return []
    if not found or alike is None or not alike.stands_in:
        found = list(relevance.items())
    _verbatim(warm, text, found[:_LENDERS], relevance)
    lent = _lent(warm, found[:_LENDERS], relevance) if terms.graph else {}
    ranked = []
    ages = _Ages(warm.windows) if terms.recency else None
    facts = warm.facts
    for number in {**relevance, **lent}:
        fact = facts[number]
        if fact.quarantined:
            continue
        own = relevance.get(number, 0.0)
        recency = ages[fact.origin.window] if ages is not None else 1.0
        novelty = (1.5 if fact.shown == 0 else 1.0 if fact.shown < 3 else 0.5) if terms.novelty else 1.0
        graph = min(lent.get(number, 0.0), _GRAPH_MOST) if number in lent else 0.0
        score = own * recency * novelty * trust(warm, fact) + graph
        if fact.superseded_by >= 0:
            score *= 0.5
        ranked.append((-score, number, own, recency, novelty, graph))
    ranked.sort()
    return [
        Ranked(number, -score, own, recency, novelty, graph) for score, number, own, recency, novelty, graph in ranked
    ]


class _Ages(dict[int, float]):
    """The recency of a fact by the window it came from; there are few windows and many facts."""

    def __init__(self, now: int) -> None:
        self._now = now

    def __missing__(self, window: int) -> float:
        value = self[window] = max(_RECENCY_FLOOR, math.exp(-0.1 * max(0, self._now - window)))
        return value


def _verbatim(warm: Warm, text: str, found: list[tuple[int, float]], relevance: dict[int, float]) -> None:
    """A fact that holds the whole query, word for word, is what was asked for."""
    phrase = text.strip().lower()
    if len(phrase) < 3:
        return
    for number, _ in found:
        own = warm.facts[number].text
        if len(own) >= len(phrase) and phrase in own.lower():
            relevance[number] += 1.0


def trust(warm: Warm, fact: Fact) -> float:
    """Half of the score follows confidence; a fact ingested since the last window is in quarantine (CRP §1.10)."""
    confidence = fact.confidence
    if fact.origin.window == warm.windows and fact.origin.source.startswith(INGEST):
        confidence *= QUARANTINE_FACTOR
    return 0.5 + 0.5 * confidence


def _lent(warm: Warm, found: list[tuple[int, float]], relevance: dict[int, float]) -> dict[int, float]:
    """What the best facts lend to the neighbours that a discourse relation joins them with."""
    lent: dict[int, float] = {}
    facts = warm.facts
    for number, _ in found:
        share = min(1.0, relevance[number]) * facts[number].confidence * _GRAPH_SHARE
        for own in (number, *warm.copies.get(number, ())):  # a copy has neighbours of its own
            for neighbour in neighbours(facts, own):
                lent[neighbour] = lent.get(neighbour, 0.0) + share
    return lent


def neighbours(facts: list[Fact], number: int) -> list[int]:
    """The facts joined with `number` by an edge: a relation always points to the fact before it in the same text."""
    result = []
    fact = facts[number]
    if fact.relation and number and in_one_text(facts[number - 1], fact):
        result.append(number - 1)
    if number + 1 < len(facts):
        after = facts[number + 1]
        if after.relation and in_one_text(fact, after):
            result.append(number + 1)
    return result


def without_speakers(warm: Warm, text: str) -> str:
    """`text` without the names of those who talk: the person that a question is about is not its meaning."""
    if not warm.speakers:
        return text
    kept = [word for word in text.split() if warm.speakers.isdisjoint(words(word))]
    return " ".join(kept) or text


# What stands around a line

Found = list[tuple[int, float]]

SPEAKER = 1.3  # how much more a line counts when its speaker is named in the query

# What a fact lends to the facts around it, by their distance from it: those behind it, then those before it.
_NUMBER = itemgetter(0)
_Lends = tuple[tuple[int, float], ...]
_TALK: _Lends = ((1, 0.5), (2, 0.3), (-1, 0.3), (-2, 0.1))
_ASKED: _Lends = ((1, 0.7), *_TALK[1:])  # what is asked is what the next line speaks of
_PROSE: _Lends = ((1, 0.3), (-1, 0.1))
_NOTHING: _Lends = ()
_REACH = 2
_ALONE = ("pair", "row")


def lends(fact: Fact) -> _Lends:
    """To which neighbours `fact` lends its words, and how much of them; what no longer stands lends nothing."""
    if fact.superseded_by >= 0 or fact.quarantined:
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
    """What the words of `query` find when the best of `found` lend their words to the facts around them, best first."""
    spread = {number: around for number, _ in found[:_LENDERS] if (around := _reached(facts, index, number))}
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
    """`found` with the lines of speakers that the query names moved up."""
    if not any(facts[number].talk for number, _ in found):
        return found
    named = functools.cache(lambda name: all(word in asked for word in words(name)))
    return in_order(
        (number, score * SPEAKER if facts[number].talk and named(speaker(facts[number].text)) else score)
        for number, score in found
    )


def is_named(fact: Fact, asked: Collection[str]) -> bool:
    """Whether a query names the speaker of this line."""
    return fact.talk and all(word in asked for word in words(speaker(fact.text)))


def lends_to(facts: Sequence[Fact], index: Index, number: int) -> dict[int, float]:
    """The facts around `number` that lend their words to it, each with its weight."""
    nearby = range(max(0, number - _REACH), min(len(facts), number + _REACH + 1))
    return {
        other: weight
        for other in nearby
        if other != number and other in index
        for target, weight in _reached(facts, index, other)
        if target == number
    }


def _reached(facts: Sequence[Fact], index: Index, number: int) -> list[tuple[int, float]]:
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
            and other.superseded_by < 0
            and not other.quarantined
            and place in index
        ):
            found.append((place, weight))
    return found


def _shared(gains: Mapping[int, float], spread: Mapping[int, Sequence[tuple[int, float]]]) -> dict[int, float]:
    """For one word: what each fact gains by it, by itself or from the best of its neighbours."""
    best = dict(gains)
    get = best.get
    for number in gains.keys() & spread.keys():
        gain = gains[number]
        for target, weight in spread[number]:
            if get(target, 0.0) < (lent := gain * weight):
                best[target] = lent
    return best

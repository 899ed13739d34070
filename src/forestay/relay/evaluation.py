"""Measures how well a session finds answers: recall on a person's own questions, with each signal switched off in turn.

A question is labelled with words from the facts that answer it, or with the facts themselves. Recall at k is the share
of questions with such a fact among the first k.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from forestay.kernel import Problem
from forestay.relay.facts import fact_id
from forestay.relay.meaning import NOWHERE, Near
from forestay.relay.ranking import ALL_TERMS, Terms, rank
from forestay.relay.warm import INGEST, Warm

CUTS = (5, 10, 25, 50)
_MISSES = 20
_QUESTIONS = 100_000
_NAMES = Terms.__struct_fields__


class Labelled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question and what answers it: text of a fact, from `source` if that is given, or ids of facts."""

    question: str
    answer: str = ""
    source: str = ""
    facts: tuple[str, ...] = ()


class Setting(msgspec.Struct, frozen=True):
    """Recall at 5, 10, 25 and 50 for one way of ranking."""

    name: str
    recall: dict[str, float]


class Miss(msgspec.Struct, frozen=True):
    """A question whose answer is not among the first ten: the answer's place (from 1), and the text that came first."""

    question: str
    answer: str
    place: int | None
    first: str


class Evaluation(msgspec.Struct, frozen=True):
    """The result of `evaluate`. `unlabelled` lists the questions without an answer in any fact: they do not count."""

    questions: int
    facts: int
    settings: list[Setting]
    misses: list[Miss]
    unlabelled: list[str]


def questions_of(text: str) -> list[Labelled]:
    """Read the questions of a JSON Lines text; a Problem names a line that is not a question."""
    found: list[Labelled] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            item = msgspec.json.decode(line, type=Labelled)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise _not_a_question(number, str(error)) from error
        if not item.question.strip() or bool(item.answer.strip()) == bool(item.facts):
            raise _not_a_question(number, "it needs a question, and an answer or facts")
        found.append(item)
    if not found or len(found) > _QUESTIONS:
        raise Problem(
            "invalid_request", f"Give 1 to {_QUESTIONS:,} questions.", at="QUESTIONS", observed=len(found), fix=_EXAMPLE
        )
    return found


async def evaluate(warm: Warm, asked: Sequence[Labelled], near: Mapping[str, Near]) -> Evaluation:
    """Measure recall with all signals, without each one, and with words alone; `near` is the meaning by question.

    The index belongs to the event loop, so this runs on it and yields to other tasks after each question.
    """
    texts = [_plain(fact.text) for fact in warm.facts]
    labelled = [(item, answers) for item in asked if (answers := _answers(warm, texts, item))]
    known = {id(item) for item, _ in labelled}
    every = await _places(warm, labelled, near, ALL_TERMS)
    off = {f"without {name}": Terms(**{name: False}) for name in _NAMES if name != "meaning" or near}
    off["words alone"] = Terms(**dict.fromkeys(_NAMES, False))
    settings = [_setting("all signals", every)]
    settings += [_setting(name, await _places(warm, labelled, near, terms)) for name, terms in off.items()]
    missed = [
        _miss(warm, item, answers, place, near)
        for (item, answers), place in zip(labelled, every, strict=True)
        if place is None or place > CUTS[1]
    ]
    unlabelled = [item.question for item in asked if id(item) not in known]
    return Evaluation(len(labelled), len(warm.facts), settings, missed[:_MISSES], unlabelled)


async def _places(
    warm: Warm,
    labelled: Sequence[tuple[Labelled, frozenset[int]]],
    near: Mapping[str, Near],
    terms: Terms,
) -> list[int | None]:
    """Return the place of each question's first answer, counted from 1."""
    found: list[int | None] = []
    for item, answers in labelled:
        ranked = rank(warm, item.question, terms=terms, near=near.get(item.question, NOWHERE))
        await asyncio.sleep(0)
        found.append(next((place for place, one in enumerate(ranked, start=1) if one.number in answers), None))
    return found


def _setting(name: str, places: Sequence[int | None]) -> Setting:
    count = max(1, len(places))
    return Setting(
        name,
        {str(cut): round(sum(1 for place in places if place is not None and place <= cut) / count, 4) for cut in CUTS},
    )


def _answers(warm: Warm, texts: Sequence[str], item: Labelled) -> frozenset[int]:
    if item.facts:
        numbers = (fact_id(name) for name in item.facts)
        return frozenset(number for number in numbers if number is not None and number < len(texts))
    wanted, source = _plain(item.answer), INGEST + item.source
    return frozenset(
        number
        for number, text in enumerate(texts)
        if wanted in text and (not item.source or warm.facts[number].source == source)
    )


def _miss(warm: Warm, item: Labelled, answers: frozenset[int], place: int | None, near: Mapping[str, Near]) -> Miss:
    first = rank(warm, item.question, near=near.get(item.question, NOWHERE))[:1]
    return Miss(item.question, warm.facts[min(answers)].text, place, warm.facts[first[0].number].text if first else "")


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


_EXAMPLE = 'Write lines such as {"question": "How deep is it?", "answer": "9 m deep"}.'


def _not_a_question(line: int, reason: str) -> Problem:
    return Problem(
        "invalid_request", f"Line {line} is not a labelled question: {reason}.", at=f"QUESTIONS:{line}", fix=_EXAMPLE
    )

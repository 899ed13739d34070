"""Words that can stand for each other, so that a question finds an answer that was worded differently.

A line of `thesaurus.txt` is a family: each of its words finds the others. A line `kind > one two` holds examples: the
kind finds each of them and each of them finds the kind, but an example does not find another one. Families are written
by hand, for English as it is spoken in everyday life, in offices and around computers; a word may be in several of
them. They hold what a stemmer cannot know: other words for a thing, and forms that do not share a stem (`choose`,
`choice`).

`_ANSWERS` says what answers hold: a question that asks how long is answered in days or weeks.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from forestay.models.vocabulary import STOP, stem

_FURTHER = 25
_FAMILIES = Path(__file__).with_name("thesaurus.txt")

# What an answer holds when a question begins so.
_ANSWERS = """
how long: second minute hour day week month year until
how often: every each daily weekly monthly yearly once twice hour day week month year quarter
how soon: second minute hour day week immediately
how far: metre kilometre mile
how much: euro dollar pound cent percent gigabyte megabyte kilobyte litre gram kilogram
how expensive: euro dollar pound cent
how many: one two three four five six seven eight nine ten dozen hundred thousand
how old: year age
how heavy: gram kilogram ton
how tall: metre centimetre
how big: metre kilobyte megabyte gigabyte
how large: metre kilobyte megabyte gigabyte
how fast: second minute hour
what time: clock morning noon afternoon evening midnight
"""


@cache
def _table() -> dict[str, tuple[str, ...]]:
    """By stem: the stems that can stand for it."""
    found: dict[str, dict[str, None]] = {}

    def join(one: str, other: str) -> None:
        if one != other and other not in STOP and one not in STOP:
            found.setdefault(one, {})[other] = None

    for line in _FAMILIES.read_text("utf-8").splitlines():
        kinds, _, examples = line.partition(" > ")
        family, held = ([stem(word) for word in part.split()] for part in (kinds, examples))
        for one in family:
            for other in (*family, *held):
                join(one, other)
        for one in held:
            for other in family:
                join(one, other)
    return {word: tuple(others) for word, others in found.items()}


def alike(word: str) -> tuple[str, ...]:
    """The stems that can stand for the stem `word`."""
    return _table().get(word, ())


@cache
def further(word: str) -> tuple[str, ...]:
    """The stems that can stand for a synonym of the stem `word`; none when they are many, for then it means much."""
    first = alike(word)
    found = dict.fromkeys(other for one in first for other in alike(one) if other != word and other not in first)
    return tuple(found) if len(found) <= _FURTHER else ()


@cache
def _answers() -> tuple[tuple[str, tuple[str, ...]], ...]:
    lines = (line.partition(": ") for line in _ANSWERS.split("\n") if line)
    return tuple((asked, tuple(dict.fromkeys(map(stem, words.split())))) for asked, _, words in lines)


def answering(question: str) -> list[tuple[str, ...]]:
    """For each way of asking in `question`: the stems that an answer is likely to hold."""
    asked = question.lower()
    return [found for phrase, found in _answers() if phrase in asked]

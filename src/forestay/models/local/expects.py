"""Recognizes the kind of answer that a question wants (a time, an amount, a measure, a place, a person), and whether a
sentence has one.

It knows only English question words; any other question wants no particular kind.
"""

from __future__ import annotations

import re
from typing import Literal

from forestay.models.vocabulary import content_words, stem

Kind = Literal["time", "amount", "span", "place", "person"]

_ASKS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("span", re.compile(r"\bhow (?:long|often|soon|late|early)\b", re.IGNORECASE)),
    (
        "amount",
        re.compile(
            r"\bhow (?:many|much|high|deep|far|old|tall|wide|heavy|fast|large|big|small|hot|cold)\b|\bwhat number\b",
            re.IGNORECASE,
        ),
    ),
    (
        "time",
        re.compile(
            r"\bwhen\b|\b(?:what|which) (?:time|hour|day|date|weekday|week|month|year|evening|morning)\b",
            re.IGNORECASE,
        ),
    ),
    ("place", re.compile(r"\bwhere\b|\b(?:what|which) (?:place|town|city|country|room)\b", re.IGNORECASE)),
    ("person", re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE)),
)
_DAYS = "mondays?|tuesdays?|wednesdays?|thursdays?|fridays?|saturdays?|sundays?|weekdays?|weekends?"
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_PARTS = (
    "dawn|dusk|sunrise|sunset|mornings?|noon|midday|afternoons?|evenings?|nights?|midnight|"
    "tonight|today|tomorrow|yesterday"
)
_UNITS = "seconds?|minutes?|hours?|days?|weeks?|months?|years?|decades?|century|centuries|spring|summer|autumn|winter"
_ORDER = "daily|weekly|monthly|yearly|hourly|always|never|soon|now|once|ago|every"
_HOURS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_NO_HOUR = r"(?!\s*(?:%|percent|knots?|degrees?|met(?:re|er)s?|km|miles?|feet|euros?|dollars?|points?|places?|people))"
_BESIDE = "before|after|until|till|since|during|while"  # a time if a word follows that the question does not have
_TIME = re.compile(
    rf"\b(?:1[0-9]\d\d|20\d\d)\b|\b\d{{1,2}}[:.]\d\d\b|\b\d{{1,2}} ?(?:am|pm|o'clock)\b|\b\d{{4}}-\d\d-\d\d\b"
    rf"|\b(?:at|by|around|past|until|till)\s+(?:{_HOURS}|\d{{1,2}})\b{_NO_HOUR}|\b(?:{_HOURS}) o'clock\b"
    rf"|\b(?:{_DAYS}|{_MONTHS}|{_PARTS}|{_UNITS}|{_ORDER})\b|\b(?:{_BESIDE})\s+\w+",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    r"\d[\d.,:]*|\b(?:none|no|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|"
    r"hundreds?|thousands?|millions?|dozens?|half|twice|several|few|many|all|both)\b",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"\b(?:at|in|on|near|beside|behind|below|above|under|between|along|inside|outside|opposite|off|by|to|from|into|over)"
    r"(?:\s+[\w'’-]+){1,4}|\b(?:here|there|upstairs|downstairs|everywhere|nowhere|outside|inside|abroad)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"\b[A-Z][\w'’-]*")
_DATES = re.compile(rf"(?:{_DAYS}|{_MONTHS})", re.IGNORECASE)
_COUNTED = re.compile(r"\bhow many\s+(\w+)", re.IGNORECASE)
_LENGTH = r"(?:kilo|centi|milli)?met(?:re|er)s?|km|cm|mm|m|miles?|feet|foot|inch(?:es)?|yards?"
_SIZE = r"(?:kilo|mega|giga|tera)?bytes?|[kmgt]i?b|hectares?|acres?|lit(?:re|er)s?|square|volumes?|people|pages?|lines?"
_MEASURES = {
    "long": rf"{_LENGTH}|{_UNITS}|long",
    **dict.fromkeys(("high", "tall", "deep", "wide"), _LENGTH),
    "far": rf"{_LENGTH}|{_UNITS}",
    **dict.fromkeys(("large", "big", "small"), rf"{_LENGTH}|{_SIZE}"),
    "heavy": r"tons?|tonnes?|kilos?|kilograms?|kg|grams?|pounds?",
    "old": r"years?|months?|days?|old",
    **dict.fromkeys(("hot", "cold"), "degrees?|celsius|fahrenheit"),
}
"""The units of each measure: a figure with another unit is no answer."""
_MEASURED = re.compile(rf"\bhow ({'|'.join(_MEASURES)})\b", re.IGNORECASE)
_ADJECTIVE = re.compile(r"\d\s+\w+\s+(long|high|tall|deep|wide|old)\b", re.IGNORECASE)
_ALIKE = {"tall": "high"}
# A sentence without the kind does not answer a question of these kinds.
_NEEDED: frozenset[Kind] = frozenset({"time", "amount", "span", "place", "person"})


def kind_of(question: str) -> Kind | None:
    """Return the kind that the question asks for: its first question word decides."""
    found = [(match.start(), kind) for kind, asks in _ASKS if (match := asks.search(question))]
    return min(found)[1] if found else None


def without_asking(question: str) -> str:
    """Return the question without its question words: `how much`, `which day`."""
    for _, asks in _ASKS:
        question = asks.sub(" ", question)
    return question


def holds(kind: Kind, sentence: str, question: str) -> bool:
    """Whether the sentence has an answer of this kind that the question does not already contain."""
    if kind == "person":
        return _names_somebody(sentence, question)
    if kind == "place":
        said = content_words(question)
        found = [match.group() for match in _PLACE.finditer(sentence)]
        return any(not content_words(text) <= said for text in found)
    known = set(re.findall(r"\w+", question.lower()))
    patterns = {"time": (_TIME,), "amount": (_AMOUNT,), "span": (_TIME, _AMOUNT)}[kind]
    texts = [match.group().lower() for pattern in patterns for match in pattern.finditer(sentence)]
    return any(not set(re.findall(r"\w+", text)) <= known for text in texts) and _measures(sentence, question)


def _measures(sentence: str, question: str) -> bool:
    """Whether a figure counts what the question counts, and measures what it measures."""
    if counted := _COUNTED.search(question):
        wanted = stem(counted[1].lower())
        near = re.finditer(rf"(?:{_AMOUNT.pattern})((?:\s+[\w-]+){{1,3}})", sentence, re.IGNORECASE)
        return any(wanted == stem(word.lower()) for match in near for word in match[1].split())
    if measured := _MEASURED.search(question):
        asked = measured[1].lower()
        other = {_ALIKE.get(word, word) for word in _ADJECTIVE.findall(sentence.lower())}
        unit = re.search(rf"(?:\d|\b)(?:{_MEASURES[asked]})\b", sentence, re.IGNORECASE)
        return unit is not None and (not other or _ALIKE.get(asked, asked) in other)
    return True


def _names_somebody(sentence: str, question: str) -> bool:
    """Whether the sentence has a name, or names somebody before the words of the question: `Only members may vote`."""
    said = content_words(question)
    first = sentence.split(" ", 1)[0]
    names = (name for name in _NAME.findall(sentence) if name != first and not _DATES.fullmatch(name))
    if any(not content_words(name) <= said for name in names):
        return True
    for word in re.findall(r"[\w'’-]+", sentence):
        own = content_words(word)
        if own & said:
            return False
        if own:
            return True
    return False


def needed(kind: Kind | None) -> bool:
    return kind in _NEEDED

"""What kind of answer a question wants, and whether a sentence holds one: a time, an amount, a place.

Only English words of asking are known; any other question wants nothing in particular.
"""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["time", "amount", "span", "place"]

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
)
_DAYS = "mondays?|tuesdays?|wednesdays?|thursdays?|fridays?|saturdays?|sundays?|weekdays?|weekends?"
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_PARTS = (
    "dawn|dusk|sunrise|sunset|mornings?|noon|midday|afternoons?|evenings?|nights?|midnight|"
    "tonight|today|tomorrow|yesterday"
)
_UNITS = "seconds?|minutes?|hours?|days?|weeks?|months?|years?|decades?|century|centuries|spring|summer|autumn|winter"
_ORDER = "daily|weekly|monthly|yearly|hourly|always|never|soon|now|once|ago|every"
_BESIDE = "before|after|until|till|since|during|while"  # a time when something follows that the question does not say
_TIME = re.compile(
    rf"\b(?:1[0-9]\d\d|20\d\d)\b|\b\d{{1,2}}[:.]\d\d\b|\b\d{{1,2}} ?(?:am|pm|o'clock)\b|\b\d{{4}}-\d\d-\d\d\b"
    rf"|\b(?:{_DAYS}|{_MONTHS}|{_PARTS}|{_UNITS}|{_ORDER})\b|\b(?:{_BESIDE})\s+\w+",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    r"\d[\d.,:]*|\b(?:none|no|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|"
    r"hundreds?|thousands?|millions?|dozens?|half|twice|several|few|many|all|both)\b",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"\b(?:at|in|on|near|beside|behind|below|above|under|between|along|inside|outside|opposite|off|by|to|from)\s+\w",
    re.IGNORECASE,
)
# A question of this kind is not answered by a sentence that holds nothing of the kind.
_NEEDED: frozenset[Kind] = frozenset({"time", "amount", "span"})


def kind_of(question: str) -> Kind | None:
    """What the question asks for: the first word of asking in it decides."""
    found = [(match.start(), kind) for kind, asks in _ASKS if (match := asks.search(question))]
    return min(found)[1] if found else None


def without_asking(question: str) -> str:
    """The question without the words of asking for a kind: `how much`, `which day`."""
    for _, asks in _ASKS:
        question = asks.sub(" ", question)
    return question


def holds(kind: Kind, sentence: str, question: str) -> bool:
    """Whether the sentence holds an answer of this kind that the question does not say itself."""
    known = set(re.findall(r"\w+", question.lower()))
    patterns = {"time": (_TIME,), "amount": (_AMOUNT,), "span": (_TIME, _AMOUNT), "place": (_PLACE,)}[kind]
    found = [match.group().lower() for pattern in patterns for match in pattern.finditer(sentence)]
    return any(not set(re.findall(r"\w+", text)) <= known for text in found)


def needed(kind: Kind | None) -> bool:
    return kind in _NEEDED

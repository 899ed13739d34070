"""A long chat over eleven months, made from a seed and hand-written threads, and questions about it.

Six people talk in pairs, each pair on eight days. A day is one text under its date, with threads from
`benchmarks/talk_threads.py` between small talk. Each of the six people tells every thread with another detail, so each
question has at least five near misses, which differ only in a name, a neighbouring line or a date.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from itertools import combinations

from benchmarks.retrieval import Question, take
from benchmarks.talk_threads import CHATTER, MONTHLY, THREADS, Thread
from forestay.relay import Warm

PEOPLE = ("Mara", "Jonas", "Ingrid", "Tobias", "Leila", "Pavel")
_DAYS = 8
_BEGIN = date(2025, 1, 4)
_APART = 60  # days between a plan and its change
_MONTHS_ASKED = 4

_Line = tuple[str, str]  # the speaker's name and what is said
_Ask = tuple[str, str, _Line]  # kind, question, the line that answers


class _Day:
    """One day of one pair, with its threads in order."""

    def __init__(self, day: date, pair: tuple[str, str]) -> None:
        self.day, self.pair = day, pair
        self.threads: list[list[_Line]] = []

    def text(self, rng: random.Random) -> str:
        lines: list[_Line] = []
        for thread in self.threads:
            lines += [*_chatter(self.pair, rng), *thread]
        lines += _chatter(self.pair, rng)
        said = "\n".join(f"{name}: {text}" for name, text in lines)
        return f"# {self.day.day} {self.day:%B %Y}\n\n{said}\n"


def talk(seed: int = 41) -> tuple[Warm, list[Question]]:
    """Return the chat's facts, and the questions, each with the number of the line that answers it."""
    rng = random.Random(seed)
    days = [
        _Day(_BEGIN + timedelta(days=40 * place + rng.randint(0, 36)), pair)
        for pair in combinations(PEOPLE, 2)
        for place in range(_DAYS)
    ]
    days.sort(key=lambda item: (item.day, item.pair))
    asked: list[tuple[_Day, _Ask]] = []
    for thread in THREADS:
        asked += _told(thread, days, rng)
    for thread in MONTHLY:
        asked += _told_monthly(thread, days, rng)
    warm = Warm()
    places: dict[tuple[int, str], int] = {}
    for number, item in enumerate(days):
        first = len(warm.facts)
        take(warm, item.text(rng), f"ingest:chat of {' and '.join(item.pair)}, {item.day.isoformat()}", 0)
        places.update({(number, fact.text): fact.number for fact in warm.facts[first:]})
    warm.windows = 1
    numbers = {id(item): number for number, item in enumerate(days)}
    return warm, [
        (kind, question, frozenset({places[numbers[id(item)], f"{name}: {text}"]}))
        for item, (kind, question, (name, text)) in asked
    ]


def _told(thread: Thread, days: list[_Day], rng: random.Random) -> list[tuple[_Day, _Ask]]:
    """Add the thread once for each person, who tells it to another; return its questions."""
    values = _values(thread, len(PEOPLE), rng)
    made: list[tuple[_Day, _Ask]] = []
    for teller, slots in zip(PEOPLE, values, strict=True):
        other = rng.choice([name for name in PEOPLE if name != teller])
        mine = [item for item in days if set(item.pair) == {teller, other}]
        early = rng.choice(mine[: _DAYS // 2] if thread.later else mine)
        names = {"a": teller, "b": other}
        lines = [(names[who], text.format(**names, **slots)) for who, text in thread.lines]
        later = [(names[who], text.format(**names, **slots)) for who, text in thread.later]
        early.threads.append(lines)
        late = early
        if later:
            late = rng.choice([item for item in mine if item.day >= early.day + timedelta(days=_APART)])
            late.threads.append(later)
        for kind, line, question in thread.asks:
            text = question.format(**names, **slots)
            made.append((early, (kind, text, lines[line])) if line < len(lines) else (late, (kind, text, later[0])))
    return made


def _told_monthly(thread: Thread, days: list[_Day], rng: random.Random) -> list[tuple[_Day, _Ask]]:
    """Add the thread in several months of each person, each time with another detail; return its questions."""
    made: list[tuple[_Day, _Ask]] = []
    for teller in PEOPLE:
        mine = [item for item in days if teller in item.pair]
        months = rng.sample(sorted({item.day.month for item in mine}), _MONTHS_ASKED)
        for month, slots in zip(months, _values(thread, _MONTHS_ASKED, rng), strict=True):
            item = rng.choice([item for item in mine if item.day.month == month])
            names = {"a": teller, "b": next(name for name in item.pair if name != teller)}
            lines = [(names[who], text.format(**names, **slots)) for who, text in thread.lines]
            item.threads.append(lines)
            for kind, line, question in thread.asks:
                made.append((item, (kind, question.format(**names, **slots, month=f"{item.day:%B}"), lines[line])))
    return made


def _values(thread: Thread, count: int, rng: random.Random) -> list[dict[str, str]]:
    """Return `count` different values for the thread's slots."""
    columns = {
        slot: rng.sample(values, count) if len(values) >= count else list(values) * count
        for slot, values in thread.slots.items()
    }
    return [{slot: column[place] for slot, column in columns.items()} for place in range(count)]


def _chatter(pair: tuple[str, str], rng: random.Random) -> list[_Line]:
    one, two = rng.sample(pair, 2)
    said, answered = rng.choice(CHATTER)
    return [(one, said), (two, answered)]

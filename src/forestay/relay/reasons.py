"""Explains a fact's rank: words, neighbours, speaker, date, meaning, graph, recency, novelty, trust.

The ranking keeps only figures. The reasons are computed again for the few facts that a caller asks about, from the same
terms and weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from forestay.models import alike, further, related, words
from forestay.relay.extract import dates
from forestay.relay.facts import Fact, speaker
from forestay.relay.ranking import Ranked, is_named, lends_to, neighbours, others_of, query_terms, trust
from forestay.relay.warm import Warm

_WORD = re.compile(r"[^\W_]+")


class Lent(msgspec.Struct, frozen=True):
    """Words of the query in a nearby fact, and their share of this fact's score."""

    fact_id: str
    text: str
    words: dict[str, float]


class Reason(msgspec.Struct, frozen=True):
    """The parts of a fact's score; `words` and `lent` are shares of BM25, `meaning` is a similarity."""

    fact_id: str
    score: float
    relevance: float
    words: dict[str, float]
    lent: list[Lent]
    dates: list[str]
    speaker: str | None
    meaning: float | None
    graph: list[str]
    recency: float
    novelty: float
    trust: float
    superseded: bool

    def told(self) -> str:
        """Return the reasons as one line for people."""
        parts = [f"words {', '.join(self.words)}"] if self.words else []
        parts += [f"{item.fact_id} nearby has {', '.join(item.words)}" for item in self.lent]
        parts += [f"said by {self.speaker}"] if self.speaker else []
        parts += [f"date {', '.join(self.dates)}"] if self.dates else []
        parts += [f"meaning {self.meaning:.2f}"] if self.meaning is not None else []
        parts += [f"goes with {', '.join(self.graph)}"] if self.graph else []
        parts += ["superseded"] if self.superseded else []
        return "; ".join(parts)


def explain(warm: Warm, text: str, ranked: Iterable[Ranked], near: Mapping[int, float]) -> list[Reason]:
    """Return the reasons for each of `ranked`, which `rank` gave for `text` and `near`."""
    asked, own = dates(text), query_terms(warm, text)
    query = {**own, **others_of(warm, own, text), **dict.fromkeys(asked, 1.0)}
    spelled = {stem: word for word in _WORD.findall(text) for stem in words(word)} | {day: day[1:] for day in asked}
    stands_for = {
        other: f"{other} for {spelled.get(word, word)}"
        for word in own
        for other in (*(near for near, _ in related(word)), *further(word), *alike(word))
    }
    spelled = {**stands_for, **spelled}
    return [_reason(warm, query, spelled, item, near.get(item.number)) for item in ranked]


def _reason(
    warm: Warm, query: Mapping[str, float], spelled: Mapping[str, str], item: Ranked, likeness: float | None
) -> Reason:
    fact = warm.facts[item.number]
    index = warm.index if item.number in warm.index else warm.cold
    around = lends_to(warm.facts, index, item.number)
    own: dict[str, float] = {}
    days: list[str] = []
    lent: dict[int, dict[str, float]] = {}
    for term, gains in index.gains(query, dict.fromkeys({item.number, *around})).items():
        shares = {number: gain * around.get(number, 1.0) for number, gain in gains.items()}
        if not shares:
            continue
        giver = max(shares, key=lambda number: (shares[number], number == item.number))
        name, share = spelled.get(term, term), round(shares[giver], 3)
        if term.startswith("@"):
            days.append(name)
        elif giver == item.number:
            own[name] = share
        else:
            lent.setdefault(giver, {})[name] = share
    return Reason(
        fact_id=fact.id,
        score=round(item.score, 4),
        relevance=round(item.relevance, 4),
        words=own,
        lent=[Lent(warm.facts[number].id, _short(warm.facts[number]), found) for number, found in lent.items()],
        dates=days,
        speaker=speaker(fact.text) if is_named(fact, query) else None,
        meaning=None if likeness is None else round(likeness, 3),
        graph=[warm.facts[number].id for number in neighbours(warm.facts, item.number)] if item.graph else [],
        recency=round(item.recency, 3),
        novelty=item.novelty,
        trust=round(trust(warm, fact), 3),
        superseded=fact.superseded_by >= 0,
    )


def _short(fact: Fact) -> str:
    return fact.text if len(fact.text) <= 120 else fact.text[:119] + "…"

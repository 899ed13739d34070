"""Compaction: moves copies and superseded facts out of the hot part of the index; merges and loses nothing.

Invariants:

- K1  A fact is folded into another one only when both are equal: the same text, kind, heading, entity, relation and
      confidence, from the same kind of source. Facts that differ anywhere stay apart.
- K2  A fact that depends on the sentence before it (`It is closed.`) is never folded: equal words may mean two things.
- K3  Every fact keeps its id, its place in its source and its signature; the cold part finds it by its own words.
- K4  Compaction is one record: a process that dies before it writes the record has compacted nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from forestay.kernel import Draft
from forestay.relay.facts import Fact

LEAST_FACTS = 5000
_GROWTH = 1.25


class Compaction(msgspec.Struct, frozen=True):
    """The facts that leave the hot part: `folded` pairs a copy with the fact that it is folded into; `archived` are
    superseded."""

    folded: tuple[tuple[int, int], ...] = ()
    archived: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.folded or self.archived)

    def draft(self) -> Draft:
        return Draft("crp.facts.compacted", {"folded": [list(pair) for pair in self.folded], "archived": self.archived})


def due(facts: int, last: int) -> bool:
    """Whether a compaction is worthwhile: there are many facts, and a quarter more than at the last one."""
    return facts >= LEAST_FACTS and facts >= _GROWTH * last


def plan(facts: Sequence[Fact], cold: Iterable[int]) -> Compaction:
    """Choose the facts that leave; of equal facts the newest stays."""
    gone = set(cold)
    stands: dict[tuple[str, str, str, tuple[str, str, float]], int] = {}
    folded: list[tuple[int, int]] = []
    archived: list[int] = []
    for fact in reversed(facts):
        if fact.number in gone or fact.quarantined:
            continue
        if fact.superseded_by >= 0:
            archived.append(fact.number)
        elif not fact.relation:
            origin = fact.origin
            kind = (fact.kind, origin.source.partition(":")[0], origin.confidence)
            key = (fact.text, fact.entity, fact.context, kind)
            first = stands.setdefault(key, fact.number)
            if first != fact.number and facts[first].confidence == fact.confidence:
                folded.append((fact.number, first))
    return Compaction(tuple(reversed(folded)), tuple(reversed(archived)))

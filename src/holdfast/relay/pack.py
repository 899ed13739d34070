"""Packing facts into the envelope: the best ones that fit the token budget, in sections, each text once (CRP §1.6).

Invariants:

- P1  The tokens of the envelope, counted piece by piece, never exceed the budget; saturation is in [0, 1].
- P2  No text stands twice, no superseded or quarantined fact stands at all.
- P3  Ingested text stands inside a fence that says it is read-only, and cannot close that fence.
- P4  The same state, task and budget give the same envelope: a preview is what a dispatch sends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import msgspec

from holdfast.relay.facts import Fact
from holdfast.relay.rank import Ranked
from holdfast.relay.types import PackedFact
from holdfast.relay.warm import INGEST, WINDOW, Warm

SECTIONS = (
    "CRITICAL STATE",
    "DISCOVERIES",
    "SOURCE PASSAGES",
    "DECISIONS",
    "ERROR LOG",
    "TOOL_HISTORY",
    "KNOWLEDGE",
)
_AT_LEAST = 25  # a small session is shown whole: fewer facts than this are filled up with recent ones
_MISSES = 64
_LINE_TOKENS = 2
_DECISION = re.compile(r"\b(?:decided|decision|chose|chosen|agreed|will use)\b", re.IGNORECASE)
_ERROR = re.compile(r"\b(?:error|exception|failed|failure|traceback)\b", re.IGNORECASE)
_number = attrgetter("number")
_FENCE = re.compile(r"\[(?=/?SOURCE_PASSAGE)")


class Packed(msgspec.Struct, frozen=True):
    """An envelope: its text, what it costs, and which facts are in it."""

    text: str
    tokens: int
    chosen: tuple[Ranked, ...]

    @property
    def numbers(self) -> list[int]:
        return [item.number for item in self.chosen]


EMPTY = Packed("", 0, ())


def explain(warm: Warm, packed: Packed) -> tuple[PackedFact, ...]:
    """Why each fact is in the envelope, best first."""
    return tuple(
        PackedFact(
            fact.id,
            fact.text,
            section_of(fact),
            max(0, fact.tokens),
            round(item.score, 6),
            round(item.relevance, 6),
            round(item.recency, 6),
            item.novelty,
            round(item.graph, 6),
        )
        for item in packed.chosen
        for fact in (warm.facts[item.number],)
    )


def pack(
    warm: Warm,
    ranked: Sequence[Ranked],
    budget: int,
    count: Callable[[str], int],
    *,
    goal: str = "",
    exclude: frozenset[int] = frozenset(),
) -> Packed:
    """The envelope of at most `budget` tokens."""
    chooser = _Chooser(budget, count)
    if goal:
        chooser.used = count(goal) + count("[CRITICAL STATE]\n[GOAL] ") + _LINE_TOKENS
        if chooser.used > budget:
            chooser.used, goal = 0, ""
    misses = 0
    for item in _candidates(warm, ranked):
        fact = warm.facts[item.number]
        if fact.superseded_by >= 0 or fact.quarantined or item.number in exclude:
            continue
        if not chooser.take(item, fact):
            misses += 1
            if misses > _MISSES:
                break
    if not chooser.chosen and not goal:
        return EMPTY
    return Packed(_render(chooser.sections, goal), chooser.used, tuple(chooser.chosen))


def _candidates(warm: Warm, ranked: Sequence[Ranked]) -> Iterable[Ranked]:
    """The ranked facts, then recent ones until the envelope is not empty-handed (or full, when asked to saturate)."""
    yield from ranked
    if len(ranked) >= _AT_LEAST and not warm.config.saturate:
        return
    seen = {item.number for item in ranked}
    missing = len(warm.facts) if warm.config.saturate else _AT_LEAST - len(ranked)
    for number in range(len(warm.facts) - 1, -1, -1):
        if missing <= 0:
            return
        if number not in seen and not warm.facts[number].quarantined:
            missing -= 1
            yield Ranked(number, 0.0, 0.0, round(warm.recency(warm.facts[number]), 6), 1.0, 0.0)


class _Chooser:
    """Takes facts while they fit, counting what each brings with it: its section, its fence and its heading."""

    def __init__(self, budget: int, count: Callable[[str], int]) -> None:
        self._budget = budget
        self._count = count
        self._texts: set[str] = set()
        self._opened: set[tuple[str, ...]] = set()
        self.used = 0
        self.chosen: list[Ranked] = []
        self.sections: dict[str, list[Fact]] = {}

    def take(self, item: Ranked, fact: Fact) -> bool:
        """False when the fact does not fit; True when it was taken or stands there already."""
        text, tokens = fact.text, fact.tokens
        if text in self._texts:
            return True
        if tokens < 0:
            tokens = fact.tokens = self._count(text)
        used = self.used + tokens + _LINE_TOKENS
        if used > self._budget:
            return False
        section = section_of(fact)
        place = (section, fact.source, fact.context)
        if place not in self._opened:
            opens = [mark for mark in (place[:1], place[:2], place) if mark not in self._opened]
            used += sum(map(self._opening, opens))
            if used > self._budget:
                return False
            self._opened.update(opens)
            self.sections.setdefault(section, [])
        self._texts.add(text)
        self.used = used
        self.chosen.append(item)
        self.sections[section].append(fact)
        return True

    def _opening(self, mark: tuple[str, ...]) -> int:
        if len(mark) == 1:
            return self._count(f"[{mark[0]}]\n\n")
        if len(mark) == 2:
            return (
                self._count(_open_fence(mark[1], 0, 0.5) + "\n[/SOURCE_PASSAGE]\n") if mark[1].startswith(INGEST) else 0
            )
        return self._count(f"({mark[2]})\n") if mark[2] else 0


def section_of(fact: Fact) -> str:
    source = fact.source
    if source.startswith(INGEST):
        return "SOURCE PASSAGES"
    if source.startswith("tool:"):
        return "TOOL_HISTORY"
    if not source.startswith(WINDOW):
        return "KNOWLEDGE"
    if _DECISION.search(fact.text):
        return "DECISIONS"
    return "ERROR LOG" if _ERROR.search(fact.text) else "DISCOVERIES"


def _render(sections: dict[str, list[Fact]], goal: str) -> str:
    """Sections in the contract's order; inside one, the facts as they stand in their source."""
    parts = [f"[CRITICAL STATE]\n[GOAL] {goal}"] if goal else []
    parts += [f"[{section}]\n{_render_section(sections[section])}" for section in SECTIONS if section in sections]
    return "\n\n".join(parts)


def _render_section(facts: list[Fact]) -> str:
    by_source: dict[str, list[Fact]] = {}
    for fact in sorted(facts, key=_number):
        by_source.setdefault(fact.source, []).append(fact)
    lines: list[str] = []
    for source, group in by_source.items():
        fenced = source.startswith(INGEST)
        if fenced:
            lines.append(_open_fence(source, group[0].window, min(fact.confidence for fact in group)))
        context = ""
        for fact in group:
            if fact.context != context and fact.kind != "heading":
                context = fact.context
                if context:
                    lines.append(f"({_harmless(context)})")
            lines.append(_harmless(fact.text) if fenced else fact.text)
        if fenced:
            lines.append("[/SOURCE_PASSAGE]")
    return "\n".join(lines)


def _open_fence(source: str, window: int, confidence: float) -> str:
    label = source.removeprefix(INGEST).replace('"', "'")
    return f'[SOURCE_PASSAGE source="{_harmless(label)}" window={window} confidence={confidence:.2f} readonly=true]'


def _harmless(text: str) -> str:
    """P3: a passage that writes a fence of its own gets a bracket that is none."""
    return _FENCE.sub("(", text) if "SOURCE_PASSAGE" in text else text

"""The envelope of a window: the best facts that fit the token budget, in sections, each text once (CRP §1.6, §1.10).

Facts are ranked, packed, and each is checked before it is first shown.

Invariants:

- P1  The tokens of the envelope, counted over its whole text with the model's counter as it is now, never exceed the
      budget; saturation is in [0, 1].
- P2  No text stands twice, no superseded or quarantined fact stands at all.
- P3  Ingested text stands inside a fence that says it is read-only, and cannot close that fence.
- P4  Facts are taken in the order of rank down to the last one with any signal of relevance, as far as the budget goes
      (C17). `saturate: true` then goes on with the most recent of the rest, `saturate: false` stops; where nothing is
      said, an envelope of few facts is filled up to 25 with recent ones.
- P5  The same state, task and budget give the same envelope: a preview is what a dispatch sends.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from forestay.kernel import Draft
from forestay.relay.facts import Fact, verify
from forestay.relay.meaning import NOWHERE, Near, near_to
from forestay.relay.ranking import Ranked, rank, without_speakers
from forestay.relay.types import PackedFact
from forestay.relay.warm import INGEST, WINDOW, Warm

if TYPE_CHECKING:
    from forestay.relay.session import Session


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
_SMALL_REST = 16
_LONG_NUMBER = 99_999  # a window's number as it may come to stand in a fence
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


def explain(warm: Warm, packed: Packed, count: Callable[[str], int]) -> tuple[PackedFact, ...]:
    """Why each fact is in the envelope, best first."""
    return tuple(
        PackedFact(
            fact.id,
            fact.text,
            section_of(fact),
            count(fact.text),
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
    _fill(warm, chooser, [item for item in ranked if item.number not in exclude], goal)
    recent = itertools.islice(_recent(warm, ranked, exclude), 1 + budget // _LINE_TOKENS)
    _fill(warm, chooser, list(recent), goal, misses=_MISSES)
    if not chooser.chosen and not goal:
        return EMPTY
    return _fitted(chooser, goal, budget, count)


def _fill(warm: Warm, chooser: _Chooser, waiting: list[Ranked], goal: str, misses: int | None = None) -> None:
    """Take what fits, in order. Counted one by one facts cost more than in one text, so what did not fit is tried again
    with what the text really costs; without a signal of relevance (`misses`) not for long."""
    while waiting and chooser.rest > _SMALL_REST:
        before, left = len(chooser.chosen), []
        for place, item in enumerate(waiting):
            if not chooser.take(item, warm.facts[item.number]):
                left.append(item)
                if chooser.rest <= _LINE_TOKENS or (misses is not None and len(left) > misses):
                    left += waiting[place + 1 :]
                    break
        if len(chooser.chosen) == before:
            return
        waiting = left
        if waiting:
            chooser.measure(goal)


def _fitted(chooser: _Chooser, goal: str, budget: int, count: Callable[[str], int]) -> Packed:
    """P1: the pieces together may count more than one by one; then the last facts go."""
    while True:
        text = _render(chooser.sections, goal)
        tokens = count(text)
        if tokens <= budget:
            return Packed(text, tokens, tuple(chooser.chosen)) if text else EMPTY
        if not chooser.chosen:
            return EMPTY
        for _ in range(max(1, len(chooser.chosen) * (tokens - budget) // tokens)):
            chooser.drop()


def _recent(warm: Warm, ranked: Sequence[Ranked], exclude: frozenset[int]) -> Iterable[Ranked]:
    """The newest facts that the task has no word of, as many as `saturate` says (P4)."""
    saturate = warm.config.saturate
    wanted = len(warm.facts) if saturate else 0 if saturate is False else _AT_LEAST - len(ranked)
    seen = {item.number for item in ranked}
    for fact in reversed(warm.facts):
        if wanted <= 0:
            return
        if fact.superseded_by >= 0 or fact.quarantined:
            continue
        if fact.number not in seen and fact.number not in exclude:
            wanted -= 1
            yield Ranked(fact.number, 0.0, 0.0, round(warm.recency(fact), 6), 1.0, 0.0)


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
        """False when the fact does not fit; True when it was taken, stands there already, or may not stand (P2)."""
        text = fact.text
        if text in self._texts or fact.superseded_by >= 0 or fact.quarantined:
            return True
        if self.rest <= _LINE_TOKENS:
            return False
        used = self.used + self._count(text) + _LINE_TOKENS
        if used > self._budget:
            return False
        section = section_of(fact)
        place = (section, fact.origin.source, fact.context)
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

    @property
    def rest(self) -> int:
        return self._budget - self.used

    def measure(self, goal: str) -> None:
        """Count what was chosen as one text."""
        self.used = min(self.used, self._count(_render(self.sections, goal)))

    def drop(self) -> None:
        """Take the fact back that was chosen last."""
        number = self.chosen.pop().number
        for name, facts in list(self.sections.items()):
            self.sections[name] = [fact for fact in facts if fact.number != number]
            if not self.sections[name]:
                del self.sections[name]

    def _opening(self, mark: tuple[str, ...]) -> int:
        if len(mark) == 1:
            return self._count(f"[{mark[0]}]\n\n")
        if len(mark) == 2:
            fence = _open_fence(mark[1], _LONG_NUMBER, 0.5) + "\n[/SOURCE_PASSAGE]\n"
            return self._count(fence) if mark[1].startswith(INGEST) else 0
        return self._count(f"({mark[2]})\n") if mark[2] else 0


def section_of(fact: Fact) -> str:
    source = fact.origin.source
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
        by_source.setdefault(fact.origin.source, []).append(fact)
    lines: list[str] = []
    for source, group in by_source.items():
        fenced = source.startswith(INGEST)
        if fenced:
            lines.append(_open_fence(source, group[0].origin.window, min(fact.confidence for fact in group)))
        context = ""
        for fact in group:
            if fact.context != context and fact.kind != "heading":
                context = fact.context
                if context and context != fact.text:  # the pair that names a record says so itself
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


# How many facts are ranked for an envelope: as many as are likely to fit, then more while there is room.
_FEWEST = 50
_TOKENS_OF_A_FACT = 20
_ROOM_LEFT = 64


async def near(session: Session, text: str, *, cold: bool = False) -> Near:
    """The facts that are like `text` in meaning; none unless the relay was given an embedder.

    With `cold`, those that no longer stand too.
    """
    vectors, warm = session.vectors, session.warm
    if vectors is None:
        return NOWHERE
    await vectors.catch_up(warm.facts)
    out = frozenset() if cold else frozenset(warm.out)
    return await asyncio.to_thread(near_to, vectors, without_speakers(warm, text), out)


async def envelope(session: Session, query: str, room: int, goal: str = "") -> Packed:
    """The envelope for a window; a fact whose signature does not hold is quarantined and never shown."""
    alike = await near(session, query)
    while True:
        packed, broken = packed_for(session, query, room, goal, alike)
        if not broken:
            return packed
        await session.record(Draft("crp.security.integrity_violation", {"facts": sorted(broken)}))


def packed_for(
    session: Session, query: str, room: int, goal: str, alike: Near, exclude: frozenset[int] = frozenset()
) -> tuple[Packed, frozenset[int]]:
    """An envelope without `exclude`, and which of its facts are not what was signed."""
    warm = session.warm
    if not warm.facts and not goal:
        return EMPTY, frozenset()
    count = session.model.count_tokens
    likely = max(_FEWEST, room // _TOKENS_OF_A_FACT)
    packed = pack(warm, rank(warm, query, limit=likely, near=alike), room, count, goal=goal, exclude=exclude)
    # While there is room for more, every fact with any signal of relevance is looked at (C17).
    limit = max(_FEWEST, 2 * room * len(packed.chosen) // max(1, packed.tokens))
    while room - packed.tokens > _ROOM_LEFT and len(packed.chosen) < len(warm.index):
        every = rank(warm, query, limit=limit, near=alike, every=True)
        packed = pack(warm, every, room, count, goal=goal, exclude=exclude)
        if len(every) < limit:
            break
        limit *= 4
    unknown = [number for number in packed.numbers if number not in warm.verified]
    broken = frozenset(number for number in unknown if not verify(warm.facts, number, session.key))
    warm.verified.update(number for number in unknown if number not in broken)
    return packed, broken

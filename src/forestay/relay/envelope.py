"""Which facts go into a window: ranked, packed, and each checked before it is first shown (CRP §1.6, §1.10)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forestay.kernel import Draft
from forestay.relay.facts import verify
from forestay.relay.meaning import NOWHERE, Near, near_to, without_speakers
from forestay.relay.packing import EMPTY, Packed, pack
from forestay.relay.ranking import rank

if TYPE_CHECKING:
    from forestay.relay.session import Session

# How many facts are ranked for an envelope: as many as are likely to fit, then more while there is room.
_FEWEST = 50
_TOKENS_OF_A_FACT = 20
_SMALL_REST = 64


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
    while room - packed.tokens > _SMALL_REST and len(packed.chosen) < len(warm.index):
        every = rank(warm, query, limit=limit, near=alike, every=True)
        packed = pack(warm, every, room, count, goal=goal, exclude=exclude)
        if len(every) < limit:
            break
        limit *= 4
    unknown = [number for number in packed.numbers if number not in warm.verified]
    broken = frozenset(number for number in unknown if not verify(warm.facts, number, session.key))
    warm.verified.update(number for number in unknown if number not in broken)
    return packed, broken

"""Ingests a text: keeps its facts in batches, marks corrections, quarantines injected instructions (C6, C16).

Invariants:

- I1  No fact is lost or refused because of its content: every fact is kept, and at most marked.
- I2  A fact is superseded only by its own source's later text, or by a source that the caller named as superseding it.
      A text without a label is not a later version of any source. A fact is taken back only when the caller said that
      a text is all that its source says now (`whole`), or that the source is gone.
- I3  A fact is quarantined only for an instruction to the model; the answer counts it, and `restore` undoes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import blake3

from forestay.kernel import Draft, Problem
from forestay.relay import guard
from forestay.relay.facts import Fact, batches, copies, verify
from forestay.relay.types import ExtractionResult, Quarantined, Restored, SecurityFlags, Superseded
from forestay.relay.warm import INGEST, Contradiction, Warm

if TYPE_CHECKING:
    from forestay.relay.session import Session

UNNAMED = "text"
_LABEL_LIMIT = 200
_BATCHES_AT_ONCE = 4
_SHOWN = 200  # characters of a fact in the answer


async def ingest(
    session: Session,
    text: str,
    label: str | None = None,
    supersedes: Sequence[str] = (),
    *,
    whole: bool = False,
    trusted: bool = False,
) -> ExtractionResult:
    """Keep every unit of `text` as a fact of the source `label`; the same text under the same label is kept once.

    A `whole` text is all that its source says now: the source's other facts are taken back. A `trusted` text may hold
    instructions: it is the caller's own task.
    """
    size = guard.check_text(text, "text")
    name = _label(UNNAMED if label is None else label)
    warm = session.warm
    source = INGEST + name
    corrects = _corrects(warm, source, supersedes) if label is not None or supersedes else []
    flags = guard.flags_of(text)
    found = [] if trusted else guard.injected(text)
    stripped = not trusted and flags.control_chars_stripped > 0
    digest = blake3.blake3(name.encode() + b"\0" + text.encode()).hexdigest()
    if (kept := _known(warm, digest)) is not None:
        gone = _gone(warm, source, kept) if whole else []
        if gone:
            await session.record(_taken_back(name, gone))
        lost = _lost(warm, gone, kept)
        return _answer(warm, kept, name, source, size, True, (), lost, _marked(kept, text, found, stripped), flags)
    first = len(warm.facts)
    made = batches(
        text, source, window=warm.windows, first=first, key=session.key, parent=warm.parent, corrects=corrects
    )
    # Each batch continues the chain of the batch before it. A few at a time are written, so memory stays bounded.
    while group := list(itertools.islice(made, _BATCHES_AT_ONCE)):
        session.stage_facts(group)
        if len(group) == _BATCHES_AT_ONCE:
            await session.flush()
    kept = warm.facts[first:]
    held = _marked(kept, text, found, stripped)
    if held:
        session.stage(Draft("crp.security.facts_quarantined", {"facts": sorted(held), "source": name}))
    against = session.settle_contradictions()
    gone = _gone(warm, source, kept) if whole else []
    if gone:
        session.stage(_taken_back(name, gone))
    session.stage(*guard.injection_records(flags, source=name))
    told = {"label": name, "digest": digest, "first": first, "count": len(kept), "bytes": size}
    await session.record(Draft("crp.ingest.complete", told))
    return _answer(warm, kept, name, source, size, False, against, _lost(warm, gone, kept), held, flags)


async def take_back(session: Session, label: str) -> int:
    """Take back the facts of a source that is gone: they are kept and no longer shown. Return their number."""
    source = _source(session.warm, label, "$.source_label")
    gone = _gone(session.warm, source, ())
    if gone:
        await session.record(_taken_back(_label(label), gone))
    return len(gone)


async def restore(session: Session, fact_ids: Sequence[str] | None, label: str | None) -> Restored:
    """Restore quarantined or superseded facts; refuse a fact whose signature does not hold."""
    warm = session.warm
    if (fact_ids is None) == (label is None):
        raise Problem("invalid_request", "Give fact_ids or a source_label, one of them.", at="$.fact_ids")
    if label is not None:
        source = _source(warm, label, "$.source_label")
        facts = [fact for fact in warm.facts if fact.source == source]
    else:
        facts = [session.fact(item) for item in dict.fromkeys(fact_ids or ())]
    facts = [fact for fact in facts if fact.quarantined or fact.superseded_by >= 0]
    if broken := [fact.id for fact in facts if not verify(warm.facts, fact.number, session.key)]:
        raise Problem(
            "chain_verification_failed",
            f"Fact {broken[0]} does not match its signature; it is not restored.",
            facts=broken[:100],
        )
    if facts:
        await session.record(Draft("crp.facts.restored", {"facts": [fact.number for fact in facts]}))
    return Restored(len(facts), tuple(fact.id for fact in facts))


async def share(session: Session, target: Session, fact_ids: Sequence[str] | None) -> int:
    """Copy facts of `session` into `target`, signed with the target's key; quarantined facts are left out."""
    if target is session:
        raise Problem("invalid_request", "A session cannot share with itself.", at="$.target_session_id")
    if target.warm.app_id != session.warm.app_id:
        raise Problem("role_denied", "Facts are shared between sessions of one app only.", operation="share_facts")
    if target.warm.bound and session.relay.binding(session.id) != target.relay.binding(target.id):
        raise Problem("signature_invalid", "The target session belongs to another secret.", at="$.target_session_id")
    if fact_ids is None:
        facts = [fact for fact in session.warm.facts if fact.superseded_by < 0]
    else:
        facts = [session.fact(item) for item in dict.fromkeys(fact_ids)]
    facts = [fact for fact in facts if not fact.quarantined]
    warm = target.warm
    made = copies(
        facts,
        f"session:{session.id}",
        window=warm.windows,
        first=len(warm.facts),
        key=target.key,
        parent=warm.parent,
    )
    await target.record(*(Draft("crp.extraction.complete", batch) for batch in made))
    return len(facts)


def _known(warm: Warm, digest: str) -> list[Fact] | None:
    """Return the facts of exactly this text; None when a later text corrected them: the source may say it again."""
    if (place := warm.sources.get(digest)) is None:
        return None
    facts = warm.facts[place[0] : place[0] + place[1]]
    return None if any(fact.superseded_by >= 0 for fact in facts) else facts


def _gone(warm: Warm, source: str, kept: Sequence[Fact]) -> list[int]:
    """Return the facts of `source` that are not superseded and not among `kept`."""
    still = {fact.number for fact in kept}
    return [
        fact.number
        for fact in warm.facts
        if fact.source == source and fact.superseded_by < 0 and fact.number not in still
    ]


def _lost(warm: Warm, gone: Sequence[int], kept: Sequence[Fact]) -> int:
    """Count the facts in `gone` that no fact in `kept` repeats."""
    again = {(fact.context, fact.text) for fact in kept}
    return sum((warm.facts[number].context, warm.facts[number].text) not in again for number in gone)


def _taken_back(label: str, facts: Sequence[int]) -> Draft:
    return Draft("crp.facts.taken_back", {"source": label, "facts": list(facts)})


def _corrects(warm: Warm, source: str, supersedes: Sequence[str]) -> list[str]:
    """Return the source, the sources that it supersedes, and those that they supersede (I2)."""
    named = [_source(warm, label, "$.supersedes") for label in supersedes]
    found = [source, *warm.corrects.get(source, ()), *named]
    return list(dict.fromkeys([*found, *(older for item in named for older in warm.corrects.get(item, ()))]))


def _source(warm: Warm, label: str, at: str) -> str:
    source = INGEST + _label(label)
    if source not in warm.corrects and not any(fact.source == source for fact in warm.facts):
        raise Problem(
            "not_found",
            f"No text was ingested as {label[:80]!r}.",
            at=at,
            fix="Use a label that `GET /facts` or `forestay relay facts` shows as a source.",
        )
    return source


def _marked(facts: Sequence[Fact], text: str, found: Sequence[tuple[int, int, str]], stripped: bool) -> dict[int, str]:
    """Return the facts with an injected instruction, or a part of one, and the name of its pattern (I3).

    When control characters were stripped, an instruction may hide behind them: the clean text is checked too.
    """
    held = {fact.number: marks[0][2] for fact in facts if (marks := guard.injected(fact.text))} if stripped else {}
    at, at_byte, place = 0, 0, 0
    for start, end, name in found:
        begin = at_byte + len(text[at:start].encode())
        stop = begin + len(text[start:end].encode())
        at, at_byte = start, begin
        while place < len(facts) and facts[place].end <= begin:
            place += 1
        for number in range(place, len(facts)):
            if facts[number].start >= stop:
                break
            held.setdefault(facts[number].number, name)
    return held


def _answer(
    warm: Warm,
    kept: Sequence[Fact],
    name: str,
    source: str,
    size: int,
    known: bool,
    against: Sequence[Contradiction],
    lost: int,
    held: dict[int, str],
    flags: SecurityFlags,
) -> ExtractionResult:
    superseded = tuple(_superseded(warm.facts[item.old], warm.facts[item.new]) for item in against)
    quarantined = tuple(
        Quarantined(fact.id, fact.text[:_SHOWN], held[fact.number])
        for fact in kept
        if fact.quarantined and fact.number in held
    )
    return ExtractionResult(
        facts_extracted=len(kept),
        source_label=name,
        fact_ids=tuple(fact.id for fact in kept),
        source_window=source,
        bytes_read=size,
        known=known,
        facts_superseded=len(superseded),
        superseded=superseded,
        facts_taken_back=lost,
        facts_quarantined=len(quarantined),
        quarantined=quarantined,
        security_flags=flags,
    )


def _superseded(old: Fact, new: Fact) -> Superseded:
    same = old.source == new.source
    return Superseded(
        old.id,
        old.text[:_SHOWN],
        old.source.removeprefix(INGEST),
        new.id,
        "same_source" if same else "superseding_source",
    )


def _label(label: str) -> str:
    label, _ = guard.clean(" ".join(label.split()))
    guard.check_text(label, "source_label", 4096)
    if not label or len(label) > _LABEL_LIMIT:
        raise Problem(
            "invalid_request",
            f"A source label must have 1 to {_LABEL_LIMIT} characters.",
            at="$.source_label",
            observed=len(label),
        )
    return label


# A task that does not fit into the window

_PARAGRAPH = 600
_NOTE = "\n\n[The middle of this input is left out here; what it says about the task stands in the passages above.]\n\n"


def shortened(text: str, room: int, count: Callable[[str], int]) -> str:
    """The first and the last part of `text`, cut at lines or spaces, together at most `room` tokens.

    People put the question first or last; both ends are kept.
    """
    room = max(16, room - count(_NOTE))
    characters = max(32, int(len(text) * room / max(1, count(text)) / 2))
    while characters:
        head, tail = _beginning(text, characters), _ending(text, characters)
        if count(head) + count(tail) <= room:
            return head + _NOTE + tail
        characters = characters * 3 // 4
    return _NOTE.strip()


def question(text: str) -> str:
    """What the task asks, for the ranking: its first and its last paragraph."""
    first, _, _ = text.strip().partition("\n\n")
    _, _, last = text.strip().rpartition("\n\n")
    return f"{first[:_PARAGRAPH]}\n{last[-_PARAGRAPH:]}"


def _beginning(text: str, limit: int) -> str:
    part = text[:limit]
    for mark in ("\n\n", "\n", " "):
        at = part.rfind(mark, limit // 2)
        if at > 0:
            return part[:at]
    return part


def _ending(text: str, limit: int) -> str:
    part = text[-limit:]
    for mark in ("\n\n", "\n", " "):
        at = part.find(mark, 0, limit // 2)
        if at >= 0:
            return part[at + len(mark) :]
    return part

"""Taking a text in: facts in batches, contradictions noted, the whole told once (CRP §1.5, C6)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import blake3

from holdfast.kernel.ledger import Draft
from holdfast.kernel.problems import Problem
from holdfast.relay import guard
from holdfast.relay.facts import batches, copies
from holdfast.relay.types import ExtractionResult
from holdfast.relay.warm import INGEST

if TYPE_CHECKING:
    from holdfast.relay.session import Session

_LABEL_LIMIT = 200
_CONTRADICTING = 0.3
_BATCHES_AT_ONCE = 4


async def ingest(session: Session, text: str, label: str) -> ExtractionResult:
    """Keep every unit of `text` as a fact of the source `label`; the same text under the same label is kept once."""
    size = guard.check_text(text, "text")
    label = _label(label)
    warm = session.warm
    flags = guard.flags_of(text)
    digest = blake3.blake3(label.encode() + b"\0" + (text.encode())).hexdigest()
    source = INGEST + label
    if (known := warm.sources.get(digest)) is not None:
        ids = tuple(f"f{number}" for number in range(known[0], known[0] + known[1]))
        return ExtractionResult(len(ids), label, ids, source, size, True, 0, False, flags)
    first = len(warm.facts)
    open_before = len(warm.open_contradictions)
    made = batches(text, source, window=warm.windows, first=first, key=session.key, parent=warm.parent)
    # Each batch continues the chain of the one before it; a few at a time are written, so that memory stays bounded.
    while group := list(itertools.islice(made, _BATCHES_AT_ONCE)):
        session.stage_facts(group)
        if len(group) == _BATCHES_AT_ONCE:
            await session.flush()
    count = len(warm.facts) - first
    against = warm.open_contradictions[open_before:]
    quarantined = bool(count) and len(against) > _CONTRADICTING * count
    if against:
        session.stage(Draft("crp.extraction.contradiction", {"pairs": [[item.old, item.new] for item in against]}))
    if quarantined:
        session.stage(
            Draft("crp.security.batch_quarantined", {"first": first, "count": count, "contradictions": len(against)})
        )
    session.stage(*guard.injection_records(flags, source=label))
    await session.record(
        Draft("crp.ingest.complete", {"label": label, "digest": digest, "first": first, "count": count, "bytes": size})
    )
    ids = tuple(f"f{number}" for number in range(first, first + count))
    return ExtractionResult(count, label, ids, source, size, False, len(against), quarantined, flags)


async def share(session: Session, target: Session, fact_ids: Sequence[str] | None) -> int:
    """Copy facts of `session` into `target`, newly signed there; quarantined facts stay where they are."""
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


def _label(label: str) -> str:
    label, _ = guard.clean(" ".join(label.split()))
    guard.check_text(label, "source_label", 4096)
    if not label or len(label) > _LABEL_LIMIT:
        raise Problem(
            "invalid_request",
            f"A source label has 1 to {_LABEL_LIMIT} characters.",
            at="$.source_label",
            observed=len(label),
        )
    return label

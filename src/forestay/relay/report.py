"""The report of a dispatch that is over: what it took, what it said, and how far facts support it (C3, C4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from forestay.kernel import Draft, canonical
from forestay.relay import quality
from forestay.relay.types import Fallback, QualityReport, SeamReport, SecurityFlags, Stop, Telemetry
from forestay.relay.warm import WINDOW, Dispatch, pack_text

if TYPE_CHECKING:
    from forestay.relay.session import Session


def report_of(
    session: Session, state: Dispatch, *, window_id: str, finish: str | None, model: str, stop: Stop, resumed: bool
) -> QualityReport:
    warm = session.warm
    made = [fact for fact in warm.facts[state.facts_before :] if fact.source == WINDOW + state.id]
    flags = msgspec.json.decode(state.flags, type=SecurityFlags)
    return QualityReport(
        session_id=session.id,
        window_id=window_id,
        output=state.output,
        facts_extracted=len(made),
        continuation_windows=state.continuations,
        envelope_saturation=round(state.saturation, 6),
        quality_tier=quality.tier(state.windows),
        security_flags=msgspec.structs.replace(flags, integrity_violations=warm.violations),
        telemetry=Telemetry(
            windows=state.windows,
            input_tokens=state.input_tokens,
            output_tokens=state.output_tokens,
            finish_reason=finish or "stop",
            stopped_by=stop,
            seams=tuple(msgspec.convert(state.seams, list[SeamReport])),
            facts_in_envelope=len(state.envelope_facts),
            overhead_ratio=warm.overhead_ratio,
            auto_ingested=state.auto_ingested,
            model=model,
            cost_usd=quality.cost(state.input_tokens, state.output_tokens, quality.price_of(warm.config, model)),
            tool_calls=state.tool_calls,
            resumed=resumed,
            regroundings=state.regroundings,
            served_by=state.served_by,
            fallbacks=tuple(msgspec.convert(state.fallbacks, list[Fallback])),
        ),
        groundedness=quality.groundedness(state.output, warm.index, warm.facts, state.envelope_facts),
        fact_ids=tuple(fact.id for fact in made),
    )


def completed(state: Dispatch, report: QualityReport, stop: Stop) -> Draft:
    """The record that ends a dispatch."""
    return Draft(
        "crp.dispatch.complete",
        {
            "dispatch_id": state.id,
            "windows": state.windows,
            "stopped_by": stop,
            "tier": report.quality_tier,
            "facts_extracted": report.facts_extracted,
            "groundedness": report.groundedness.score if report.groundedness is not None else None,
            "output": canonical.digest(pack_text(state.output)),
        },
    )

"""Operations that change nothing: status, preview, estimates, the audit (CRP §1.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forestay.kernel import Record, iso
from forestay.relay import guard, report, window
from forestay.relay.envelope import explain, near, packed_for
from forestay.relay.types import CostEstimate, EnvelopePreview, Pricing, RemainingBudget, SessionStatus

if TYPE_CHECKING:
    from forestay.relay.session import Session


def status(session: Session) -> SessionStatus:
    warm = session.warm
    windows, tokens_in, tokens_out = warm.left()
    capped = any(item is not None for item in (windows, tokens_in, tokens_out))
    model = session.model if session.models.known(warm.providers) else None
    pending = warm.dispatch
    return SessionStatus(
        session_id=session.id,
        windows_completed=warm.windows,
        total_input_tokens=warm.input_tokens + warm.reserved,
        total_output_tokens=warm.output_tokens,
        facts_in_warm_state=len(warm.facts),
        overhead_ratio=warm.overhead_ratio,
        remaining_budget=RemainingBudget(windows, tokens_in, tokens_out) if capped else None,
        is_active=not warm.closed and session.clock.now_ms() < warm.expires_ms,
        model=model.name if model is not None else "",
        context_window=warm.config.context_window or (model.context_window if model is not None else 0),
        expires_at=warm.expires_ms / 1000,
        resumable_dispatch=pending.id if pending is not None and pending.windows else None,
        integrity_violations=warm.violations,
    )


async def preview(
    session: Session, system_prompt: str, task_input: str, max_output_tokens: int | None, description: str
) -> EnvelopePreview:
    (system_prompt, task_input, goal), _ = guard.validate_all(
        system_prompt=system_prompt, task_input=task_input, description=description
    )
    warm = session.warm
    plan = window.plan(session.model, warm.config, system_prompt, task_input, max_output_tokens)
    left = warm.left()[1]
    room = plan.envelope if left is None else max(0, min(plan.envelope, left - plan.system - plan.task))
    query = f"{goal}\n{task_input}".strip()
    alike = await near(session, query)
    packed, broken = packed_for(session, query, room, goal, alike)
    while broken:  # a dispatch would quarantine these facts; a preview only leaves them out
        packed, more = packed_for(session, query, room, goal, alike, broken)
        if not more - broken:
            break
        broken |= more
    return EnvelopePreview(
        total_tokens=plan.system + plan.task + plan.reserve + packed.tokens,
        envelope_tokens=packed.tokens,
        generation_reserve=plan.reserve,
        facts_included=len(packed.chosen),
        facts_available=len(warm.facts),
        saturation=min(1.0, packed.tokens / room) if room else 0.0,
        envelope_text=packed.text,
        budget_tokens=room,
        used_tokens=packed.tokens,
        system_tokens=plan.system,
        task_tokens=plan.task,
        auto_ingest=not plan.fits,
        facts=explain(warm, packed, session.model.count_tokens),
    )


def estimate(
    session: Session, planned: int, input_tokens: int | None, output_tokens: int | None, pricing: Pricing | None
) -> CostEstimate:
    warm = session.warm
    size = warm.config.context_window or session.model.context_window
    reserve = window.reserve(session.model, warm.config, None, size)
    seen = max(1, warm.windows)
    tokens_in = input_tokens if input_tokens is not None else warm.input_tokens // seen or size // 2
    tokens_out = output_tokens if output_tokens is not None else warm.output_tokens // seen or reserve // 2
    prices = pricing or report.price_of(warm.config, session.model.name)
    return report.estimate(planned, tokens_in, tokens_out, reserve, prices, warm.windows)


async def estimate_task(session: Session, system_prompt: str, task_input: str) -> CostEstimate:
    found = await preview(session, system_prompt, task_input, None, "")
    return estimate(session, 1, found.system_tokens + found.task_tokens + found.envelope_tokens, None, None)


_SEVERE = frozenset({"crp.dispatch.error", "crp.dispatch.fallback", "crp.session.expire"})


def audit_event(session_id: str, record: Record) -> dict[str, Any]:
    severe = record.type.startswith("crp.security.") or record.type in _SEVERE
    return {
        "timestamp": iso(record.ts),
        "event_type": record.type,
        "session_id": session_id,
        "severity": "warning" if severe else "info",
        "payload": record.payload,
        "hash": record.hash,
    }

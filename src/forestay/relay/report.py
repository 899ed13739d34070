"""What a dispatch gives back when it is over: its report, and the turn of a conversation that it was.

The report says what the dispatch took, what it said, and how far facts support it (C3, C4).

T1  A turn under a key is asked once. What the stream holds under that key is given back; an answer that was cut short
    goes on where it stopped.
T2  The answer stands in the session's stream and nowhere else. Other records name the session and the digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from forestay.kernel import Draft, Record, canonical
from forestay.models import STOP, Completion, FinishReason, Message, ToolCall, Usage, whole, words
from forestay.relay.extract import units
from forestay.relay.facts import Fact
from forestay.relay.types import (
    CostEstimate,
    Fallback,
    Groundedness,
    Pricing,
    QualityReport,
    SeamReport,
    SecurityFlags,
    SessionConfig,
    Stop,
    Support,
    Telemetry,
    Tier,
)
from forestay.relay.warm import WINDOW, Dispatch, Warm, pack_text
from forestay.relay.window import Around

if TYPE_CHECKING:
    from forestay.relay.session import Session


_STATEMENT_SHARE = 0.6
_FACT_SHARE = 0.8
_SUPPORTERS = 5
_SENTENCES_REPORTED = 2000


def report_of(
    session: Session, state: Dispatch, *, window_id: str, finish: str | None, model: str, stop: Stop, resumed: bool
) -> QualityReport:
    warm = session.warm
    made = [fact for fact in warm.facts[state.facts_before :] if fact.origin.source == WINDOW + state.id]
    flags = msgspec.json.decode(state.flags, type=SecurityFlags)
    return QualityReport(
        session_id=session.id,
        window_id=window_id,
        output=state.output,
        facts_extracted=len(made),
        continuation_windows=state.continuations,
        envelope_saturation=round(state.saturation, 6),
        quality_tier=tier(state.windows),
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
            cost_usd=cost(state.input_tokens, state.output_tokens, price_of(warm.config, model)),
            tool_calls=state.tool_calls,
            resumed=resumed,
            regroundings=state.regroundings,
            served_by=state.served_by,
            fallbacks=tuple(msgspec.convert(state.fallbacks, list[Fallback])),
        ),
        groundedness=groundedness(state.output, warm, state.envelope_facts),
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


def tier(windows: int) -> Tier:
    """C3: by the number of windows."""
    if windows <= 1:
        return "S"
    return "A" if windows <= 10 else "B" if windows <= 100 else "C" if windows <= 1000 else "D"


def groundedness(output: str, warm: Warm, envelope: Sequence[int]) -> Groundedness:
    """The share of the output's statements that a fact of the envelope supports.

    A fact supports a statement when it holds 60 % of the statement's content words, or when 80 % of its own (three or
    more) stand in the statement, or when the statement quotes it; and in any case every number of the statement.
    """
    numbers = sorted(envelope)
    holders: dict[str, list[int]] = {}
    sentences = supported = 0
    support: list[Support] = []
    for unit in units(output):
        if unit.kind == "heading":
            continue
        content = {word for word in words(output[unit.start : unit.end]) if word not in STOP}
        if len(content) < 2:
            continue
        sentences += 1
        for word in content:
            if word not in holders:
                holders[word] = warm.index.holders(word, numbers) if numbers else []
        ids = _supporters(output[unit.start : unit.end], content, holders, warm.facts)
        supported += 1 if ids else 0
        if len(support) < _SENTENCES_REPORTED:
            support.append(Support(unit.start, unit.end, ids))
    return Groundedness(supported / sentences if sentences else None, sentences, supported, tuple(support))


def _supporters(
    statement: str, content: set[str], holders: dict[str, list[int]], facts: Sequence[Fact]
) -> tuple[str, ...]:
    shared: dict[int, int] = {}
    for word in content:
        for number in holders[word]:
            shared[number] = shared.get(number, 0) + 1
    figures = [holders[word] for word in content if word[0].isdigit()]
    good = [
        (-count, number)
        for number, count in shared.items()
        if (count >= _STATEMENT_SHARE * len(content) or _stands_in(facts[number], count, statement))
        and all(number in held for held in figures)
    ]
    return tuple(f"f{number}" for _, number in sorted(good)[:_SUPPORTERS])


def _stands_in(fact: Fact, shared: int, statement: str) -> bool:
    """Whether nearly all of the fact was said; a fact of two words counts when it was quoted."""
    if shared < 3:
        return shared == 2 and fact.text in statement
    return shared >= _FACT_SHARE * len({word for word in words(fact.text) if word not in STOP})


def price_of(config: SessionConfig, model: str) -> Pricing | None:
    """What the user says the model costs."""
    return config.prices.get(model, config.pricing)


def cost(input_tokens: int, output_tokens: int, pricing: Pricing | None) -> float | None:
    """The cost in USD by the prices that the user gave; None without prices."""
    if pricing is None:
        return None
    return round((input_tokens * pricing.input_per_million + output_tokens * pricing.output_per_million) / 1e6, 9)


def estimate(
    planned: int,
    input_tokens: int,
    output_tokens: int,
    reserve: int,
    pricing: Pricing | None,
    completed: int,
) -> CostEstimate:
    """`planned` dispatches of these sizes; output beyond the reserve takes windows that carry the input again."""
    windows_each = max(1, -(-output_tokens // max(1, reserve)))
    total_in = planned * windows_each * input_tokens
    total_out = planned * output_tokens
    return CostEstimate(
        max(1, planned * windows_each),
        total_in,
        total_out,
        cost(total_in, total_out, pricing),
        "high" if completed >= 10 else "medium" if completed >= 1 else "low",
    )


_CUT = frozenset({"max_windows", "max_continuations", "no_new_text", "information_flow"})


class Piece(msgspec.Struct, frozen=True):
    """The next piece of an answer, as it is written: in which window, and whether the answer ends with it."""

    text: str
    window: int
    last: bool = False


class Turned(msgspec.Struct, frozen=True):
    """What a model said in one turn, and how the relay got it; `digest` is the answer's."""

    answer: Completion
    digest: str
    window_id: str
    windows: int
    tier: Tier
    facts_in_envelope: int


def turned(state: Dispatch, stop: Stop) -> Turned:
    """The turn that a dispatch was, when it has ended."""
    text = whole(state.output)
    calls = msgspec.convert(state.calls, tuple[ToolCall, ...]) if stop == "complete" else ()
    finish: FinishReason = "tool_calls" if calls else "length" if stop in _CUT else "stop"
    return Turned(
        Completion(
            text,
            calls,
            "content_filter" if stop == "filtered" else finish,
            Usage(state.input_tokens, state.output_tokens),
            state.served_by,
            asked=tuple(Usage(*tokens) for tokens in state.used),
        ),
        canonical.digest(text),
        state.window_id,
        state.windows,
        tier(state.windows),
        len(state.envelope_facts),
    )


def recorded(records: Iterable[Record]) -> dict[str, Turned]:
    """The turns that a session's stream holds, by their keys (T1)."""
    found: dict[str, Turned] = {}
    state: Dispatch | None = None
    for record in records:
        match record.type.removeprefix("crp."):
            case "dispatch.start":
                state = Dispatch.begun(record.payload)
            case "envelope.build_complete" if state is not None:
                state.shown(record.payload)
            case "window.complete" if state is not None:
                state.said(record.payload)
            case "dispatch.complete" if state is not None:
                if state.key:
                    found[state.key] = turned(state, record.payload["stopped_by"])
                state = None
            case _:
                pass
    return found


def parts(messages: Sequence[Message]) -> tuple[str, str, Around]:
    """The system prompt, the task, and the conversation around it.

    The task is the message that is marked as one. Where an extension has taken that out, it is what the user says last.
    """
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    spoken = [message for message in messages if message.role != "system"]
    asked = [index for index, message in enumerate(spoken) if message.role == "user"]
    if not asked:
        return system, "", Around((), tuple(spoken))
    at = next((index for index in asked if spoken[index].task), asked[-1])
    return system, spoken[at].content, Around(tuple(spoken[:at]), tuple(spoken[at + 1 :]))

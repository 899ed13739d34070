"""A chain of windows that drifts is grounded anew, and an odd extraction is told (CRP §1.4, §1.5)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel import Ledger, ManualClock
from forestay.relay import drift
from forestay.relay.facts import GENESIS, batches
from tests.relay.conftest import Pieces, make_relay

SHARES = st.floats(0.0, 1.0)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), SHARES, SHARES)
def test_a_window_loses_between_nothing_and_all(
    new: int, more: int, against: int, novelty: float, before: float
) -> None:
    assert 0.0 <= drift.of_window(new, new + more, against, novelty, before) <= 1.0


@given(st.lists(SHARES, max_size=20))
def test_the_chain_is_one_less_the_product_of_what_was_kept(losses: list[float]) -> None:
    chain = 0.0
    for loss in losses:
        chain = drift.of_chain(chain, loss)
    assert chain == pytest.approx(1 - math.prod(1 - loss for loss in losses), abs=1e-9)


@pytest.mark.parametrize(
    ("new", "total", "against", "novelty", "before", "lost"),
    [
        (4, 4, 0, 1.0, 1.0, 0.0),
        (0, 0, 0, 1.0, 1.0, 0.0),
        (0, 4, 0, 1.0, 1.0, 0.5),
        (4, 4, 4, 1.0, 1.0, 0.15),
        (4, 4, 0, 0.5, 1.0, 0.1),
        (2, 4, 2, 0.25, 0.5, 0.25 + 0.075 + 0.1),
    ],
)
def test_the_formula_of_the_contract(
    new: int, total: int, against: int, novelty: float, before: float, lost: float
) -> None:
    assert drift.of_window(new, total, against, novelty, before) == pytest.approx(lost)


def test_regrounding_waits_for_the_threshold_and_three_windows() -> None:
    assert not drift.reground(0.149, 9)
    assert not drift.reground(0.9, 2)
    assert drift.reground(0.15, 3)


def words_of(start: int, count: int) -> str:
    return " ".join(f"word{number}" for number in range(start, start + count))


async def test_a_chain_that_repeats_itself_gets_facts_for_what_it_writes(ledger: Ledger, clock: ManualClock) -> None:
    """Windows that say the same facts again lose half each: the fourth is grounded anew, and so is the seventh."""
    known = "The mill grinds rye flour."
    pieces = [f"{known} {words_of(60 * n, 60)} end{n}.\n\n" for n in range(8)]
    pieces = [f"{known}\n\n{piece}" for piece in pieces]
    relay = make_relay(ledger, clock, Pieces(pieces))
    session = await relay.init("app")
    await session.ingest("The mill stands by the north basin. It grinds rye.", "mill.md")
    reply = await session.dispatch("", "Describe the harbour.")
    events = [event["payload"] for event in await session.audit() if event["event_type"] == "crp.dispatch.continuation"]
    assert [event["reground"] for event in events] == [False, False, True, False, False, True, False]
    assert all(event["degradation"] >= drift.REGROUND_AT for event in events if event["reground"])
    built = [
        e["payload"]["regrounded"] for e in await session.audit() if e["event_type"] == "crp.envelope.build_complete"
    ]
    assert built == [False, False, False, True, False, False, True, False]
    assert reply.report.telemetry is not None
    assert reply.report.telemetry.regroundings == 2
    assert reply.report.telemetry.windows == 8, "no model call is added"
    assert reply.output == "".join(pieces)


async def test_a_chain_that_goes_forward_keeps_its_first_messages(ledger: Ledger, clock: ManualClock) -> None:
    pieces = [f"Basin {n} holds {words_of(70 * n, 70)}.\n\n" for n in range(8)]
    model = Pieces(pieces)
    session = await make_relay(ledger, clock, model).init("app")
    await session.ingest("The mill stands by the north basin.", "mill.md")
    reply = await session.dispatch("", "Describe the harbour.")
    assert reply.report.telemetry is not None and reply.report.telemetry.regroundings == 0
    assert {call[0].content for call in model.calls} == {model.calls[0][0].content}


def test_the_gate_knows_what_is_typical() -> None:
    def batch(text: str) -> drift.Batch:
        (made,) = batches(text, "ingest:x", window=0, first=0, key=b"k" * 32, parent=GENESIS)
        return made

    prose = batch("This is a sentence of some length about the harbour and its basins. " * 20)
    odd = batch("\n\n".join("ab" for _ in range(200)))
    typical = [drift.rate(prose)] * 5
    assert drift.gate(prose, typical) is None
    assert drift.gate(odd, typical[:4]) is None, "too little is known"
    found = drift.gate(odd, typical)
    assert found is not None
    assert found["reason"] == "count" and found["count"] == 200
    assert drift.gate(batch("a\n\nb"), typical) is None, "too short to tell"


async def test_an_odd_extraction_is_told_and_keeps_everything(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock).init("app")
    for number in range(5):
        await session.ingest(
            f"Note {number}: " + "the harbour master wrote a long sentence again. " * 20, f"{number}.md"
        )
    result = await session.ingest("\n\n".join(f"ab{n}" for n in range(200)), "odd.md")
    told = [event for event in await session.audit() if event["event_type"] == "crp.extraction.quality_gate"]
    assert len(told) == 1
    assert told[0]["payload"]["source"] == "ingest:odd.md"
    assert result.facts_extracted == 200

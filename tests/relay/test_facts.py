"""Facts: signed in a chain, superseded, quarantined, rated, shared (F2, S1, S2, CRP §1.10)."""

from __future__ import annotations

import pytest

from forestay.kernel import Ledger, ManualClock, Problem
from forestay.relay import Relay
from forestay.relay.facts import said, verify

from .conftest import Pieces, make_relay


async def test_f2_every_fact_is_signed_behind_the_one_before_it(relay: Relay) -> None:
    session = await relay.init("one")
    await session.ingest("One is 1.\n\nTwo is 2.\n\nThree is 3.", "numbers")
    facts = session.warm.facts
    assert all(verify(facts, number, session.key) for number in range(3))
    facts[0], facts[1] = facts[1], facts[0]
    assert not verify(facts, 1, session.key)


async def test_f2_a_changed_fact_is_quarantined_and_never_shown(ledger: Ledger, clock: ManualClock) -> None:
    model = Pieces(["Fine."])
    session = await make_relay(ledger, clock, model).init("one")
    await session.ingest("The safe code is 1234.\n\nThe safe stands in the office.", "safe")
    session.warm.facts[0].digest = bytes(32)
    preview = await session.preview_envelope("", "Where is the safe and what is its code?")
    assert "1234" not in preview.envelope_text
    reply = await session.dispatch("", "Where is the safe and what is its code?")
    # The second fact hangs on the first in the chain, so both fail.
    assert reply.report.security_flags.integrity_violations == 2
    assert all("1234" not in message.content for message in model.calls[0])
    assert "crp.security.integrity_violation" in [r.type for r in await ledger.read(session.stream_name)]


async def test_1031_a_state_signed_with_another_key_is_rejected(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock).init("one")
    await session.ingest("\n\n".join(f"Line {n} says {n}." for n in range(30)), "lines")
    other = Relay(ledger, secret=b"quite another secret of a relay!", clock=clock)
    with pytest.raises(Problem) as caught:
        await other.session(session.id)
    assert caught.value.as_crp()["code"] == 1031


async def test_s1_the_fold_of_the_ledger_is_the_state_in_memory(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock, Pieces(["The tide is 3 m. It falls at 14:00."])).init("one")
    await session.ingest("# Tides\n\nThe tide is 2 m.\n\n| a | b |\n|---|---|\n| 1 | 2 |", "tides")
    await session.dispatch("Be brief.", "How high is the tide?", remember=True)
    await session.fact_feedback("f1", "boost", 0.2)
    await session.ingest("cafe\u0301: open\x07", "dirty")
    again = await make_relay(ledger, clock).session(session.id)
    mine, theirs = session.warm, again.warm
    for name in (
        "number",
        "text",
        "kind",
        "source",
        "start",
        "end",
        "context",
        "entity",
        "relation",
        "confidence",
        "hash",
        "signature",
    ):
        assert [getattr(fact, name) for fact in mine.facts] == [getattr(fact, name) for fact in theirs.facts], name
    assert [fact.shown for fact in mine.facts] == [fact.shown for fact in theirs.facts]
    assert (mine.windows, mine.input_tokens, mine.output_tokens, mine.sources) == (
        theirs.windows,
        theirs.input_tokens,
        theirs.output_tokens,
        theirs.sources,
    )
    assert mine.index.search({"tide": 1.0}, 10) == theirs.index.search({"tide": 1.0}, 10)


async def test_the_same_text_under_the_same_label_is_kept_once(relay: Relay) -> None:
    session = await relay.init("one")
    first = await session.ingest("One fact. Another fact.", "x")
    second = await session.ingest("One fact. Another fact.", "x")
    assert (first.known, second.known) == (False, True)
    assert first.fact_ids == second.fact_ids
    assert len(session.warm.facts) == 2
    assert (await session.ingest("One fact. Another fact.", "y")).known is False


async def test_what_a_model_said_never_overrides_a_source(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock, Pieces(["The deadline is 2027-01-01."])).init("one")
    await session.ingest("The deadline is 2026-03-01.", "plan")
    await session.dispatch("", "What is the deadline?", remember=True)
    await session.dispatch("", "And now?", remember=True)
    assert session.fact("f1").text == "The deadline is 2027-01-01."
    assert session.fact("f0").superseded_by == -1


async def test_feedback_moves_confidence_and_reject_hides(relay: Relay) -> None:
    session = await relay.init("one")
    await session.ingest("The basin is deep.\n\nThe basin is wide.", "x")
    await session.fact_feedback("f1", "penalize", 0.4)
    assert session.fact("f1").confidence == pytest.approx(0.6)
    assert [fact.id for fact, _ in await session.facts("basin")] == ["f0", "f1"]
    await session.fact_feedback("f1", "boost", 5)
    assert session.fact("f1").confidence == 1.0
    await session.fact_feedback("f0", "reject")
    assert [fact.id for fact, _ in await session.facts("basin")] == ["f1"]
    for id, action in (("f9", "boost"), ("x", "boost"), ("f1", "praise")):
        with pytest.raises(Problem):
            await session.fact_feedback(id, action)


async def test_facts_are_shared_inside_an_app(relay: Relay) -> None:
    one, two, other = await relay.init("a"), await relay.init("a"), await relay.init("b")
    await one.ingest("The basin is 12 m deep.\n\nThe quay is long.", "x")
    assert await one.share_facts(two, ["f0"]) == 1
    assert two.warm.facts[0].text == "The basin is 12 m deep."
    assert two.warm.facts[0].source == f"session:{one.id}"
    assert verify(two.warm.facts, 0, two.key)
    with pytest.raises(Problem) as caught:
        await one.share_facts(other)
    assert caught.value.as_crp()["code"] == 1013


async def test_reset_begins_anew_under_another_key(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock).init("one", role="ADMIN")
    await session.ingest("A fact.", "x")
    await session.dispatch("", "x")
    before = (session.key, session.handle.nonce)
    handle = await session.reset_session()
    assert (session.key, handle.nonce) != before
    status = await session.session_status()
    assert (status.facts_in_warm_state, status.windows_completed, status.total_input_tokens) == (0, 0, 0)
    await session.ingest("Another fact.", "x")
    again = await make_relay(ledger, clock).session(session.id)
    assert [fact.text for fact in again.warm.facts] == ["Another fact."]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Mara: The bus: late.", "The bus: late."),
        ("[8/5/25, 10:01] Mara: See you: soon.", "See you: soon."),
        ("10:01 <mara> hello", "hello"),
        ("Mara:", "Mara:"),
    ],
)
def test_what_a_line_of_talk_says(line: str, words: str) -> None:
    assert said(line) == words

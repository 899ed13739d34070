"""What is reported: tier, groundedness with evidence, overhead, cost, streaming events, audit (C3, C4, CRP §1.12)."""

from __future__ import annotations

import pytest

from forestay.kernel import Ledger, ManualClock
from forestay.relay import Pricing, Relay, SessionConfig
from forestay.relay.report import tier

from .conftest import Failing, Pieces, make_relay

FACTS = (
    "The north basin holds 12 boats.\n\nThe pump was repaired in March by Anna Keller.\n\nThe quay is 300 metres long."
)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [(1, "S"), (2, "A"), (10, "A"), (11, "B"), (100, "B"), (101, "C"), (1000, "C"), (1001, "D")],
)
def test_c3_the_tier_follows_the_windows(windows: int, expected: str) -> None:
    assert tier(windows) == expected


async def test_c3_groundedness_is_a_number_of_its_own_with_its_evidence(ledger: Ledger, clock: ManualClock) -> None:
    answer = "The north basin holds 12 boats. Anna Keller repaired the pump in March. The moon is made of old cheese."
    session = await make_relay(ledger, clock, Pieces([answer])).init("one")
    await session.ingest(FACTS, "port")
    report = (await session.dispatch("", "Tell me about the basin, the pump and the quay.")).report
    found = report.groundedness
    assert found is not None
    assert (found.sentences, found.supported) == (3, 2)
    assert found.score == pytest.approx(2 / 3)
    said = {answer[item.start : item.end]: item.fact_ids for item in found.support}
    assert said["The north basin holds 12 boats."] == ("f0",)
    assert said["Anna Keller repaired the pump in March."] == ("f1",)
    assert said["The moon is made of old cheese."] == ()
    assert report.quality_tier == "S"


async def test_c3_a_wrong_figure_is_not_supported(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock, Pieces(["The north basin holds 13 boats."])).init("one")
    await session.ingest(FACTS, "port")
    report = (await session.dispatch("", "How many boats?")).report
    assert report.groundedness is not None
    assert report.groundedness.score == 0.0


async def test_c4_overhead_counts_windows_that_showed_nothing(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock, Pieces(["", "", "Text."])).init("one")
    await session.dispatch("", "x")
    status = await session.session_status()
    assert status.windows_completed >= 1
    session.warm.windows, session.warm.productive = 5, 4
    assert (await session.session_status()).overhead_ratio == pytest.approx(1 / 4)


async def test_cost_follows_the_prices_that_the_user_gives(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock, Pieces(["x" * 400])).init("one")
    assert (await session.estimate_session()).estimated_cost_usd is None
    assert (await session.estimate_session()).confidence == "low"
    reply = await session.dispatch("", "y" * 400)
    assert reply.report.telemetry is not None
    assert reply.report.telemetry.cost_usd is None
    found = await session.estimate_session(10, 1000, 500, Pricing(2.0, 10.0))
    assert (found.estimated_windows, found.estimated_input_tokens, found.estimated_output_tokens) == (10, 10_000, 5000)
    assert found.estimated_cost_usd == pytest.approx(10_000 * 2e-6 + 5000 * 10e-6)
    assert found.confidence == "medium"


async def test_output_beyond_the_reserve_is_estimated_in_windows(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock, Pieces(["x"])).init("one", config={"max_output_tokens": 100})
    found = await session.estimate_session(2, 1000, 250)
    assert (found.estimated_windows, found.estimated_input_tokens, found.estimated_output_tokens) == (6, 6000, 500)


async def test_the_events_of_a_stream(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock, Pieces(["The first part. ", "The second part."])).init("one")
    events = [event async for event in session.stream("", "x", remember=True)]
    kinds = [event.event_type for event in events if event.event_type != "token"]
    assert kinds == ["extraction", "window_complete", "continuation", "extraction", "window_complete", "done"]
    recorded = [event["event_type"] for event in await session.audit()]
    assert recorded.count("crp.dispatch.continuation") == 1
    assert "".join(event.data for event in events if event.event_type == "token") == events[-1].data.output
    assert sum(event.data["facts_extracted"] for event in events if event.event_type == "extraction") == 2


async def test_an_empty_answer_is_one_empty_token(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock, Pieces([""])).init("one")
    events = [event async for event in session.stream("", "x")]
    assert [event.data for event in events if event.event_type == "token"] == [""]
    assert events[-1].data.output == ""


async def test_a_failed_stream_ends_with_one_error(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock, Failing("provider_error", "Half")).init("one")
    events = [event async for event in session.stream("", "x")]
    assert [event.event_type for event in events] == ["token", "error"]
    assert set(events[-1].data) == {"code", "message", "details"}


async def test_the_partial_output_is_not_redacted(ledger: Ledger, clock: ManualClock) -> None:
    text = "Look in /home/anna/notes.txt for the password: hunter2"
    session = await make_relay(ledger, clock, Failing("provider_error", text)).init("one")
    events = [event async for event in session.stream("", "x")]
    assert events[-1].data["details"]["partial_output"] == text


async def test_the_audit_says_what_the_model_was_told_and_said(relay: Relay) -> None:
    session = await relay.init("one")
    await session.ingest(FACTS, "port")
    await session.dispatch("Be brief.", "How many boats?", remember=True)
    events = await session.audit()
    assert [event["event_type"] for event in events] == [
        "crp.session.init",
        "crp.extraction.complete",
        "crp.ingest.complete",
        "crp.dispatch.start",
        "crp.envelope.build_complete",
        "crp.window.complete",
        "crp.extraction.complete",
        "crp.dispatch.complete",
    ]
    told, said = events[4]["payload"], events[5]["payload"]
    assert told["facts"] and told["messages"].startswith("sha256:")
    assert said["output"] == "An answer."
    assert all(event["timestamp"].endswith("Z") for event in events)
    assert (await relay.ledger.verify("relay/")).ok


async def test_three_lines_are_enough(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with Relay.open(tmp_path_factory.mktemp("x") / "work.db", model=Pieces(["Hello."])) as relay:
        reply = await relay.dispatch("You are brief.", "Say hello.")
        output, report = reply
    assert (output, report.quality_tier) == ("Hello.", "S")


async def test_c3_a_short_fact_supports_a_statement_that_quotes_it(ledger: Ledger, clock: ManualClock) -> None:
    text = 'The notes on the mill say this: "It is closed on Sunday."'
    session = await make_relay(ledger, clock, Pieces([text])).init("app")
    await session.ingest("The mill grinds rye. It is closed on Sunday.", "mill.md")
    found = (await session.dispatch("", "When is the mill closed?")).report.groundedness
    assert found is not None and found.score == 1.0
    assert [item.fact_ids for item in found.support] == [("f1",)]


async def test_the_cost_follows_the_users_table_of_prices(ledger: Ledger, clock: ManualClock) -> None:
    prices = {"pieces": Pricing(2.0, 4.0), "other": Pricing(100.0, 100.0)}
    relay = make_relay(ledger, clock, Pieces(["An answer of some length."]))
    session = await relay.init("app", config=SessionConfig(prices=prices, pricing=Pricing(9.0, 9.0)))
    seen = (await session.dispatch("", "Say it.")).report.telemetry
    assert seen is not None
    assert seen.cost_usd == round((2 * seen.input_tokens + 4 * seen.output_tokens) / 1e6, 9)
    estimate = await session.estimate_session(10, 1000, 100)
    assert estimate.estimated_cost_usd == round(10 * (2 * 1000 + 4 * 100) / 1e6, 9)
    unnamed = await relay.init("app", config=SessionConfig(prices={"other": Pricing(1.0, 1.0)}))
    assert (await unnamed.estimate_session()).estimated_cost_usd is None

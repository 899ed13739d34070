"""The five context tools and the five ways to dispatch with them."""

from __future__ import annotations

import json

import jsonschema_rs

from forestay.kernel import Ledger, ManualClock
from forestay.models import ToolCall, ToolSpec
from forestay.relay import variants
from forestay.relay.tools import SPECS, Toolbox, openai_tools

from .conftest import Calling, Endless, Pieces, make_relay

TEXT = (
    "# Port\n\n## Basins\n\nThe north basin holds 12 boats. It is 9 m deep.\n\n"
    "## People\n\nAnna Keller repaired the pump in March.\n"
)


def test_the_tools_are_in_openai_form() -> None:
    assert [tool["function"]["name"] for tool in openai_tools()] == [
        "crp_retrieve_context",
        "crp_get_document_structure",
        "crp_check_facts",
        "crp_get_related_facts",
        "crp_get_continuation_state",
    ]
    for spec in SPECS:
        jsonschema_rs.meta.validate(spec.parameters)


async def test_each_tool_answers(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock).init("one")
    await session.ingest(TEXT, "port")
    box = Toolbox(session.warm)

    def call(name: str, **arguments: object) -> dict[str, object]:
        result: dict[str, object] = json.loads(box.call(ToolCall("c1", name, arguments)))
        return result

    found = call("crp_retrieve_context", query="boats in the north basin", limit=1)["facts"]
    assert [fact["text"] for fact in found] == ["The north basin holds 12 boats."]  # type: ignore[attr-defined]
    (source,) = call("crp_get_document_structure")["sources"]  # type: ignore[misc]
    assert [item["heading"] for item in source["headings"]] == ["Port", "Port > Basins", "Port > People"]
    checked = call("crp_check_facts", statements=["The north basin holds 12 boats", "The north basin holds 13 boats"])
    assert [item["supported"] for item in checked["statements"]] == [True, False]  # type: ignore[attr-defined]
    related = call("crp_get_related_facts", fact_id="f2")
    assert "It is 9 m deep." in [item["text"] for item in related["related"]]  # type: ignore[attr-defined]
    assert call("crp_get_continuation_state")["characters_written"] == 0
    assert "error" in call("crp_get_related_facts", fact_id="f99")
    assert "error" in call("crp_retrieve_context")
    assert "error" in call("crp_retrieve_context", query="x", limit=0)
    assert "error" in json.loads(box.call(ToolCall("c", "crp_retrieve_context", {}, malformed="{oops")))
    assert box.trace[0]["tool"] == "crp_retrieve_context"


async def test_tools_the_model_pulls_and_then_answers(ledger: Ledger, clock: ManualClock) -> None:
    model = Calling([[ToolCall("c1", "crp_retrieve_context", {"query": "who repaired the pump"})]], "Anna did.")
    session = await make_relay(ledger, clock, model).init("one")
    await session.ingest(TEXT, "port")
    outcome = await variants.tools(session, "You help.", "Who?")
    assert outcome.output == "Anna did."
    assert len(model.calls) == 2
    roles = [message.role for message in model.calls[1]]
    assert roles == ["system", "user", "assistant", "tool"]
    assert "Anna Keller repaired the pump" in model.calls[1][-1].content
    assert outcome.report.telemetry is not None
    assert (outcome.report.telemetry.tool_calls, outcome.report.continuation_windows) == (1, 0)
    assert (await session.session_status()).overhead_ratio == 1.0  # one window asked for a tool, one answered


async def test_tools_of_the_caller_are_handed_back(ledger: Ledger, clock: ManualClock) -> None:
    wanted = ToolCall("c1", "send_mail", {"to": "anna"})
    model = Calling([[wanted]], "never said")
    session = await make_relay(ledger, clock, model).init("one")
    spec = ToolSpec("send_mail", "Sends mail.", {"type": "object"})
    outcome = await variants.tools(session, "", "Mail Anna.", tools=[spec])
    assert outcome.tool_calls == (wanted,)
    assert len(model.calls) == 1
    assert "send_mail" in [tool.name for tool in model.tools[0]]


async def test_agentic_stops_at_its_steps_and_keeps_a_trace(ledger: Ledger, clock: ManualClock) -> None:
    look = [ToolCall("c", "crp_get_document_structure", {})]
    model = Calling([look] * 50, "never said")
    session = await make_relay(ledger, clock, model).init("one")
    outcome = await variants.agentic(session, "", "Look.", max_steps=3)
    assert len(outcome.trace) == 3
    assert len(model.calls) == 4
    assert outcome.tool_calls


async def test_reflexive_asks_again_only_when_something_is_unsupported(ledger: Ledger, clock: ManualClock) -> None:
    good = Pieces(["The north basin holds 12 boats."])
    session = await make_relay(ledger, clock, good).init("one")
    await session.ingest(TEXT, "port")
    outcome = await variants.reflexive(session, "", "How many boats are in the north basin?")
    assert len(good.calls) == 1
    assert outcome.output == "The north basin holds 12 boats."

    class Two(Pieces):
        """Wrong first, right when told what is wrong."""

    first = Two(["The north basin holds 99 whales."], last="stop")
    other = await make_relay(ledger, clock, first).init("two")
    await other.ingest(TEXT, "port")
    original = first.stream

    def stream(messages: object, **options: object) -> object:
        first.pieces = ["The north basin holds 12 boats."] if first.calls else first.pieces
        return original(messages, **options)  # type: ignore[arg-type]

    first.stream = stream  # type: ignore[method-assign, assignment]
    outcome = await variants.reflexive(other, "", "How many boats are in the north basin?")
    assert outcome.output == "The north basin holds 12 boats."
    assert "99 whales" in first.calls[1][-1].content
    assert [step["unsupported"] for step in outcome.trace] == [1, 0]
    assert (await other.session_status()).overhead_ratio == 1.0  # the draft was not for the user


async def test_progressive_shows_the_outline_then_the_chosen_section(ledger: Ledger, clock: ManualClock) -> None:
    model = Pieces(["3"])
    session = await make_relay(ledger, clock, model).init("one")
    await session.ingest(TEXT, "port")
    outcome = await variants.progressive(session, "", "Who did it?")
    assert "ingest:port: Port > People" in model.calls[0][-1].content
    assert outcome.trace[0]["sections"] == ["ingest:port: Port > People"]
    assert "Anna Keller" in model.calls[1][-1].content
    assert len(model.calls) == 2


async def test_stream_augmented_brings_facts_for_what_was_just_written(ledger: Ledger, clock: ManualClock) -> None:
    model = Endless(lambda n: "Now about the pump and who repaired it, which is a long story. " * 40)
    session = await make_relay(ledger, clock, model).init("one", config={"context_window": 4000})
    await session.ingest(TEXT, "port")
    await session.ingest("\n\n".join(f"Ship {n} carries {n} tons." for n in range(300)), "ships")
    await variants.stream_augmented(session, "", "Ships, please.", max_windows=2)
    first, second = model.calls[0], model.calls[1]
    assert "Anna Keller repaired the pump" not in first[0].content
    assert "Anna Keller repaired the pump" in second[0].content
    assert all((params.max_tokens or 0) <= 512 for params in model.params)

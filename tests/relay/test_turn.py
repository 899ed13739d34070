"""One turn of a conversation (`Session.turn`): asked once under its key, kept once, gone on with after a crash."""

from __future__ import annotations

import pytest

from forestay.kernel import Append, Ledger, ManualClock, Problem
from forestay.models import Message, Params, ToolCall, ToolSpec
from forestay.relay import Piece, Session
from tests.relay.conftest import Pieces, make_relay
from tests.relay.test_variants import Calling

SPEC = ToolSpec("mail", "Sends a mail.", {"type": "object"})
TALK = [
    Message("system", "You know the harbour."),
    Message("user", "What you remember: nothing."),
    Message("user", "Where does the Aurora lie?", task=True),
    Message("assistant", "", (ToolCall("c", "look", {}),)),
    Message("tool", "At berth 7.", tool_call_id="c"),
]


async def opened(ledger: Ledger, clock: ManualClock, model: Pieces) -> Session:
    session = await make_relay(ledger, clock, model).init("one")
    await session.ingest("The Aurora lies at berth 7.", "note")
    return session


async def test_facts_stand_with_the_task_and_the_conversation_around_it(ledger: Ledger, clock: ManualClock) -> None:
    model = Pieces(["Berth 7."])
    session = await opened(ledger, clock, model)
    turned = await session.turn(TALK, [SPEC], Params(temperature=0.5))
    assert turned.answer.text == "Berth 7." and turned.answer.finish_reason == "stop"
    (asked,) = model.calls
    assert [message.role for message in asked] == ["system", "user", "user", "assistant", "tool"]
    assert asked[1] == TALK[1] and asked[3:] == TALK[3:]
    assert asked[2].content.endswith("Where does the Aurora lie?") and "berth 7" in asked[2].content
    assert turned.facts_in_envelope == 1
    assert model.params[0].temperature == 0.5 and list(model.tools[0]) == [SPEC]


async def test_the_conversation_is_a_part_of_the_window(ledger: Ledger, clock: ManualClock) -> None:
    session = await opened(ledger, clock, Pieces(["x"], context_window=2_000))
    long = [TALK[0], TALK[2], Message("tool", "word " * 2_000, tool_call_id="c")]
    with pytest.raises(Problem) as caught:
        await session.turn(long)
    assert caught.value.key == "window_exceeded"


async def test_t1_a_turn_under_a_key_is_asked_once_in_the_sessions_life(ledger: Ledger, clock: ManualClock) -> None:
    model = Pieces(["Berth 7."])
    session = await opened(ledger, clock, model)
    first = await session.turn(TALK, key="turn-0")
    await session.flush()
    assert await session.turn(TALK, key="turn-0") == first
    again = await make_relay(ledger, clock, model).session(session.id)
    assert await again.turn(TALK, key="turn-0") == first
    assert len(model.calls) == 1
    await again.turn(TALK, key="turn-1")
    assert len(model.calls) == 2


async def test_t1_an_answer_that_was_cut_short_goes_on_where_it_stopped(ledger: Ledger, clock: ManualClock) -> None:
    """A process dies when the first of two windows is on disk: the other process asks for the second alone."""
    first, second = "The Aurora lies at berth 7, ", "and the Petrel at berth 9."
    heard: list[Piece] = []

    async def hear(piece: Piece) -> None:
        heard.append(piece)
        if piece.window == 1:
            raise RuntimeError("the process dies here")

    session = await opened(ledger, clock, Pieces([first, second]))
    with pytest.raises(RuntimeError):
        await session.turn(TALK, key="turn-0", heard=hear)
    model = Pieces([second])
    again = await make_relay(ledger, clock, model).session(session.id)
    heard.clear()

    async def listen(piece: Piece) -> None:
        heard.append(piece)

    turned = await again.turn(TALK, key="turn-0", heard=listen)
    assert turned.answer.text == first + second and turned.windows == 2
    assert len(model.calls) == 1
    assert "".join(piece.text for piece in heard) == second, "what was heard before is not said again"
    assert {piece.window for piece in heard} == {1} and heard[-1].last


async def test_t1_another_model_does_not_go_on_with_an_answer(ledger: Ledger, clock: ManualClock) -> None:
    async def hear(piece: Piece) -> None:
        if piece.window == 1:
            raise RuntimeError("the process dies here")

    session = await opened(ledger, clock, Pieces(["First half, ", "second half."], name="a"))
    with pytest.raises(RuntimeError):
        await session.turn(TALK, key="turn-0", heard=hear)
    other = Pieces(["another voice."], name="b")
    again = await make_relay(ledger, clock, other).session(session.id)
    with pytest.raises(Problem) as caught:
        await again.turn(TALK, key="turn-0")
    assert caught.value.key == "provider_missing" and other.calls == []


async def test_calls_are_handed_back_and_kept(ledger: Ledger, clock: ManualClock) -> None:
    call = ToolCall("c1", "mail", {"to": "Anna"})
    session = await opened(ledger, clock, Calling([[call]], "Done."))
    turned = await session.turn(TALK, [SPEC], key="turn-0")
    assert turned.answer.tool_calls == (call,) and turned.answer.finish_reason == "tool_calls"
    await session.flush()
    assert (await session.relay.turns(session.id))["turn-0"] == turned


async def test_the_caller_writes_the_end_with_records_of_its_own(ledger: Ledger, clock: ManualClock) -> None:
    session = await opened(ledger, clock, Pieces(["Berth 7."]))
    written: list[Append] = []

    async def write(append: Append) -> None:
        written.append(append)
        await ledger.commit(append)

    session.write = write
    await session.turn(TALK, key="turn-0")
    assert [draft.type for append in written for draft in append.drafts] == [
        "crp.dispatch.start",
        "crp.envelope.build_complete",
    ], "what the model is asked about is on disk before it is asked"
    end = session.give()
    assert [draft.type for draft in end.drafts] == ["crp.window.complete", "crp.dispatch.complete"]
    await ledger.commit(end)
    await session.close()
    assert "turn-0" in await session.relay.turns(session.id), "a closed session's stream still holds it"

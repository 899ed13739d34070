"""Providers that fail at every point of an answer, over real HTTP: the text is exact or the dispatch fails (C18)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay import models
from forestay.kernel import Ledger, ManualClock, Problem
from forestay.models import OpenModel, Retries
from forestay.relay import Relay, Session
from tests.models.wire import Reply, Server, serving

from .conftest import SECRET, Failing, Pieces, make_relay

PIECES = (
    "The harbour of Vik was dredged in 1931, and the mole was raised by two metres. ",
    "The lighthouse keeper wrote it down, with the names of the eleven men who did it. ",
    "Nobody has found the book since.",
)
DOCUMENT = "".join(PIECES)
ECHO = 40  # what a model repeats of the window before


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(threshold=0.1)


def said(number: int) -> str:
    """The raw text of a window, with its echo."""
    return PIECES[0] if number == 0 else PIECES[number - 1][-ECHO:] + PIECES[number]


def reply(number: int, **more: Any) -> Reply:
    text = said(number)
    deltas = tuple(text[at : at + 9] for at in range(0, len(text), 9))
    return Reply(deltas, finish="stop" if number == len(PIECES) - 1 else "length", **more)


def refusal(status: int, *headers: tuple[str, str]) -> Reply:
    kind = "authentication_error" if status == 401 else "invalid_request_error" if status < 429 else "server_error"
    return Reply(status=status, headers=headers, error={"error": {"message": "No.", "type": kind}})


@asynccontextmanager
async def opened(server: Server, clock: ManualClock, name: str = "gpt-x") -> AsyncIterator[OpenModel]:
    model = models.open(
        f"openai:{name}@{server.openai}",
        clock=clock,
        api_key="k",
        context_window=8_192,
        retries=Retries(attempts=2, jitter=0),
    )
    try:
        yield model
    finally:
        await model.aclose()


async def session_with(ledger: Ledger, clock: ManualClock, *order: Any) -> tuple[Session, Pieces]:
    own = Pieces(["The relay's own model says this."])
    session = await make_relay(ledger, clock, own).init("one")
    for priority, model in enumerate(order):
        session.use_model(model, priority)
    return session, own


FAULTS: dict[str, Reply] = {
    "400": refusal(400),
    "401": refusal(401),
    "404 unknown model": refusal(404),
    "429": refusal(429, ("retry-after", "900")),
    "500": refusal(500),
    "503 that says wait": refusal(503, ("retry-after", "900")),
    "an empty body": Reply(raw=b""),
    "no protocol": Reply(raw=b"data: {nonsense\n\n"),
    "an error event": Reply(raw=b'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n'),
    "cut before the first event": Reply(("x",), cut_after=0),
    "ended before the first text": Reply(("x",), end_after=1),
}


@pytest.mark.parametrize("number", range(len(PIECES)))
@pytest.mark.parametrize("fault", FAULTS)
async def test_c18_a_provider_that_fails_is_an_error_and_no_other_model_answers(
    fault: str, number: int, ledger: Ledger, clock: ManualClock
) -> None:
    """At window 1, 2 and 3; what was written stays, and the same model goes on with it."""
    before, rest = [reply(at) for at in range(number)], [reply(at) for at in range(number, len(PIECES))]
    async with serving(*before, *[FAULTS[fault]] * 4) as server, opened(server, clock) as model:
        session, own = await session_with(ledger, clock, model)
        with pytest.raises(Problem) as caught:
            await session.dispatch("You write.", "Write it.")
        assert caught.value.row.crp == 1020
        assert caught.value.details["partial_output"] == "".join(PIECES[:number])
        assert caught.value.details["model"] == "openai:gpt-x"
        server.replies[:] = rest
        done = await (session.resume() if number else session.dispatch("You write.", "Write it."))
        assert done.output == DOCUMENT
        assert done.report.telemetry is not None
        assert done.report.telemetry.model == "openai:gpt-x"
    assert own.calls == []


@pytest.mark.parametrize("number", range(len(PIECES)))
async def test_c18_a_refused_connection_is_an_error_at_every_window(
    number: int, ledger: Ledger, clock: ManualClock
) -> None:
    async with serving(*[reply(at) for at in range(number)]) as server, opened(server, clock) as model:
        session, own = await session_with(ledger, clock, model)
        shown, windows = "", 0
        if not number:
            await server.stop_listening()
        with pytest.raises(Problem) as caught:
            async for event in session.events("You write.", "Write it."):
                shown += event.data if event.event_type == "token" else ""
                windows += event.event_type == "window_complete"
                if windows == number:
                    await server.stop_listening()
        assert caught.value.row.crp == 1020
        assert shown == caught.value.details["partial_output"] == "".join(PIECES[:number])
        assert f"127.0.0.1:{server.port}" in caught.value.message
    assert own.calls == []


@pytest.mark.parametrize("cut", ["cut_after", "end_after"])
@pytest.mark.parametrize("number", range(len(PIECES)))
async def test_c15_a_stream_that_breaks_off_at_any_event_is_exact_or_keeps_what_was_shown(
    number: int, cut: str, ledger: Ledger, clock: ManualClock
) -> None:
    """Every event of the window in turn; what is resumed ends in the exact document."""
    events = len(reply(number).texts) + 2
    for at in range(events):
        before = [reply(place) for place in range(number)]
        async with (
            serving(*before, reply(number, **{cut: at})) as server,
            opened(server, clock) as model,
        ):
            session, own = await session_with(ledger, clock, model)
            server.replies.extend(reply(place) for place in range(number, len(PIECES)))
            shown, resumed = "", False
            try:
                async for event in session.events("You write.", "Write it."):
                    shown += event.data if event.event_type == "token" else ""
            except Problem as problem:
                assert problem.row.crp == 1020
                assert problem.details["partial_output"] == shown
                assert DOCUMENT.startswith(shown)
                resumed = True
                tail = DOCUMENT[len(shown) - (ECHO if len(shown) >= ECHO else 0) :]
                server.replies[:] = [Reply((tail,), finish="stop")]
                shown = (await session.resume()).output
            assert shown == DOCUMENT, (at, resumed)
            # Held back while it may be an echo, it was asked for again; once shown, it was not.
            assert resumed == (at > (ECHO // 9 + 1 if number else 1)), at
            await session.close()
        assert own.calls == []


async def test_c18_a_cut_while_only_the_echo_was_held_back_is_asked_again(ledger: Ledger, clock: ManualClock) -> None:
    class Cut(Pieces):
        """Window 2 breaks off inside its echo once."""

        async def stream(self, messages: Any, **options: Any) -> Any:
            first = len(self.calls) == 1
            async for delta in super().stream(messages, **options):
                yield delta
                if first:
                    raise Problem("provider_error", "The connection broke.")

    model = Cut([said(0), said(1), said(1), said(2)], delta=lambda _: 30)
    session, _ = await session_with(ledger, clock, model)
    reply = await session.dispatch("", "Write it.")
    assert reply.output == DOCUMENT
    assert len(model.calls) == 4
    assert model.calls[1] == model.calls[2]


@pytest.mark.parametrize("number", [1, 2])
async def test_c18_a_router_that_changes_the_model_inside_an_answer_is_an_error(
    number: int, ledger: Ledger, clock: ManualClock
) -> None:
    before = [reply(at, model="a") for at in range(number)]
    async with serving(*before, reply(number, model="b")) as server, opened(server, clock) as model:
        session, own = await session_with(ledger, clock, model)
        with pytest.raises(Problem) as caught:
            await session.dispatch("You write.", "Write it.")
        assert caught.value.row.crp == 1020
        assert caught.value.details["partial_output"] == "".join(PIECES[:number])
        server.replies[:] = [reply(at, model="a") for at in range(number, len(PIECES))]
        done = await session.resume()
        assert done.output == DOCUMENT
        assert done.report.telemetry is not None
        assert (done.report.telemetry.model, done.report.telemetry.served_by) == ("openai:gpt-x", "a")
    assert own.calls == []


# The caller's fall-back order


async def test_c18_the_callers_order_is_asked_before_the_first_token_and_the_answer_says_so(
    ledger: Ledger, clock: ManualClock
) -> None:
    async with (
        serving(refusal(401)) as broken,
        serving(*map(reply, range(3))) as good,
        opened(broken, clock, "first") as first,
        opened(good, clock, "second") as second,
    ):
        session, own = await session_with(ledger, clock, first, second)
        done = await session.dispatch("You write.", "Write it.")
        assert done.output == DOCUMENT
        assert len(broken.requests) == 1
        telemetry = done.report.telemetry
        assert telemetry is not None
        assert telemetry.model == "openai:second"
        assert [(item.model, item.problem) for item in telemetry.fallbacks] == [
            ("openai:first", "provider_unauthenticated")
        ]
    kinds = [record.type for record in await ledger.read(session.stream_name)]
    assert kinds.count("crp.dispatch.fallback") == 1
    assert own.calls == []


async def test_c18_no_other_model_of_the_order_goes_on_with_an_answer(ledger: Ledger, clock: ManualClock) -> None:
    other = Pieces(["Another voice."])
    async with serving(reply(0), refusal(400)) as server, opened(server, clock) as model:
        session, own = await session_with(ledger, clock, model, other)
        with pytest.raises(Problem) as caught:
            await session.dispatch("You write.", "Write it.")
        assert caught.value.details["partial_output"] == PIECES[0]
    assert other.calls == own.calls == []


async def test_c18_when_all_of_the_order_fail_the_problem_names_each(ledger: Ledger, clock: ManualClock) -> None:
    second = Failing("provider_timeout", name="second")
    session, own = await session_with(ledger, clock, Failing("provider_error"), second)
    with pytest.raises(Problem) as caught:
        await session.dispatch("", "x")
    assert caught.value.row.crp == 1021
    assert caught.value.details["model"] == "second"
    assert caught.value.details["fallbacks"] == [{"model": "failing", "problem": "provider_error"}]
    assert own.calls == []


async def test_c19_a_fallback_gets_a_window_of_its_own_size(ledger: Ledger, clock: ManualClock) -> None:
    """Facts that fitted the first model's window are chosen again for the second's."""
    large, small = Failing("provider_error", context_window=32_768), Pieces(["Good."], context_window=1_024)
    session, _ = await session_with(ledger, clock, large, small)
    await session.ingest("\n".join(f"The harbour pilot of place {n} keeps {n} ropes." for n in range(400)), "pilots")
    await session.dispatch("", "How many ropes does the harbour pilot of place 7 keep?")
    sent = sum(small.count_tokens(message.content) for message in small.calls[0])
    assert sent + (small.params[0].max_tokens or 0) <= 1_024


async def test_c19_a_fallback_that_cannot_take_the_task_is_passed_over(ledger: Ledger, clock: ManualClock) -> None:
    tiny, good = Pieces(["tiny"], context_window=256), Pieces(["Good."])
    session, _ = await session_with(ledger, clock, Failing("provider_error"), tiny, good)
    done = await session.dispatch("", "word " * 800)
    assert done.output == "Good."
    assert done.report.telemetry is not None
    assert [item.problem for item in done.report.telemetry.fallbacks] == ["provider_error", "payload_too_large"]
    assert tiny.calls == []


# Providers of another process


async def test_c18_after_a_restart_no_other_model_stands_in_for_the_sessions_provider(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The key was kept in memory only, so the caller has to register the provider again."""
    own = Pieces(["The relay's own model says this."])
    named = {"provider_type": "openai", "model": "gpt-x", "api_key": "k"}
    async with serving(*map(reply, range(3))) as server:
        address = server.openai
        async with Relay.open(tmp_path / "r.db", model=own, secret=SECRET, clock=clock) as relay:
            session = await relay.init("one")
            await session.register_provider(**named, base_url=address)
        async with Relay.open(tmp_path / "r.db", model=own, secret=SECRET, clock=clock) as relay:
            session = await relay.session(session.id)
            with pytest.raises(Problem) as caught:
                await session.dispatch("You write.", "Write it.")
            assert (caught.value.key, caught.value.row.crp) == ("provider_missing", 1020)
            assert caught.value.details["providers"] == ["openai:gpt-x"]
            assert (await session.session_status()).model == ""
            await session.register_provider(**named, base_url=address)
            assert (await session.dispatch("You write.", "Write it.")).output == DOCUMENT
    assert own.calls == []


async def test_c18_an_answer_is_resumed_by_the_model_that_began_it(ledger: Ledger, clock: ManualClock) -> None:
    cut = Failing("provider_error", PIECES[0])
    session, _ = await session_with(ledger, clock, cut)
    with pytest.raises(Problem):
        await session.dispatch("", "Write it.")
    fresh = await make_relay(ledger, clock, Pieces(["Another voice."])).session(session.id)
    with pytest.raises(Problem) as caught:
        await fresh.resume()
    assert caught.value.key == "provider_missing"
    assert caught.value.details["partial_output"] == PIECES[0]
    fresh.use_model(Pieces(["".join(PIECES[1:])], name=cut.name))
    assert (await fresh.resume()).output == DOCUMENT


async def test_an_empty_continuation_is_not_taken_for_a_natural_end(ledger: Ledger, clock: ManualClock) -> None:
    """The text is what the model wrote, and the report says that nothing came where more was asked for."""
    session, _ = await session_with(ledger, clock, Pieces([PIECES[0], ""]))
    done = await session.dispatch("", "Write it.")
    assert done.output == PIECES[0]
    assert done.report.telemetry is not None
    assert done.report.telemetry.stopped_by == "no_new_text"
    session.use_model(Pieces([PIECES[0], PIECES[0][-ECHO:]]), priority=-1)
    done = await session.dispatch("", "Write it.")
    assert done.output == PIECES[0]
    assert done.report.telemetry is not None
    assert done.report.telemetry.stopped_by == "complete", "it repeated its last words, and stopped"

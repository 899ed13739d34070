"""Every fault at every event of every window, by both protocols: the text is exact or the dispatch fails (C15, C18).

The table is a product. A provider writes a document in three windows, each with an echo of the one before it. One fault
happens before an answer (refused, 400 … 529, an empty body) or at one event inside it (cut, ended, an error, nonsense,
silence, another model), once or again and again, in a dispatch or in a stream, alone or with another provider behind it
that would write another document.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

from forestay import models
from forestay.kernel import Ledger, ManualClock, Problem
from forestay.models import OpenModel, Retries
from forestay.relay import QualityReport, Session
from tests.models.wire import Reply, Server, events, serving

from .conftest import Pieces, make_relay

PIECES = (
    "The harbour of Vik was dredged in 1931, and the mole was raised. ",
    "The lighthouse keeper wrote it down, with the names of the men. ",
    "Nobody has found the book since.",
)
DOCUMENT = "".join(PIECES)
OTHER = "Zebras zigzag; zealous zoologists zoom."
ECHO = 24  # characters that each window repeats of the one before it
WIRES = ("openai", "anthropic")
BEFORE = ("400", "401", "403", "404", "408", "429", "500", "503", "529", "nothing", "a page", "refused")
INSIDE = ("cut", "ended", "error", "nonsense", "silence", "another model")
FIRST_TEXT = {"openai": 1, "anthropic": 3}  # the event that holds the first text


class Case(NamedTuple):
    """One cell of the table; `at` is the event that the fault takes the place of, where it happens inside an answer."""

    wire: str
    fault: str
    window: int
    at: int
    lasting: bool
    streamed: bool
    followed: bool  # by another provider


def said(wire: str, window: int, size: int) -> Reply:
    """The answer of one window in deltas of `size` characters."""
    text = PIECES[window] if window == 0 else PIECES[window - 1][-ECHO:] + PIECES[window]
    end = {"openai": ("length", "stop"), "anthropic": ("max_tokens", "end_turn")}[wire][window == len(PIECES) - 1]
    return Reply(tuple(text[at : at + size] for at in range(0, len(text), size)), finish=end)


def faulty(case: Case, size: int) -> Reply:
    """The answer that fails."""
    whole, error = said(case.wire, case.window, size), {"message": "No.", "type": "overloaded_error"}
    if case.fault.isdigit():
        return Reply(status=int(case.fault), headers=(("retry-after", "0"),), error={"type": "error", "error": error})
    if case.fault == "nothing":
        return Reply(raw=b"")
    if case.fault == "a page":
        return Reply(raw=b"<!DOCTYPE html><title>Welcome</title>")
    more = {
        "cut": {"cut_after": case.at},
        "ended": {"end_after": case.at},
        "error": {
            "end_after": case.at,
            "then": _event(case.wire, "error", _ERROR),
        },
        "nonsense": {"end_after": case.at, "then": _event(case.wire, "content_block_delta", b"{nonsense")},
        "silence": {"pause_before": (case.at, 1e6)},
        "another model": {
            "end_after": case.at,
            "then": b"".join(events(Reply((OTHER,), model="another", finish=whole.finish), case.wire)),
        },
    }[case.fault]
    return Reply(whole.texts, finish=whole.finish, **more)  # type: ignore[arg-type]


_ERROR = b'{"type": "error", "error": {"type": "overloaded_error", "message": "No."}}'


def _event(wire: str, name: str, data: bytes) -> bytes:
    head = b"" if wire == "openai" else b"event: " + name.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"


def table(size: int) -> Iterator[Case]:
    """All of it, with deltas of `size` characters."""
    whether = (False, True)
    for wire, window in itertools.product(WIRES, range(len(PIECES))):
        last = len(events(said(wire, window, size), wire)) - (
            1 if wire == "openai" else 0
        )  # `[DONE]` says nothing more
        # Another model is seen where one has spoken: behind the first text, and in every window but the first.
        seen = FIRST_TEXT[wire] + 1 if window == 0 else 0
        places = [(fault, 0) for fault in BEFORE] + [
            (fault, at)
            for fault in INSIDE
            for at in range(seen if fault == "another model" else 0, _least_end(wire, fault, last))
        ]
        for (fault, at), lasting, streamed, followed in itertools.product(places, whether, whether, whether):
            yield Case(wire, fault, window, at, lasting, streamed, followed)


def _least_end(wire: str, fault: str, last: int) -> int:
    """Events that are needed for a whole answer: OpenAI's usage comes behind the reason for the end."""
    return last - 1 if wire == "openai" and fault == "ended" else last


class Told(NamedTuple):
    """What a caller got."""

    text: str
    report: QualityReport | None
    problem: Problem | None


async def ask(session: Session, server: Server, case: Case) -> Told:
    """The dispatch as a whole or as a stream; a provider that refuses stops listening when its window comes."""
    shown, windows, report = "", 0, None
    if case.fault == "refused" and case.window == 0:
        await server.stop_listening()
    try:
        async for event in session.events("You write.", "Write it."):
            shown += event.data if event.event_type == "token" else ""
            windows += event.event_type == "window_complete"
            report = event.data if event.event_type == "done" else None
            if case.fault == "refused" and windows == case.window:
                await server.stop_listening()
    except Problem as problem:
        assert problem.details["partial_output"] == shown
        return Told(shown, None, problem)
    return Told(shown, report, None)


async def dispatched(session: Session, server: Server, case: Case) -> Told:
    if case.streamed or case.fault == "refused":  # only events say when a window is complete
        return await ask(session, server, case)
    try:
        reply = await session.dispatch("You write.", "Write it.")
    except Problem as problem:
        return Told(problem.details["partial_output"], None, problem)
    return Told(reply.output, reply.report, None)


async def check(case: Case, size: int, session: Session, server: Server, model: OpenModel, other: Pieces) -> None:
    replies = [said(case.wire, window, size) for window in range(len(PIECES))]
    bad = [] if case.fault == "refused" else [faulty(case, size)] * (8 if case.lasting else 1)
    server.replies[:] = [*replies[: case.window], *bad, *([] if case.lasting else replies[case.window :])]
    told = await dispatched(session, server, case)
    if told.problem is None:
        assert told.report is not None and told.report.telemetry is not None
        spoke = told.report.telemetry.model
        assert told.text == (OTHER if spoke == "other" else DOCUMENT), case
        assert spoke == model.name or (spoke == "other" and case.followed and case.window == 0), case
    else:
        assert told.problem.row.crp in (1020, 1021), case
        assert DOCUMENT.startswith(told.text), case
        assert len(told.text) >= len("".join(PIECES[: case.window])), case
        assert other.calls == [] or not told.text, case
    assert (told.problem is None) == _may_succeed(case, size), case


async def check_all(cases: list[Case], size: int, ledger: Ledger, clock: ManualClock) -> None:
    """All of `cases` with one provider, whose client costs more than all else; one that refuses is a new one each."""
    own = Pieces(["The relay's own model."])
    relay = make_relay(ledger, clock, own)
    for _, group in itertools.groupby(cases, lambda case: case if case.fault == "refused" else None):
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(serving())
            model = await opened(stack, server, cases[0].wire, clock)
            for case in group:
                session, other = await relay.init("one"), Pieces([OTHER], name="other")
                session.use_model(model, 0)
                if case.followed:
                    session.use_model(other, 1)
                await check(case, size, session, server, model, other)
                await session.close()
    assert own.calls == []


def _may_succeed(case: Case, size: int) -> bool:
    """Whether the caller gets an answer: nothing of the window was shown, and who is asked again, or next, answers."""
    if _shows(case, size):
        return False
    if case.window == 0 and case.followed:
        return True
    final = _FINAL if case.at > FIRST_TEXT[case.wire] else (*_FINAL, "another model")
    return not case.lasting and case.fault not in final


_FINAL = ("400", "401", "403", "404", "refused")  # nobody asks again: they would say the same


def _shows(case: Case, size: int) -> bool:
    """Whether the fault comes behind text that the caller has seen: past the echo, the seam holds nothing back."""
    texts = case.at - FIRST_TEXT[case.wire]
    return case.fault in INSIDE and texts > 0 and (case.window == 0 or texts * size > ECHO)


async def opened(stack: AsyncExitStack, server: Server, wire: str, clock: ManualClock) -> OpenModel:
    address = server.openai if wire == "openai" else server.anthropic
    model = models.open(
        f"{wire}:m@{address}",
        clock=clock,
        api_key="k",
        context_window=8_192,
        retries=Retries(attempts=2, first_wait=0, jitter=0),
    )
    stack.push_async_callback(model.aclose)
    return model


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(threshold=0.1)


@pytest.mark.parametrize("wire", WIRES)
async def test_c18_the_text_is_exact_or_the_dispatch_fails(wire: str, ledger: Ledger, clock: ManualClock) -> None:
    """A few cells for each fault, each time with another choice of windows, events and callers."""
    whole = [case for case in table(24) if case.wire == wire]
    some: list[Case] = []
    for number, fault in enumerate((*BEFORE, *INSIDE)):
        row = [case for case in whole if case.fault == fault]
        some += row[number % 8 :: len(row) // 3 + 1]
    await check_all(some, 24, ledger, clock)


@pytest.mark.sweep
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("fault", [*BEFORE, *INSIDE])
async def test_sweep_the_whole_table(wire: str, fault: str, ledger: Ledger, clock: ManualClock) -> None:
    await check_all([case for case in table(9) if (case.wire, case.fault) == (wire, fault)], 9, ledger, clock)

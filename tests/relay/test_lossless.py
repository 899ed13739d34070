"""Documents longer than any window come back as they are (issue: lossless continuation; C1, C2)."""

from __future__ import annotations

import ast
import json
import random

import pytest

from forestay.kernel import Ledger, ManualClock, Problem
from forestay.models import paired
from forestay.relay.continuation import join

from .conftest import Failing, Pieces, make_relay
from .documents import KINDS, SHAPES, windows

DOCUMENTS = 23  # for each of nine kinds: 207 in all


def _ambiguous(pieces: list[str], echoes: list[int]) -> bool:
    """Whether some seam repeats itself, so that the longest echo is not the one the model made."""
    text = pieces[0]
    for piece, echo in zip(pieces[1:], echoes[1:], strict=True):
        joined, found = join(text, piece)
        if found.length != echo:
            return True
        text = joined
    return False


@pytest.mark.parametrize("kind", KINDS)
async def test_every_document_comes_back_whole(kind: str, ledger: Ledger, clock: ManualClock) -> None:
    for number in range(DOCUMENTS):
        rng = random.Random(f"{kind} {number}")
        document = KINDS[kind](rng)
        pieces, _ = windows(document, rng, rng.randint(2, 40), echo=bool(number % 2))
        model = Pieces(pieces, delta=lambda _, rng=rng: rng.randint(1, 40))  # type: ignore[misc]
        session = await make_relay(ledger, clock, model).init(f"{kind}-{number}", config={"max_output_tokens": 8192})
        events = [event async for event in session.stream("You write documents.", "Write it.")]
        report = events[-1].data
        assert events[-1].event_type == "done", report
        streamed = "".join(event.data for event in events if event.event_type == "token")
        assert streamed == document, f"{kind} {number}: the stream differs"
        assert report.output == document
        assert len(model.calls) == len(pieces) == report.telemetry.windows
        assert report.continuation_windows == len(pieces) - 1
        assert not any(seam.ambiguous and seam.removed_characters < 20 for seam in report.telemetry.seams)


@pytest.mark.parametrize("shape", SHAPES)
async def test_every_shape_comes_back_whole_wherever_it_is_cut(shape: str, ledger: Ledger, clock: ManualClock) -> None:
    """Cuts and echoes fall anywhere: between CR and LF, inside a grapheme, behind a backslash, inside a fence."""
    for number in range(8):
        rng = random.Random(f"{shape} {number}")
        document = paired(SHAPES[shape](rng))  # half characters stand alone, as in text that a model can send
        pieces, echoes = windows(document, rng, rng.randint(2, 40), echo=bool(number % 2))
        assert not _ambiguous(pieces, echoes), f"{shape} {number}: the test itself cannot know what is right"
        model = Pieces(pieces, delta=lambda _, rng=rng: rng.randint(1, 40))  # type: ignore[misc]
        session = await make_relay(ledger, clock, model).init(f"{shape}-{number}", config={"max_output_tokens": 8192})
        events = [event async for event in session.stream("You write documents.", "Write it.")]
        assert events[-1].event_type == "done", events[-1].data
        streamed = "".join(event.data for event in events if event.event_type == "token")
        assert streamed == document, f"{shape} {number}"
        assert events[-1].data.output == streamed
        assert len(model.calls) == len(pieces)


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_shape_that_breaks_off_is_gone_on_with(shape: str, ledger: Ledger, clock: ManualClock) -> None:
    """C15: the stream is cut behind what was shown; what was shown stays, and a resume writes the rest."""
    rng = random.Random(f"cut {shape}")
    document = paired(SHAPES[shape](rng))  # half characters stand alone, as in text that a model can send
    at = rng.randint(100, len(document) - 100)
    session = await make_relay(ledger, clock, Failing("provider_error", document[:at])).init(shape)
    with pytest.raises(Problem) as raised:
        await session.dispatch("", "Write it.")
    assert raised.value.row.crp == 1020
    assert raised.value.details["partial_output"] == document[:at]
    session.use_model(Pieces([document[at - 50 :]], name="failing"))
    reply = await session.resume()
    assert reply.output == document
    assert reply.report.telemetry.resumed


@pytest.mark.parametrize("kind", KINDS)
async def test_dispatch_equals_the_stream(kind: str, ledger: Ledger, clock: ManualClock) -> None:
    for number in range(3):
        rng = random.Random(f"{kind} {number}")
        document = KINDS[kind](rng)
        pieces, _ = windows(document, rng, rng.randint(2, 12), echo=bool(number % 2))
        session = await make_relay(ledger, clock, Pieces(pieces)).init(f"{kind}-{number}")
        reply = await session.dispatch("You write documents.", "Write it.")
        assert reply.output == reply.report.output == document
        if kind == "json":
            json.loads(reply.output)
        if kind == "python":
            ast.parse(reply.output)


async def test_repetitive_text_the_longest_echo_goes_and_the_report_says_so(ledger: Ledger, clock: ManualClock) -> None:
    """A table of equal rows and `aaaa…`: any number of rows may be the echo; C12 takes the most and says so."""
    row = "| buoy | 12 | north |\n"
    for text, period in ((row * 60, len(row)), ("a" * 1200, 1), ("-" * 1300 + "\n", 1)):
        pieces = [text[:500], text[300:]]  # two hundred characters are repeated, if one knew which
        session = await make_relay(ledger, clock, Pieces(pieces)).init(f"r{period}{len(text)}")
        reply = await session.dispatch("", "Repeat.")
        (seam,) = reply.report.telemetry.seams
        assert seam.ambiguous
        assert seam.removed_characters >= 200
        assert (seam.removed_characters - 200) % period == 0
        assert reply.output == text[:500] + pieces[1][seam.removed_characters :]
        assert text.startswith(reply.output[:500])


async def test_an_unrepetitive_echo_is_never_called_ambiguous(ledger: Ledger, clock: ManualClock) -> None:
    rng = random.Random(5)
    document = KINDS["prose"](rng)
    pieces, echoes = windows(document, rng, 12, echo=True)
    session = await make_relay(ledger, clock, Pieces(pieces)).init("plain")
    reply = await session.dispatch("", "Write.")
    assert [seam.removed_characters for seam in reply.report.telemetry.seams] == [echo for echo in echoes if echo]
    assert not any(seam.ambiguous for seam in reply.report.telemetry.seams)


def test_the_documents_hold_few_ambiguous_seams() -> None:
    """What the lossless test covers, counted: how many of its documents have a seam that repeats itself."""
    found = []
    for kind, make in KINDS.items():
        for number in range(DOCUMENTS):
            rng = random.Random(f"{kind} {number}")
            document = make(rng)
            if _ambiguous(*windows(document, rng, rng.randint(2, 40), echo=bool(number % 2))):
                found.append((kind, number))
    assert found == []

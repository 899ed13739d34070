"""Relay sessions read back from the ledger: looking changes nothing (Y1 to Y4)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import ManualClock, Problem, SeededRandomness
from forestay.models import Script, Scripted, Turn
from forestay.relay import Relay, history
from forestay.relay.history import SessionHistories, sessions

SECRET = b"a secret of sixteen bytes and more"


async def relay_in(folder: Path, clock: ManualClock, stack: AsyncExitStack) -> Relay:
    model = Scripted(Script((Turn("The Aurora lies at berth 7."), Turn("Berth 3."))))
    return await stack.enter_async_context(
        Relay.open(folder / "r.db", model=model, secret=SECRET, clock=clock, randomness=SeededRandomness(1))
    )


async def test_y1_looking_writes_nothing_and_y2_a_closed_session_is_still_shown(
    clock: ManualClock, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app")
        await session.ingest("# Ships\n\nThe Aurora lies at berth 7. The Pétrel lies at berth 3.", "notes")
        await session.dispatch("Be brief.", "Where does the Aurora lie?")
        await session.close()
        before = await relay.ledger.position()
        view = await SessionHistories(relay).session(session.id)
        assert view.state == "closed"
        petrel = next(fact for fact, _ in view.found("Pétrel"))
        passage = await view.passage(petrel)
        assert passage.own == "The Pétrel lies at berth 3."
        assert passage.before.endswith("The Aurora lies at berth 7. ")
        assert (await view.preview("", "Where is the Pétrel?")).facts_included > 0
        assert [line.state for line in await sessions(relay)] == ["closed"]
        assert await relay.ledger.position() == before


async def test_y3_what_a_model_was_shown_hashes_to_the_record(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app")
        await session.ingest("The Aurora lies at berth 7.", "notes")
        await session.dispatch("Be brief.", "Where does the Aurora lie?")
        await session.ingest("The Aurora lies at berth 8.", "later")  # the state has moved on since
        await session.dispatch("Be brief.", "And now?")
        view = await SessionHistories(relay).session(session.id)
        windows = [item for dispatch in view.dispatches for item in dispatch.windows]
        assert [(await view.shown(item.id)).proven for item in windows] == [True, True]
        first = await view.shown(windows[0].id)
        assert "berth 8" not in first.envelope
        assert first.output == "The Aurora lies at berth 7."
        view.dispatches[0].task = "Another task"
        assert (await view.shown(windows[0].id)).proven is False


async def test_the_list_knows_tokens_and_budgets(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app", role="ADMIN", config={"max_total_output_tokens": 500})
        await session.dispatch("", "Where?")
        (line,) = await sessions(relay)
        assert (line.windows, line.input_tokens, line.output_tokens) == (
            1,
            session.warm.input_tokens,
            session.warm.output_tokens,
        )
        assert (line.max_windows, line.max_output, line.state) == (None, 500, "open")
        await session.configure(max_windows=9)
        assert (await sessions(relay))[0].max_windows == 9
        await session.reset_session()
        assert (await sessions(relay))[0].input_tokens == 0


async def test_what_is_not_there_is_not_found(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        with pytest.raises(Problem, match="no such session"):
            await SessionHistories(relay).session("../run")
        view = await SessionHistories(relay).session((await relay.init("app")).id)
        for number in (0, -1):
            with pytest.raises(Problem, match="There is no such"):
                view.fact(number)
        with pytest.raises(Problem, match="There is no such"):
            await view.shown("none")


async def test_y4_what_was_folded_is_not_read_again_and_a_page_is_read_at_a_time(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app")
        for number in range(60):
            await session.ingest(f"Ship {number} lies at berth {number}.", f"note-{number}")
        reads: list[tuple[int, int | None]] = []
        read = relay.ledger.read

        async def counted(stream: str, start: int = 0, limit: int | None = None, **more: Any) -> Any:
            reads.append((start, limit))
            return await read(stream, start, limit, **more)

        monkeypatch.setattr(relay.ledger, "read", counted)
        looks = SessionHistories(relay)
        view = await looks.session(session.id)
        assert len(view.warm.facts) == 60
        assert max(limit or 10**9 for _, limit in reads) <= 50
        await session.ingest("The Aurora lies at berth 7.", "late")
        head = (await relay.ledger.head(f"relay/{session.id}")).seq
        reads.clear()
        again = await looks.session(session.id)
        assert again is view
        assert again.warm.facts[-1].text == "The Aurora lies at berth 7."
        assert min(start for start, _ in reads) > head - 5
        reads.clear()
        assert (await again.passage(again.fact(30))).own == "Ship 30 lies at berth 30."
        assert [limit for _, limit in reads] == [1]
        monkeypatch.setattr(history, "MOST_RECORDS", head)
        with pytest.raises(Problem, match="too large"):
            await looks.session(session.id)


async def test_a_fact_after_a_reset_stands_in_its_own_source(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app", role="ADMIN")
        await session.ingest("The Aurora lies at berth 7.", "before")
        await session.reset_session()
        await session.ingest("The Petrel lies at berth 3.", "after")
        view = await SessionHistories(relay).session(session.id)
        assert (await view.passage(view.fact(0))).own == "The Petrel lies at berth 3."

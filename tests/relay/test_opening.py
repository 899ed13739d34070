"""Sessions are opened one at a time for each app, and apps do not wait for each other."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

from forestay.kernel import Problem
from forestay.relay import Relay, Session
from forestay.relay.relay import MAX_SESSIONS_PER_APP


async def test_a_crowd_of_one_app_gets_as_many_sessions_as_are_allowed(tmp_path: Path) -> None:
    async with Relay.open(tmp_path / "r.db") as relay:
        found = await asyncio.gather(*(relay.init("crowd") for _ in range(9)), return_exceptions=True)
        assert sum(isinstance(item, Session) for item in found) == MAX_SESSIONS_PER_APP
        assert {item.key for item in found if isinstance(item, Problem)} == {"session_limit"}


async def test_an_app_does_not_wait_for_another_one(tmp_path: Path) -> None:
    async with Relay.open(tmp_path / "r.db") as relay:
        async with relay._alone("app slow"):
            opened = await asyncio.wait_for(relay.init("quick"), 1)
            assert await asyncio.wait_for(relay.session(opened.id), 1) is opened
            waiting = asyncio.create_task(relay.init("slow"))
            await asyncio.sleep(1)
            assert not waiting.done()
        await waiting
        del waiting
        gc.collect()
        assert not list(relay._opening), "a lock lives as long as somebody needs it"


async def test_a_session_that_many_ask_for_is_folded_once(tmp_path: Path) -> None:
    async with Relay.open(tmp_path / "r.db") as relay:
        session_id = (await relay.init("one")).id
    async with Relay.open(tmp_path / "r.db") as again:
        found = await asyncio.gather(*(again.session(session_id) for _ in range(5)))
        assert len({id(item) for item in found}) == 1
        resumed = [
            record for record in await again.ledger.read(f"relay/{session_id}") if record.type.endswith("resume")
        ]
        assert len(resumed) == 1

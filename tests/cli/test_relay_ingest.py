"""A session follows files: what changed replaces what was said, what is gone is taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forestay.cli.relay_ingest import Intake, changes, state_of, watched
from forestay.relay import Relay, Session


def test_changes_are_new_files_other_files_and_files_that_are_gone() -> None:
    one, two, three = Path("one"), Path("two"), Path("three")
    before = {one: (1, 5), two: (1, 5)}
    assert changes(before, before) == ([], [])
    assert changes(before, {one: (1, 6), three: (1, 1)}) == ([one, three], [two])
    assert changes(before, {one: (2, 5), two: (1, 5)}) == ([one], [])


async def _standing(session: Session) -> list[str]:
    return sorted(fact.text for fact, _ in await session.facts())


async def test_a_watched_folder_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder, kept, gone = Path("docs"), Path("docs/kept.md"), Path("docs/gone.md")

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")

    await asyncio.to_thread(write, kept, "The crane is red.\n\nThe bell is old.\n")
    await asyncio.to_thread(write, gone, "The ferry is late.\n")
    async with Relay.open(tmp_path / "ledger.db") as relay:
        session = await relay.init("watch")
        await session.ingest("The pump is dry.", "docs/before.md")
        await session.ingest("Somebody said so.", "hearsay")
        intake = Intake(session, None, ())
        before = await asyncio.to_thread(state_of, [folder])
        await intake.take([folder])
        watching = asyncio.create_task(watched(intake, [folder], before))
        await asyncio.sleep(2)
        assert await _standing(session) == [
            "Somebody said so.",
            "The bell is old.",
            "The crane is red.",
            "The ferry is late.",
        ]
        await asyncio.to_thread(write, kept, "The crane is red, and tall.\n\nThe bell is old.\n")
        await asyncio.to_thread(gone.unlink)
        await asyncio.to_thread(write, folder / "new.md", "The winch is new.\n")
        await asyncio.sleep(3)
        assert await _standing(session) == [
            "Somebody said so.",
            "The bell is old.",
            "The crane is red, and tall.",
            "The winch is new.",
        ]
        told = intake.told()
        assert told["gone"] == ["docs/before.md", "docs/gone.md"]
        assert told["taken_back"] == 3
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

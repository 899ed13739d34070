"""Components of extensions that have the keyboard: drawn again when they ask, at the width of the place they are in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.connectors.ui import ScriptedUi
from forestay.extensions.extensions import Extensions
from forestay.kernel import Ledger

COMPONENT = Path(__file__).with_name("component.ts")
DOWN = "\x1b[B"


class Watching(ScriptedUi):
    """A person whose place has `wide` columns, and who presses a key when the tide has turned."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(answers)
        self.wide = 30
        self.leaves_when_it_turns = True
        self.drawn: list[list[str]] = []
        self.turned = asyncio.Event()

    def columns(self, extension: str) -> int:
        return self.wide

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        if operation in ("custom", "redraw"):
            self.drawn.append(list(params["lines"]))
        if self.leaves_when_it_turns and "high" in str(params.get("lines")):
            self.turned.set()
        if operation == "custom":
            await self.turned.wait()
        if operation == "getStatuses":
            return {"tide": "high"}
        return await super().request(extension, operation, params)


@asynccontextmanager
async def loaded(folder: Path, ui: Watching) -> AsyncIterator[Extensions]:
    async with (
        Ledger.open(folder / "l.db") as ledger,
        Extensions(ledger, root=folder, mode="permissive", ui=ui) as suite,
    ):
        await suite.load(COMPONENT)
        yield suite


@pytest.mark.api("ctx.ui.custom")
async def test_a_component_is_drawn_again_at_the_real_width_and_has_the_keys(tmp_path: Path) -> None:
    ui = Watching({"keys": [DOWN, DOWN]}, {"keys": ["\r"]}, {"keys": ["n"]}, {"keys": [DOWN, "\r", "y"]})
    async with loaded(tmp_path, ui) as suite:
        assert await suite.run_command("pick") == "ship 3"
    assert ui.drawn[0] == ["30/30 tide low", "ship 0", "-" * 30], "without the colours that nobody shows"
    assert ui.drawn[1] == ["30/30 tide high", "ship 0", "-" * 30], "it asked to be drawn again"
    assert [drawn[1:] for drawn in ui.drawn[2:]] == [
        ["ship 2", "-" * 30],
        ["ship 2", "-" * 30, "Sure?"],
        ["ship 2", "-" * 30],
    ]
    assert all(call["component"] == 1 for call in ui.calls if call["op"] == "custom")


async def test_a_component_hears_of_another_width(tmp_path: Path) -> None:
    ui = Watching({"keys": ["\x1b"]})
    ui.leaves_when_it_turns = False
    async with loaded(tmp_path, ui) as suite:
        picking = asyncio.ensure_future(suite.run_command("pick"))
        async with asyncio.timeout(60):
            while not ui.drawn:
                await asyncio.sleep(0)
            ui.wide = 44
            suite.attend()
            while not ui.drawn[-1][0].startswith("44/44"):
                await asyncio.sleep(0)
        ui.turned.set()
        assert await picking is None


@pytest.mark.api("ctx.ui.setFooter")
async def test_a_footer_shows_what_extensions_say_of_themselves(tmp_path: Path) -> None:
    ui = Watching()
    async with loaded(tmp_path, ui) as suite:
        await suite.run_command("footer")
        await suite.settled()
        ui.wide = 50
        suite.attend()
        async with asyncio.timeout(60):
            while ui.calls[-1].get("lines") != ['50 [["tide","high"]]']:
                await asyncio.sleep(0)
    assert ui.calls[-1]["op"] == "setFooter"

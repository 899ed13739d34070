"""What pi 1.5.0 added to its interface: virtual models, servers that come and go, the end of an agent's work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.extensions import Extensions
from forestay.extensions.settings import Settings
from forestay.kernel import Ledger

PROBE = Path(__file__).with_name("newer_members.ts")
NOTES = """export default (pi) => {
  pi.registerMcpServer("notes", { command: "notes-server", env: { NOTES_KEY: "secret" }, args: ["--all"] });
}"""


class Sea:
    """Two models, each of which says which one it is."""

    async def models(self) -> list[Mapping[str, Any]]:
        return [{"provider": "sea", "id": name, "api": "forestay"} for name in ("ebb", "flood")]

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        yield {"message": {"content": [{"type": "text", "text": "?"}], "model": request["model"]["id"]}}


@asynccontextmanager
async def probing(folder: Path) -> AsyncIterator[Extensions]:
    (folder / "notes.ts").write_text(NOTES)
    async with (
        Ledger.open(folder / "l.db") as ledger,
        Extensions(ledger, root=folder, mode="permissive", settings=Settings(model=Sea())) as suite,
    ):
        await suite.load(PROBE)
        await suite.load(folder / "notes.ts")
        yield suite


@pytest.mark.api("pi.registerVirtualModel|pi.unregisterVirtualModel")
async def test_a_virtual_model_is_answered_by_the_model_that_its_extension_picks(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        assert await suite.run_command("models") == ["sea/ebb", "sea/flood", "sea/auto"]
        assert await suite.run_command("choose") == [True, "auto"]
        assert await suite.run_command("complete", "one") == ["ebb", "stop", ""]
        assert await suite.run_command("complete", "one two") == ["flood", "stop", ""]
        assert await suite.run_command("drop") is None
        assert await suite.run_command("models") == ["sea/ebb", "sea/flood"]


@pytest.mark.api("pi.registerMcpServer|pi.unregisterMcpServer|pi.getMcpServers|event.mcp_servers_change")
async def test_servers_come_and_go_and_nobody_hears_anothers_secrets(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        seen = {item["name"]: item["config"] for item in await suite.run_command("servers")}
        assert seen == {
            "charts": {"command": "charts-server", "env": {"CHARTS_KEY": "k"}},
            "notes": {"command": "notes-server", "args": ["--all"], "env": {"NOTES_KEY": ""}},
        }
        assert await suite.run_command("told") == [], "what is registered while it loads is no change"
        await suite.run_command("rename")
        await suite.settled()
        assert await suite.run_command("told") == [["notes"], ["tides", "notes"]]
        assert [list(item.extension.registrations.servers) for item in suite.members] == [["tides"], ["notes"]]


@pytest.mark.api("event.agent_before_settle")
async def test_a_handler_leaves_entries_and_asks_for_one_more_turn_before_an_agent_settles(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        tree = suite.session.tree
        tree.append("message", message={"role": "user", "content": "do it", "timestamp": 0})
        await suite.emit({"type": "agent_start"})
        await suite.emit({"type": "agent_end", "messages": []})
        assert [wish.text for wish in tree.wishes] == [None], "it asked to go on"
        assert [entry["data"] for entry in tree.entries if entry["type"] == "custom"] == [{"asked": 1}]
        assert await suite.run_command("told") == [["completed", 1]]
        await suite.session.settle([{"type": "custom", "customType": "log", "data": {"asked": 1}}], True)
        assert len(tree.wishes) == 1, "what ends again after a crash leaves the same"
        assert len([entry for entry in tree.entries if entry["type"] == "custom"]) == 1

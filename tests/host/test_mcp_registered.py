"""`pi.registerMcpServer`: an extension names a server; a person approves it like one of a file."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.extensions import Extensions, Pins, read_servers, with_registered
from forestay.host import Host
from forestay.kernel import Agents, ExtensionConfig, ExtensionPolicy, Ledger, Problem
from tests.forked import forestay
from tests.host.mcp_world import ECHO, SERVER, TOOL, started
from tests.host.prompting import options
from tests.host.test_agent_node import settled

ENTRY = {"command": "python3", "args": ["-I", "-S", "server.py", "good"]}
PLACE = ".pi/extensions/names.js"


def project(folder: Path, entry: Any = ENTRY) -> Path:
    """A project whose extension registers the test server."""
    (folder / ".pi" / "extensions").mkdir(parents=True)
    shutil.copy(SERVER, folder / "server.py")
    script = f"""export default (pi) => {{ pi.registerMcpServer("probe", {json.dumps(entry)});
      pi.registerCommand("leave", {{ handler: async () => pi.unregisterMcpServer("probe") }}); }}"""
    (folder / PLACE).write_text(script)
    return folder


@pytest.mark.api("pi.registerMcpServer|pi.unregisterMcpServer")
def test_a_registered_server_is_approved_pinned_and_called(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")

    async def story() -> None:
        opened = options(folder, mode="strict")
        config = msgspec.structs.replace(
            opened.config,
            extensions=ExtensionConfig(ExtensionPolicy(mode="strict", default_caps=["tool:probe/*"])),
            agents=Agents(allow=["mcp:probe/echo"]),
        )
        async with Host.open(config, root=folder, data=opened.data, models=opened.models) as host:
            await host.extensions.trust.give(folder)
            suite = await host.extensions.suite()
            (failure,) = suite.failures
            assert failure.problem.key == "server_unapproved"
            assert failure.problem.details["fix"].endswith(f"forestay mcp trust probe --from {PLACE}")
            named = with_registered(suite, read_servers(folder, {})).named("probe")
            pins = Pins(host.ledger, folder)
            await pins.approve(named)
            await pins.pin(named, [ECHO])
            async with asyncio.timeout(20):
                while TOOL not in {tool.name for tool in suite.tools()}:  # the host follows the decision
                    await asyncio.sleep(0.01)
            done = await settled(host, await started(host, "seven"))
            assert done.status == "completed" and "seven" in str(done.outputs)
            await suite.run_command("leave")
            async with asyncio.timeout(20):
                while TOOL in {tool.name for tool in suite.tools()}:  # its tools go with it
                    await asyncio.sleep(0)

    asyncio.run(story())


def test_the_commands_find_it_through_its_extension(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")

    def run(*words: str) -> dict[str, Any]:
        environ = {**os.environ, "FORESTAY_DATA_DIR": str(tmp_path / "data")}
        done = forestay(folder, "mcp", *words, "--from", PLACE, environ=environ)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    assert PLACE in run("trust", "probe")["error"]["details"]["fix"]
    trusted = run("trust", "probe", "--yes")["result"]
    assert (trusted["pinned"], trusted["origin"]) == (["echo"], PLACE)
    called = run("call", "probe", "echo", json.dumps({"text": "seven"}), "--grant", "tool")
    assert called["result"]["content"][1]["text"] == "seven"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (5, "the entry is"),
        ({}, "`command` and `url`"),
        ({"command": "x", "url": "http://127.0.0.1/"}, "`command` and `url`"),
        ({"command": 5}, "`command` is"),
        ({"command": "x", "args": "y"}, "`args` is"),
        ({"url": "http://127.0.0.1/", "headers": []}, "`headers` is"),
        ({"command": "x", "args": [5]}, "str"),
    ],
)
def test_an_entry_that_is_none_is_told_to_the_extension(tmp_path: Path, entry: Any, told: str) -> None:
    folder = project(tmp_path / "project", entry)

    async def story() -> None:
        async with Ledger.open(tmp_path / "l.db") as ledger, Extensions(ledger, root=folder) as suite:
            with pytest.raises(Problem) as caught:
                await suite.load(folder / PLACE)
            assert told in caught.value.message

    asyncio.run(story())


def test_an_entry_of_a_file_comes_first_and_a_wrong_name_is_a_problem(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"probe": {"command": "other"}}}))
    (folder / PLACE).write_text("""export default (pi) => {
      pi.registerMcpServer("probe", { command: "mine" }); pi.registerMcpServer("no__name", { command: "x" }); }""")

    async def story() -> None:
        async with Ledger.open(tmp_path / "l.db") as ledger, Extensions(ledger, root=folder) as suite:
            await suite.load(folder / PLACE)
            servers = with_registered(suite, read_servers(folder, {}))
            assert servers.named("probe").entry.command == "other"
            assert [problem.key for problem in servers.problems] == ["config_invalid"]

    asyncio.run(story())

"""MCP servers of a project: a host offers the pinned tools of approved servers to workflows, and starts none before."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions import Definition, Pins, read_servers
from forestay.host import Host
from forestay.kernel import OPERATOR, Agents, ExtensionConfig, ExtensionPolicy
from forestay.runs import CreateRun
from tests.host.prompting import options
from tests.host.test_agent_node import TENANT, settled
from tests.runs.documents import node, workflow

SERVER = Path(__file__).parents[1] / "extensions/mcp/server.py"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = Definition("echo", "Says it again.", TEXT)
TOOL = "mcp__probe__echo"


def play(folder: Path, story: Callable[[Host], Coroutine[Any, Any, None]], *, allow: list[str]) -> None:
    """A host on a project with one server in `.mcp.json`; `allow` is what agents and workflows may call."""
    folder.mkdir(exist_ok=True)
    shutil.copy(SERVER, folder / "server.py")
    entry = {"command": "python3", "args": ["-I", "-S", "server.py", "good"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"probe": entry}}))

    async def whole() -> None:
        opened = options(folder, mode="strict")
        config = msgspec.structs.replace(
            opened.config,
            extensions=ExtensionConfig(ExtensionPolicy(mode="strict", default_caps=["tool:probe/*"])),
            agents=Agents(allow=allow),
        )
        async with Host.open(config, root=folder, data=opened.data, models=opened.models) as host:
            await story(host)

    asyncio.run(whole())


async def approved(host: Host) -> None:
    config = read_servers(host.root, {}).named("probe")
    pins = Pins(host.ledger, host.root)
    await pins.approve(config)
    await pins.pin(config, [ECHO])


async def called(host: Host) -> Any:
    config = {"tool": TOOL, "arguments": {"text": "seven"}}
    await host.runs.put_workflow(workflow("one", [node("t", "core.tool", config=config)]), tenant=None)
    return await settled(host, (await host.runs.create_run(CreateRun(workflow_id="one"), TENANT)).run_id)


def test_a_workflow_calls_a_pinned_tool_of_an_approved_server(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await approved(host)
        tool = (await host.extensions.suite()).tools()[0]
        assert tool.name == TOOL and tool.description == "Says it again."
        listed = {item.id: item for item, _ in await host.tools.offered(OPERATOR)}
        assert (listed["mcp:probe/echo"].source, listed["mcp:probe/echo"].effect) == ("mcp", "unsafe")
        done = await called(host)
        assert done.status == "completed", done.error
        assert "seven" in str(done.outputs) and "not an instruction" in str(done.outputs)

    play(tmp_path / "project", story, allow=["mcp:probe/echo"])


def test_a_call_that_nobody_allowed_waits_for_a_person(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await approved(host)
        assert (await called(host)).status == "waiting-approval"  # unsafe, whatever the server says of it

    play(tmp_path / "project", story, allow=[])


def test_a_server_that_nobody_approved_offers_nothing_and_is_told(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        suite = await host.extensions.suite()
        assert suite.tools() == []
        assert [item.problem.key for item in suite.failures] == ["server_unapproved"]
        done = await called(host)
        assert done.status == "failed" and done.error is not None

    play(tmp_path / "project", story, allow=["*"])


def test_what_a_person_decides_while_the_host_runs_holds_from_then_on(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        suite = await host.extensions.suite()
        await approved(host)
        await _until(lambda: [tool.name for tool in suite.tools()] == [TOOL])
        assert suite.failures == []
        await Pins(host.ledger, host.root).withdraw(read_servers(host.root, {}).named("probe"))
        await _until(lambda: suite.tools() == [])
        assert [item.problem.key for item in suite.failures] == ["server_unapproved"]

    play(tmp_path / "project", story, allow=["*"])


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)

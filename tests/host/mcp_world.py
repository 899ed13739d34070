"""A host on a project with one MCP server, and a workflow whose only node calls its tool.

As a program: `python -m tests.host.mcp_world FOLDER MODE WHEN` starts the run and dies by SIGKILL, `waiting` at a
question of the server or `calling` while its tool works.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions import Definition, Pins, read_servers
from forestay.host import Host
from forestay.kernel import Agents, ExtensionConfig, ExtensionPolicy, McpServer
from forestay.runs import CreateRun, RunSnapshot
from tests.host.prompting import options
from tests.host.test_agent_node import TENANT, settled
from tests.runs.documents import node, workflow

SERVER = Path(__file__).parents[1] / "extensions/mcp/server.py"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = Definition("echo", "Says it again.", TEXT)
TOOL = "mcp__probe__echo"


@asynccontextmanager
async def host_with(
    folder: Path,
    mode: str,
    *,
    caps: Iterable[str] = (),
    read_only: bool = False,
    trusted: bool = True,
    url: str = "",
    echo: Definition = ECHO,
) -> AsyncIterator[Host]:
    """The host; its server is approved and `echo` of it pinned unless `trusted` is False. With `url` it is there."""
    folder.mkdir(exist_ok=True)
    shutil.copy(SERVER, folder / "server.py")
    arguments = ["-I", "-S", "server.py", mode, str(folder / "stage")]
    entry = McpServer("python3", arguments, read_only=["echo"] if read_only else [], start_seconds=20.0)
    if url:
        entry = McpServer(url=url, read_only=entry.read_only)
    opened = options(folder, mode="strict")
    config = msgspec.structs.replace(
        opened.config,
        extensions=ExtensionConfig(ExtensionPolicy(mode="strict", default_caps=["tool:probe/*", *caps])),
        agents=Agents(allow=["mcp:probe/echo"]),
        mcpServers={"probe": entry},
    )
    async with Host.open(config, root=folder, data=opened.data, models=opened.models) as host:
        if trusted:
            named = read_servers(folder, config.mcpServers).named("probe")
            pins = Pins(host.ledger, folder)
            await pins.approve(named)
            if not (await pins.standing(named))["probe"].pinned:
                await pins.pin(named, [echo])
        yield host


async def started(host: Host, text: str) -> str:
    """The run of a workflow that calls the tool with `text`."""
    config = {"tool": TOOL, "arguments": {"text": text}}
    await host.runs.put_workflow(workflow("one", [node("t", "core.tool", config=config)]), tenant=None)
    return (await host.runs.create_run(CreateRun(workflow_id="one"), TENANT)).run_id


async def question(host: Host, run_id: str) -> dict[str, Any]:
    (asked,) = await host.runs.interrupts(run_id, TENANT)
    data: dict[str, Any] = asked.data
    return data


async def answered(host: Host, run_id: str, value: dict[str, Any]) -> RunSnapshot:
    await host.runs.resolve_by_node(run_id, "t", TENANT, {"resumeValue": value}, "me")
    return await settled(host, run_id)


async def die(folder: Path, mode: str, when: str, *, schema: dict[str, Any] = TEXT, **world: Any) -> None:
    world["echo"] = Definition("echo", "Says it again.", schema)
    async with host_with(folder, mode, **world) as host:
        text = (folder / "text").read_text()
        run_id = await started(host, text)
        (folder / "run").write_text(run_id)
        if when == "waiting":
            await settled(host, run_id)
        else:
            while not (folder / "stage").exists():
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(die(Path(sys.argv[1]), sys.argv[2], sys.argv[3], **json.loads(sys.argv[4])))

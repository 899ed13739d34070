"""A process that runs a workflow of an MCP call and a component call, and kills itself with SIGKILL at boundary N.

Usage: python -m tests.host.guest_child FOLDER N (0: never). A boundary stands before and after everything that is
written to the ledger. Each tool leaves a line in a file of FOLDER/project: `stage` is the server's, `ran.log` the
component's.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from forestay.extensions import Definition, Pins, read_servers
from forestay.host import Host
from forestay.kernel import Agents, Config, ExtensionConfig, ExtensionPolicy, McpServer, Models, Problem
from forestay.runs import CreateRun
from tests.extensions.components.guests import component
from tests.host.agent_child import RUN, TENANT, Boundaries, count_commits
from tests.host.mcp_world import ECHO, SERVER, TOOL
from tests.runs.documents import edge, node, workflow

MARKS = {"mcp": "stage", "component": "ran.log"}
WRITES = {"op": "append", "path": "ran.log", "text": "ran\n"}
CALLS = workflow(
    "calls",
    [
        node("mcp", "core.tool", config={"tool": TOOL, "arguments": {"text": "ran"}}),
        node("component", "core.tool", config={"tool": "fs", "arguments": WRITES}),
    ],
    [edge("mcp", "component")],
)


def config(project: Path) -> Config:
    server = McpServer("python3", ["-I", "-S", "server.py", "mark", str(project / "stage")])
    return Config(
        models=Models(default="local"),
        agents=Agents(allow=["mcp:probe/echo", "ext:*"]),
        extensions=ExtensionConfig(ExtensionPolicy(mode="strict", default_caps=["tool:probe/*", "write"])),
        mcpServers={"probe": server},
    )


def ran(project: Path, node_id: str) -> bool:
    return (project / MARKS[node_id]).exists()


async def answer(host: Host, project: Path) -> None:
    """The person: looks whether the tool ran, and says so."""
    for item in await host.runs.interrupts(RUN, TENANT):
        assert item.data["artifactType"] == "uncertain-effect", item
        value = {"action": "reject", "comment": "done"} if ran(project, item.node_id) else {"action": "accept"}
        (project.parent / "asked").open("a").write(f"{item.node_id}\n")
        await host.runs.resolve_by_node(RUN, item.node_id, TENANT, {"resumeValue": value}, "person")


async def prepared(host: Host, project: Path) -> None:
    """A person trusts the component, approves the server and pins its tool."""
    standing = await host.extensions.standing()
    if standing.state != "trusted":
        await host.extensions.give_trust(standing.digest, "person")
    named = read_servers(project, host.config.mcpServers).named("probe")
    pins = Pins(host.ledger, project)
    if not (await pins.standing(named))["probe"].pinned:
        await pins.approve(named)
        await pins.pin(named, [Definition(ECHO.name, ECHO.description, ECHO.input_schema)])


async def main(folder: Path, deadline: int) -> None:
    project = folder / "project"
    if not project.exists():
        place = project / ".pi" / "extensions"
        place.mkdir(parents=True)
        shutil.copy(SERVER, project / "server.py")
        (place / "probe.wasm").write_bytes(component())
    boundaries = Boundaries(deadline)
    async with Host.open(config(project), root=project, data=folder / "data") as host:
        await prepared(host, project)
        await host.runs.put_workflow(CALLS, tenant=None)
        count_commits(boundaries)
        try:
            await host.runs.create_run(CreateRun(workflow_id="calls"), TENANT, run_id=RUN)
        except Problem as problem:
            if problem.key != "run_already_active":
                raise
        async for event in host.runs.follow(RUN, TENANT):
            if event.type == "interrupt.requested":
                await answer(host, project)
        (folder / "boundaries").write_text(str(-boundaries.left))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))

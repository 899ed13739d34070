"""MCP servers of a project: add, remove and inspect them, approve them and pin their tools, call a tool."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from forestay.cli import mcp_serve
from forestay.cli.command import Group
from forestay.cli.connection import json_object
from forestay.cli.data_folder import Data
from forestay.cli.ext import GRANTABLE, Chosen, Deadline, GrantTexts, PolicyMode, RootFolder, opened_suite, part_line
from forestay.cli.output import Answer, note
from forestay.cli.terminal import asked, attended
from forestay.kernel import McpServer, Problem, config, one_line

if TYPE_CHECKING:
    from forestay.extensions import Extensions, McpGuest, ServerConfig, Servers, ServerStanding

app = Group("mcp")
app.include(mcp_serve.app)

_TRIED_AT_ONCE, _TRY_SECONDS = 4, 15.0
Name = Annotated[str, typer.Argument(help="The server's name.")]
Yes = Annotated[bool, typer.Option("--yes", help="Approve without being asked.")]
Command = Annotated[list[str] | None, typer.Argument(help="After `--`: the program and its arguments.")]
Url = Annotated[str, typer.Option("--url", help="The address of a server that is reached over HTTP.")]
Env = Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE; the value may be ${NAME} of the host.")]
From = Annotated[Path | None, typer.Option("--from", help="An extension that registers servers: it is loaded first.")]
Header = Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE of a server that has an address.")]


class Project(NamedTuple):
    """A project's suite, and the servers that it names."""

    suite: Extensions
    servers: Servers

    async def standing(self, server: ServerConfig) -> ServerStanding:
        return (await self.suite.pins.standing(server))[server.name]

    async def guest(self, server: ServerConfig) -> McpGuest:
        """Return the server as a guest, not yet started; a Problem when nobody approved it."""
        from forestay.extensions import McpGuest

        member = await self.suite.add_server(server, await self.standing(server))
        assert isinstance(member.extension, McpGuest)
        return member.extension


@asynccontextmanager
async def project(
    policy: PolicyMode = None,
    grant: GrantTexts = None,
    root: RootFolder = Path(),
    deadline: Deadline = 60.0,
    data: Data = None,
    source: From = None,
) -> AsyncIterator[Project]:
    """Open the project's suite and its servers; of its extensions, load only the one in `--from`."""
    from forestay.extensions import read_servers, with_registered

    async with opened_suite(Chosen(policy, grant, root, deadline, data=data)) as suite:
        if source is not None:
            await suite.load(source)
        yield Project(suite, with_registered(suite, read_servers(root, config.load(root).config.mcpServers)))


@app.command("add")
def add(
    name: Name,
    command: Command = None,
    url: Url = "",
    env: Env = None,
    header: Header = None,
    root: RootFolder = Path(),
) -> Answer:
    """Write a server into the project's .mcp.json. Nothing is started: that needs `mcp trust`."""
    from forestay.extensions import MCP_FILE, write_entry

    program, *arguments = command or [""]
    entry = McpServer(program, arguments, _pairs(env, "--env"), "", url, _pairs(header, "--header"))
    added = write_entry(root, name, entry)
    assert added is not None, "an entry was given"
    shown = added.shown()
    return Answer(shown, human=[f"{name} stands in {MCP_FILE}. Next: forestay mcp trust {name}"])


@app.command("list", using=project)
async def list_servers(project: Project) -> Answer:
    """The servers of the project, and whether a person approved them. Starts nothing."""
    servers = project.servers
    standings = await project.suite.pins.standing(*servers.found.values())
    found = [{**item.shown(), **_state(item, standings[name])} for name, item in sorted(servers.found.items())]
    problems = [problem.as_lafs() for problem in servers.problems]
    lines = [f"{item['name']}: {item['state']}, {_tools(item['pinned'])} pinned ({item['origin']})" for item in found]
    lines += [problem.message for problem in servers.problems]
    return Answer({"servers": found, "problems": problems}, human=lines or ["No MCP server is configured here."])


@app.command("inspect", using=project)
async def inspect(project: Project, name: Name) -> Answer:
    """What a server offers, its pins, and what changed since. An approved server is started; no tool is called."""
    from forestay.extensions import compare

    server = project.servers.named(name)
    standing = await project.standing(server)
    result = {**server.shown(), **_state(server, standing)}
    if not standing.admits(server):
        return Answer(
            result, human=[*_lines(server), f"Not approved. Next: forestay mcp trust {name}{server.named_by}"]
        )
    guest = await project.guest(server)
    offered = await guest.offered()
    changes = compare(standing.pinned, offered)
    result["about"] = guest.about
    result["tools"] = [{**msgspec.to_builtins(item), "digest": item.digest} for item in offered]
    result["changes"] = [msgspec.to_builtins(item) for item in changes]
    lines = [f"{item.name}: {item.description.splitlines()[0] if item.description else ''}" for item in offered]
    for change in changes:
        lines += [f"{change.tool} is {change.kind}", *change.faults, change.diff]
    return Answer(result, human=[*_lines(server), *lines])


@app.command("trust", using=project)
async def trust(project: Project, name: Name, yes: Yes = False) -> Answer:
    """Approve a server as it is configured, start it, and pin the tools that it offers."""
    from forestay.extensions import compare, pinnable

    server = project.servers.named(name)
    if not (await project.standing(server)).admits(server):
        await _agreed(_lines(server), f"Let {name} be started like this", server, yes)
        await project.suite.pins.approve(server)
    guest = await project.guest(server)
    offered = await guest.offered()
    before = (await project.standing(server)).pinned
    changes = compare(before, offered)
    if changes:
        shown = [line for item in changes for line in (f"{item.tool} is {item.kind}", *item.faults, item.diff)]
        await _agreed(shown, f"Pin the tools of {name} like this", server, yes)
        await project.suite.pins.pin(server, pinnable(changes, offered))
    refused = sorted({item.tool for item in changes if item.kind == "refused"})
    pinned = (await project.standing(server)).pinned
    result = {**server.shown(), "state": "approved", "pinned": sorted(pinned), "refused": refused}
    result["changes"] = [msgspec.to_builtins(item) for item in changes]
    lines = [f"{name}: {_tools(len(pinned))} {'is' if len(pinned) == 1 else 'are'} pinned."] + [
        f"{item} was refused." for item in refused
    ]
    return Answer(result, human=lines)


@app.command("call", using=project)
async def call(
    project: Project,
    name: Name,
    tool: Annotated[str, typer.Argument(help="The tool, as the server names it.")],
    arguments: Annotated[str, typer.Argument(help="The arguments: a JSON object.")] = "{}",
    deadline: Deadline = 60.0,
) -> Answer:
    """Call one pinned tool of an approved server, through policy."""
    from forestay.extensions import tool_name

    value = json_object(arguments, "arguments")
    await project.guest(project.servers.named(name))
    try:
        outcome = await project.suite.call_tool(tool_name(name, tool), value, timeout=deadline)
    except Problem as problem:
        if problem.details.get("rule") in GRANTABLE:
            problem.details["fix"] = f"Call it with --grant tool:{problem.details.get('resource')}"
        raise
    result = {"content": outcome.content, "details": outcome.details, "isError": outcome.is_error}
    failed = Problem("tool_failed", f"{tool} of {name} reports an error.", tool=tool) if outcome.is_error else None
    return Answer(result, human=map(part_line, outcome.content), problem=failed)


@app.command("remove", using=project)
async def remove(project: Project, name: Name, root: RootFolder = Path()) -> Answer:
    """Take a server out of .mcp.json, its approval and its pins back, and forget who is signed in at it."""
    from forestay.extensions import MCP_FILE, write_entry

    server = project.servers.named(name)
    await project.suite.pins.withdraw(server)
    project.suite.tokens.forget(server)
    if server.origin == MCP_FILE:
        write_entry(root, name, None)
    else:
        note(f"{server.origin} still names it: take it out there.")
    return Answer({"removed": name, "origin": server.origin}, human=[f"{name} is removed."])


def _tools(count: int) -> str:
    return "1 tool" if count == 1 else f"{count} tools"


async def server_faults() -> list[str]:
    """Return the faults of this project's servers, one line each. Approved servers are started; no tool is called."""
    turns = asyncio.Semaphore(_TRIED_AT_ONCE)
    async with project() as found:

        async def tried(server: ServerConfig) -> str | None:
            async with turns:
                return await _fault(found, server)

        faults = await asyncio.gather(*(tried(server) for _, server in sorted(found.servers.found.items())))
    return [fault for fault in faults if fault is not None]


async def _fault(project: Project, server: ServerConfig) -> str | None:
    from forestay.extensions import compare

    name, program = server.name, server.entry.command
    if program and shutil.which(program) is None:
        return f"{name}: there is no program {one_line(program)}"
    standing = await project.standing(server)
    if not standing.admits(server):
        state = _state(server, standing)["state"]
        return f"{name}: {'nobody approved it' if state == 'unapproved' else 'it changed since it was approved'}"
    try:
        async with asyncio.timeout(_TRY_SECONDS):
            changes = compare(standing.pinned, await (await project.guest(server)).offered())
    except TimeoutError:
        return f"{name}: it said nothing for {_TRY_SECONDS:.0f} seconds"
    except Problem as problem:
        said = str(problem.details.get("stderr") or "").strip().splitlines()
        return " ".join(one_line(part)[:200] for part in (f"{name}: {problem.message}", *said[-1:]))
    told = [f"{item.tool} is {item.kind}" for item in changes[:5]]
    return f"{name}: {one_line(', '.join(told))}" if told else None


def _state(server: ServerConfig, standing: ServerStanding) -> dict[str, Any]:
    state = "approved" if standing.admits(server) else "unapproved" if standing.approved is None else "changed"
    return {"state": state, "pinned": len(standing.pinned) if state == "approved" else 0}


def _lines(server: ServerConfig) -> list[str]:
    shown = server.shown()
    return [f"{key}: {' '.join(value) if isinstance(value, list) else value}" for key, value in shown.items()]


async def _agreed(lines: Iterable[str], question: str, server: ServerConfig, yes: bool) -> None:
    """Show `lines` and put the question; raise a Problem unless a person says yes."""
    if yes:
        return
    shown = list(lines)
    if not attended():
        told = f"{question}? Nobody is there to ask."
        command = f"forestay mcp trust {server.name}{server.named_by} --yes"
        raise Problem("consent_required", told, shows=shown, fix=f"Look at it, then run: {command}")
    for line in shown:
        note(line)
    if await asked(f"{question}? [y/N] ") != "y":
        raise Problem("cancelled", "Nothing was changed.")


def _pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts or ()]
    wrong = next((name for name, equals, _ in pairs if not name or not equals), None)
    if wrong is not None:
        raise Problem("invalid_usage", f"{option} takes NAME=VALUE.", at=option)
    return {name: value for name, _, value in pairs}

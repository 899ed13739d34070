"""Which tools and commands the loaded extensions offer, and how a session lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from forestay.extensions.guests import Member
from forestay.extensions.packs import Resource
from forestay.extensions.registry import Tool, command_names, tool_owners
from forestay.kernel import Problem
from forestay.tools import BUILT_IN
from forestay.tools import Tool as AnyTool

_LINE = re.compile(r"/([A-Za-z][\w:.-]*)(?:\s+(.*))?", re.DOTALL)


class CommandLine(NamedTuple):
    """A line that calls a command: `/name arguments`."""

    name: str
    arguments: str = ""


def command_line(text: str) -> CommandLine | None:
    """The command that a line would call; None when it is not written as one."""
    found = _LINE.fullmatch(text.strip())
    return CommandLine(found[1], found[2] or "") if found else None


def unknown_tool(members: Iterable[Member], tool: str) -> Problem:
    """That no extension has a tool of this name, with the names that there are."""
    known = {name for member in members for name in member.extension.registrations.tools}
    return Problem("not_found", f"There is no tool {tool[:80]}.", tools=sorted(known), fix="Use one of `tools`.")


def owned_tools(members: Sequence[Member]) -> list[tuple[Tool, Member]]:
    """Every tool that can be called by its name, with its extension."""
    owners = tool_owners(member.extension.registrations for member in members)
    return [
        (tool, member)
        for member in members
        for tool in member.extension.registrations.tools.values()
        if owners[tool.name] == member.extension.name
    ]


def commands_of(members: Iterable[Member]) -> dict[str, tuple[Member, str]]:
    """How each command is invoked: the invocation, with its extension and the name that it registered."""
    members = list(members)
    by_name = {member.extension.name: member for member in members}
    names = command_names(member.extension.registrations for member in members)
    return {invocation: (by_name[extension], name) for invocation, (extension, name) in names.items()}


def shortcuts_of(members: Iterable[Member]) -> dict[str, tuple[Member, str]]:
    """The shortcuts of extensions, each with its extension and what it says of itself; the first of a key is meant."""
    found: dict[str, tuple[Member, str]] = {}
    for member in members:
        for item in member.extension.registrations.shortcuts.values():
            found.setdefault(item.shortcut.lower(), (member, item.description or ""))
    return found


def listed_servers(members: Iterable[Member]) -> list[dict[str, Any]]:
    """The MCP servers that extensions registered; the values of variables and headers are told to nobody."""
    return [
        {
            "name": name,
            "config": {
                key: dict.fromkeys(value, "") if isinstance(value, dict) else value
                for key, value in msgspec.to_builtins(item).items()
                if key != "name"
            },
            "extension": member.extension.name,
            "extensionPath": member.path,
        }
        for member in members
        for name, item in member.extension.registrations.servers.items()
    ]


def listed_tools(members: Sequence[Member]) -> list[dict[str, Any]]:
    """The built-in tools and those of extensions; an extension's tool replaces a built-in one of its name."""
    found = {name: _listed(row.tool, f"<builtin:{name}>", "builtin") for name, row in BUILT_IN.items()}
    found.update({tool.name: _listed(tool, member.path, "local") for tool, member in owned_tools(members)})
    return list(found.values())


def listed_commands(members: Sequence[Member], resources: Iterable[Resource]) -> list[dict[str, Any]]:
    """The commands of extensions, then the prompts and skills that are called as commands."""
    found: list[dict[str, Any]] = []
    for invocation, (member, name) in commands_of(members).items():
        about = member.extension.registrations.commands[name].description
        described = {} if about is None else {"description": about}
        place = _source_info(member.path, "local")
        found.append({"name": invocation, **described, "source": "extension", "sourceInfo": place})
    texts = [item for item in resources if item.kind in ("prompt", "skill") and not item.problem]
    return found + [
        {
            "name": item.name if item.kind == "prompt" else f"skill:{item.name}",
            "source": item.kind,
            "description": item.description,
            "location": item.scope,
            "sourceInfo": _source_info(item.path, "local", item.scope),
        }
        for item in texts
    ]


def _listed(tool: Tool | AnyTool, path: str, source: str) -> dict[str, Any]:
    about = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {**about, "sourceInfo": _source_info(path, source)}


def _source_info(path: str, source: str, scope: str = "temporary") -> dict[str, str]:
    """Where something comes from, in pi's words."""
    return {"path": path, "source": source, "scope": scope, "origin": "top-level"}

"""Reads the MCP servers that a project names, from `.mcp.json`, `.pi/mcp.json` and `forestay.toml`.

C1  Reading starts nothing and expands nothing: `${NAME}` stays as written until a start that has the grant.
C2  The fingerprint covers everything that decides which program runs or which address is used. A change makes it a new
    server.
C3  If a name occurs twice, the first of these counts: the settings, `.pi/mcp.json`, `.mcp.json`.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from forestay.kernel import McpServer, Problem, canonical, write_file

PROJECT_FILE = ".mcp.json"
FILES = (".pi/mcp.json", PROJECT_FILE)
SETTINGS = "forestay.toml"
MAX_FILE = 1024 * 1024
MAX_SERVERS = 200
_NAME = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9-]){0,30}")
_TRANSPORTS = ("stdio", "http", "streamable-http", "streamableHttp")


class ServerConfig(msgspec.Struct, frozen=True):
    """One server as a file names it: a command to run, or a URL."""

    name: str
    origin: str
    """The file that names it, or the extension that registers it, relative to the project."""
    entry: McpServer

    @property
    def subject(self) -> str:
        """The server's name for policy and evidence."""
        return f"mcp:{self.name}"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the command, its arguments and environment, or of the URL and its headers (C2)."""
        entry = self.entry
        decides = [entry.command, entry.args, entry.env, entry.cwd, entry.url, entry.headers]
        return "sha256:" + hashlib.sha256(canonical.encode(decides)).hexdigest()

    @property
    def named_by(self) -> str:
        """The option with which a command finds it: empty when a file names it, else the extension."""
        return "" if self.origin in (*FILES, SETTINGS) else f" --from {shlex.quote(self.origin)}"

    def shown(self) -> dict[str, Any]:
        """Return what a person approves. Variables and headers may be secret, so only their names are shown."""
        entry = self.entry
        facts = {
            "name": self.name,
            "origin": self.origin,
            "command": [entry.command, *entry.args] if entry.command else None,
            "cwd": entry.cwd or None,
            "url": entry.url or None,
            "environment": sorted(entry.env) or None,
            "headers": sorted(entry.headers) or None,
            "fingerprint": self.fingerprint,
        }
        return {key: value for key, value in facts.items() if value is not None}


class Servers(msgspec.Struct, frozen=True):
    """The servers of a project, and the problems of unusable files and entries."""

    found: dict[str, ServerConfig]
    problems: tuple[Problem, ...] = ()

    def named(self, name: str) -> ServerConfig:
        """Return the server of this name; raise a Problem that lists the known ones."""
        known = self.found.get(name)
        if known is None:
            told = f"No MCP server {name[:80]!r} is configured here."
            raise Problem("not_found", told, servers=sorted(self.found), fix="Add it: forestay mcp add NAME -- COMMAND")
        return known


def read_servers(root: Path, settings: Mapping[str, McpServer]) -> Servers:
    """Read every server that the project names (C1, C3); collect a Problem for each unusable file or entry."""
    found = {name: ServerConfig(name, SETTINGS, entry) for name, entry in settings.items()}
    problems: list[Problem] = []
    for file in FILES:
        try:
            entries = read_entries(root / file)
        except Problem as problem:
            problems.append(problem)
            continue
        for name, raw in entries.items():
            try:
                found.setdefault(name, checked(name, file, raw))
            except Problem as problem:
                problems.append(problem)
    for name in list(found):
        try:
            _check(found[name])
        except Problem as problem:
            problems.append(problem)
            del found[name]
    if len(found) > MAX_SERVERS:
        told = f"{len(found)} MCP servers are configured; only the first {MAX_SERVERS} are used."
        problems.append(Problem("config_invalid", told, limit=MAX_SERVERS))
        found = dict(list(found.items())[:MAX_SERVERS])
    return Servers(found, tuple(problems))


def read_entries(path: Path) -> dict[str, Any]:
    """Return `mcpServers` of one file as written; empty when there is no file."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise Problem("config_invalid", f"{path.name} is larger than {MAX_FILE} bytes.", at=path.name)
        document = canonical.decode(path.read_bytes(), limit=MAX_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Problem("config_invalid", f"{path.name} cannot be read.", at=path.name, reason=error.strerror) from error
    except Problem as problem:
        raise Problem("config_invalid", f"{path.name}: {problem.message}", at=path.name) from problem
    servers = document.get("mcpServers", {}) if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise Problem(
            "config_invalid", f"In {path.name}, `mcpServers` must be an object.", at=f"{path.name}#mcpServers"
        )
    return servers


def write_entry(root: Path, name: str, entry: McpServer | None) -> ServerConfig | None:
    """Add a server to the project's `.mcp.json`, or remove it; everything else in the file stays."""
    path = root / PROJECT_FILE
    entries = read_entries(path)
    document: dict[str, Any] = canonical.decode(path.read_bytes(), limit=MAX_FILE) if path.exists() else {}
    config = None
    if entry is None:
        entries.pop(name, None)
    else:
        written = ("command", "args", "env", "cwd", "url", "headers")
        plain = {key: value for key in written if (value := getattr(entry, key))}
        config = checked(name, PROJECT_FILE, plain)
        entries[name] = plain
    document["mcpServers"] = entries
    write_file(path, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    return config


def checked(name: str, origin: str, raw: Any) -> ServerConfig:
    """Check one entry of a JSON file. Members that only other hosts know are ignored; none of them grants anything."""
    where = f"{origin}#mcpServers.{name[:80]}"
    if not isinstance(raw, dict):
        raise Problem("config_invalid", "The entry of an MCP server must be an object.", at=where)
    if raw.get("type", "stdio") not in _TRANSPORTS and "url" not in raw:
        raise Problem("config_invalid", f"There is no transport {raw['type']!r}.", at=where, known=list(_TRANSPORTS))
    known = {key: value for key, value in raw.items() if key in ("command", "args", "env", "cwd", "url", "headers")}
    try:
        entry = msgspec.convert(known, McpServer)
    except msgspec.ValidationError as error:
        message, place = canonical.located(error)
        raise Problem("config_invalid", f"{message}.", at=where + place.removeprefix("$")) from error
    config = ServerConfig(name, origin, entry)
    _check(config)
    return config


def _check(config: ServerConfig) -> None:
    """Check that the name fits into a tool's name, and that there is exactly one way to reach the server."""
    where, entry = f"{config.origin}#mcpServers.{config.name[:80]}", config.entry
    if not _NAME.fullmatch(config.name):
        told = "A server's name may have at most 31 letters, digits, `-` and single `_`."
        raise Problem("config_invalid", told, at=where)
    if bool(entry.command) == bool(entry.url):
        raise Problem("config_invalid", "A server must have either a `command` or a `url`.", at=where)
    if entry.url and not entry.url.startswith(("http://", "https://")):
        raise Problem("config_invalid", "The URL of a server must begin with http:// or https://.", at=where)
    if "\0" in "".join((entry.command, *entry.args, *entry.env, *entry.env.values(), entry.cwd)):
        raise Problem("config_invalid", "The entry contains the character U+0000.", at=where)

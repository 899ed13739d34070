"""People's decisions about MCP servers: approvals by fingerprint, and pinned tool definitions.

The stream `mcp` has the records `mcp.approved`, `mcp.pinned` and `mcp.withdrawn`; the latest one for a folder and a
server counts. An approval is for one fingerprint, and pins belong to the fingerprint under which they were made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions.mcp.definitions import Definition
from forestay.extensions.mcp.server_config import ServerConfig
from forestay.kernel import Draft, Ledger, Problem, Record

STREAM = "mcp"


class ServerStanding(msgspec.Struct, frozen=True):
    """The decisions about one server: its approved fingerprint and its pinned tools."""

    approved: str | None = None
    pinned: dict[str, Definition] = {}

    def admits(self, config: ServerConfig) -> bool:
        """Whether a person approved the server's current configuration."""
        return self.approved == config.fingerprint


class Pins:
    """The decisions about the servers of one project, on one ledger."""

    def __init__(self, ledger: Ledger, root: Path) -> None:
        self._ledger = ledger
        self._folder = os.path.realpath(root)

    async def standing(self, *configs: ServerConfig) -> dict[str, ServerStanding]:
        """Return the standing of each server by name; read the ledger once."""
        records = [item for item in await self._ledger.read(STREAM) if item.payload["folder"] == self._folder]
        return {config.name: _fold(records, config) for config in configs}

    async def approve(self, config: ServerConfig, *, by: str = "user") -> None:
        """Approve the server in its current configuration."""
        await self._record("mcp.approved", config, {"shown": config.shown()}, by)

    async def pin(self, config: ServerConfig, tools: Sequence[Definition], *, by: str = "user") -> None:
        """Pin exactly these tools. If one of them cannot be pinned, raise a Problem and pin nothing."""
        for item in tools:
            if faults := item.faults():
                raise Problem("tool_changed", f"The tool {item.name[:80]!r} cannot be pinned.", faults=faults)
        pinned = [{**msgspec.to_builtins(item), "digest": item.digest} for item in tools]
        await self._record("mcp.pinned", config, {"tools": pinned}, by)

    async def withdraw(self, config: ServerConfig, *, by: str = "user") -> None:
        """Withdraw the approval and the pins."""
        await self._record("mcp.withdrawn", config, {}, by)

    async def _record(self, kind: str, config: ServerConfig, more: dict[str, Any], by: str) -> None:
        about = {"folder": self._folder, "server": config.name, "fingerprint": config.fingerprint}
        await self._ledger.append(STREAM, [Draft(kind, {**about, **more, "by": by})])


def _fold(records: Sequence[Record], config: ServerConfig) -> ServerStanding:
    standing = ServerStanding()
    for record in records:
        payload = record.payload
        if payload["server"] != config.name:
            continue
        if record.type == "mcp.withdrawn":
            standing = ServerStanding()
        elif record.type == "mcp.approved":
            kept = standing.pinned if standing.approved == payload["fingerprint"] else {}
            standing = ServerStanding(payload["fingerprint"], kept)
        elif record.type == "mcp.pinned" and payload["fingerprint"] == standing.approved:
            tools = [msgspec.convert(item, Definition) for item in payload["tools"]]
            standing = ServerStanding(standing.approved, {item.name: item for item in tools})
    return standing


def unapproved(config: ServerConfig, standing: ServerStanding) -> Problem:
    """Return the Problem of a server that is not approved, with the command that approves it."""
    what = "is not approved" if standing.approved is None else "has changed since it was approved"
    return Problem(
        "server_unapproved",
        f"The MCP server {config.name} {what}, so the host does not start it.",
        server=config.name,
        fingerprint=config.fingerprint,
        approved=standing.approved,
        fix=f"Check it, then run: forestay mcp trust {config.name}{config.named_by}",
    )

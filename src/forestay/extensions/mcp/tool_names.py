"""How the tools of MCP servers are named: `mcp__server__tool` to a model, `server/tool` to a grant (P14)."""

from __future__ import annotations

import hashlib
import re

MAX_NAME = 64
_LETTERS = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(server: str, tool: str) -> str:
    """`mcp__server__tool` in the letters and the length that every model takes."""
    name = f"mcp__{server}__{_LETTERS.sub('_', tool)}"
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def resource(name: str) -> str | None:
    """What a grant names of an MCP tool: `server/tool`; None for other tools."""
    server, separator, tool = name.removeprefix("mcp__").partition("__")
    return f"{server}/{tool}" if name.startswith("mcp__") and separator and server and tool else None

"""The names of MCP tools: `mcp__server__tool` for a model, `server/tool` for a grant (P14)."""

from __future__ import annotations

import hashlib
import re

MAX_NAME = 64
_LETTERS = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(server: str, tool: str) -> str:
    """Return `mcp__server__tool`, with only letters and a length that every model accepts."""
    name = f"mcp__{server}__{_LETTERS.sub('_', tool)}"
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def resource(name: str) -> str | None:
    """Return a grant's name for an MCP tool, `server/tool`; None for other tools."""
    server, separator, tool = name.removeprefix("mcp__").partition("__")
    return f"{server}/{tool}" if name.startswith("mcp__") and separator and server and tool else None

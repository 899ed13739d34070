"""Asks a person about a tool that differs from its pin. A yes pins it.

X1  The question shows the difference. A yes holds only for the definition that was shown, not for other tools.
X2  Where nobody can answer, the tool stays withdrawn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from forestay.extensions.mcp.definitions import Change, Definition
from forestay.extensions.mcp.pins import Pins
from forestay.extensions.mcp.server_config import ServerConfig

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Shows a person a dialog of the host (operation, params) and returns the answer; None when nobody is there."""

_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


class NewPins:
    """Asks about the changed tools of one server."""

    def __init__(self, config: ServerConfig, pins: Pins, ask: Ask) -> None:
        self._config = config
        self._pins = pins
        self._ask = ask

    async def agreed(self, change: Change, offered: Definition) -> bool:
        """Whether a person accepts the tool as it is offered now."""
        if change.faults or change.kind not in ("changed", "new"):
            return False
        answer = await self._ask("pin_tool", self._dialog(change, offered))
        return isinstance(answer, dict) and answer.get("action") == "accept"

    async def pin(self, pinned: Mapping[str, Definition], offered: Definition) -> dict[str, Definition]:
        """Add this pin, record it and return all pins (X1)."""
        kept = {**pinned, offered.name: offered}
        await self._pins.pin(self._config, list(kept.values()), by="person")
        return kept

    def _dialog(self, change: Change, offered: Definition) -> dict[str, Any]:
        name = self._config.name
        was = "has a tool that nobody pinned" if change.kind == "new" else "changed a tool since a person pinned it"
        return {
            "title": f"Use {change.tool} of the MCP server {name} as it is now?",
            "message": f"{name} {was}. A model reads what is different:\n\n{change.diff}",
            "schema": _SCHEMA,
            "subject": offered.digest,
            "facts": {"server": name, "tool": change.tool, "change": change.kind, "diff": change.diff},
        }

"""An agent's environment during an evaluation: the suite gives the tools' answers and the memory (OpenWOP RFC 0081 §B).

Nothing outside is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from forestay.host.memory import SeededMemory
from forestay.kernel import canonical
from forestay.tools import Tool, ToolOutcome, ToolSource, Update


class FixtureTools(ToolSource):
    """The tools of a task's fixtures: their descriptions are the live tools', their answers the suite's."""

    kind = "fixture"

    def __init__(self, fixtures: dict[str, Any], live: ToolSource) -> None:
        self._responses = {item["tool"]: item.get("response") for item in fixtures.get("toolResponses", ())}
        self._live = live

    async def list(self) -> Sequence[Tool]:
        known = {name: tool for tool in await self._live.list() for name in (tool.id, tool.name)}
        return [_stand_in(name, known.get(name)) for name in self._responses]

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        response = self._responses[tool.id if tool.id in self._responses else tool.name]
        return ToolOutcome(response if isinstance(response, str) else canonical.encode(response).decode())


def _stand_in(name: str, live: Tool | None) -> Tool:
    """Return a tool that changes nothing, with the description and the schema of the live tool if there is one."""
    if live is None:
        return Tool(name, "", {"type": "object"}, "pure", "")
    return msgspec.structs.replace(live, effect="pure", prepares=False)


def seeded(fixtures: dict[str, Any]) -> SeededMemory:
    """Return the memory that a task begins with."""
    return SeededMemory([_entry(item) for item in fixtures.get("memorySeed", ())])


def _entry(item: dict[str, Any]) -> str:
    content = item.get("content")
    return content if isinstance(content, str) else canonical.encode(item).decode()

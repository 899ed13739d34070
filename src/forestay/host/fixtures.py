"""What an agent works with while it is evaluated: tools that answer what the suite says, and a memory that it wrote
(OpenWOP RFC 0081 §B). Nothing outside is touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from forestay.host.memory import SeededMemory
from forestay.kernel import canonical
from forestay.tools import Tool, ToolOutcome, ToolSource, Update


class FixtureTools(ToolSource):
    """The tools of a task's fixtures: described as the live ones are, answered as the suite says."""

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
    """A tool that changes nothing, with the name and the schema of the live one where there is one."""
    if live is None:
        return Tool(name, "", {"type": "object"}, "pure", "")
    return msgspec.structs.replace(live, effect="pure", prepares=False)


def seeded(fixtures: dict[str, Any]) -> SeededMemory:
    """The memory that a task begins with."""
    return SeededMemory([_entry(item) for item in fixtures.get("memorySeed", ())])


def _entry(item: dict[str, Any]) -> str:
    content = item.get("content")
    return content if isinstance(content, str) else canonical.encode(item).decode()

"""A tool, the sources that offer tools, and the one order in which arguments are prepared.

T1  A source is the only way to its tools: it lists them, describes one, prepares arguments and calls.
T2  Arguments pass the tool's own preparation first, then one coercion, then one validation (Pi P15).
T3  Of two tools with one name, the one of the earlier source is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from forestay.kernel import Problem
from forestay.models import ToolSpec
from forestay.tools.arguments import fitted

EffectClass = Literal["pure", "read", "write", "unsafe"]
Transport = Literal["native", "mcp", "http"]


class Tool(msgspec.Struct, frozen=True):
    """A tool as its source offers it.

    `id` is what an allowlist names (`mcp:github/search`); it begins with the kind of its source. `name` is what the
    model sees. `takes_key` says that the tool acts once for one idempotency key, however often it is called.
    `prepares` says that the tool changes its arguments before they are validated, `typebox` that its schema converts
    as TypeBox does.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    effect: EffectClass = "unsafe"
    id: str = ""
    takes_key: bool = False
    transport: Transport = "native"
    prepares: bool = False
    typebox: bool = False

    @property
    def source(self) -> str:
        """The kind of the source that the tool comes from."""
        return self.id.partition(":")[0]

    def fit(self, arguments: Any) -> dict[str, Any]:
        """The arguments as the schema wants them, or a Problem that tells the model what is wrong."""
        value = fitted(self.name, self.parameters, arguments, typebox=self.typebox)
        if not isinstance(value, dict):
            raise Problem("schema_mismatch", f"The arguments of {self.name} are no object.", at="$", tool=self.name)
        return value


def specs_of(tools: Iterable[Tool]) -> list[ToolSpec]:
    """The tools as a model is told of them."""
    return [ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools]


class ToolOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool gave back; an error is an answer too."""

    content: str
    is_error: bool = False
    details: Any = None


Update = Callable[[Any], Awaitable[None]]


class ToolSource(Protocol):
    """Where tools come from: built in, an extension, a workflow; later a server or a component."""

    kind: str
    """What the ids of its tools begin with."""

    async def list(self) -> Sequence[Tool]:
        """The tools that the caller may be offered."""

    async def describe(self, name: str) -> Tool | None:
        """The tool with this name or id."""
        return next((tool for tool in await self.list() if name in (tool.name, tool.id)), None)

    async def prepare(self, tool: Tool, arguments: Any) -> Any:
        """What a tool that `prepares` makes of its arguments, before they are validated."""
        return arguments

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        """Run the tool. The model sees a Problem that this raises as an error."""


class Toolset(ToolSource):
    """Several sources as one; none at all is a set without tools."""

    kind = ""

    def __init__(self, *sources: ToolSource) -> None:
        self._sources = {source.kind: source for source in sources}

    async def list(self) -> Sequence[Tool]:
        return [tool for source in self._sources.values() for tool in await source.list()]

    async def describe(self, name: str) -> Tool | None:
        for source in self._sources.values():
            if (found := await source.describe(name)) is not None:
                return found
        return None

    async def prepare(self, tool: Tool, arguments: Any) -> Any:
        return await self._of(tool).prepare(tool, arguments)

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        source = self._of(tool)
        return await source.call(tool, arguments, call_id=call_id, idempotency_key=idempotency_key, update=update)

    def _of(self, tool: Tool) -> ToolSource:
        source = self._sources.get(tool.source)
        if source is None:
            raise Problem("not_found", f"Nothing here offers the tool {tool.name}.", tool=tool.name)
        return source


async def fit_for(
    source: ToolSource,
    tool: Tool,
    arguments: Any,
    record: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]] | None = None,
) -> dict[str, Any]:
    """The arguments as the tool takes them (T2). `record` keeps what the preparation gave, so that it runs once."""
    if tool.prepares:

        async def prepare() -> Any:
            return await source.prepare(tool, arguments)

        arguments = await (record(prepare) if record is not None else prepare())
    return tool.fit(arguments)

"""An MCP server as an extension: its pinned tools are available at once; the first call starts the server.

M1  Loading starts nothing. The tools are those that a person pinned.
M2  A call is a host call of the server's own subject: capability `tool`, resource `server/tool`. It reaches the server
    after policy has allowed it, and is never repeated.
M3  After each start, and when the server reports a change, its tools are compared with the pins. A tool that differs
    is withdrawn before it can be called, and its diff is recorded.
M4  The server's own requests to the host are host calls of its subject too.
M5  A call of a withdrawn tool asks a person, after policy has allowed it. A yes pins the definition that was shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from forestay.extensions.connectors.contract import Call, Output
from forestay.extensions.guests import Guest, Report
from forestay.extensions.mcp.definitions import Change, Definition, compare
from forestay.extensions.mcp.new_pins import NewPins
from forestay.extensions.mcp.on_demand import OnDemand, OpenLine
from forestay.extensions.mcp.pins import ServerStanding, unapproved
from forestay.extensions.mcp.server_config import ServerConfig
from forestay.extensions.mcp.tool_names import tool_name
from forestay.extensions.outcomes import HookOutcome, ToolOutcome
from forestay.extensions.protocol import HostCall, HostCalls
from forestay.extensions.registry import Registrations
from forestay.kernel import Clock, Problem
from forestay.tools import EffectClass

if TYPE_CHECKING:
    from forestay.extensions.mcp.connection import Connection
    from forestay.extensions.mcp.requests import ServerRequests

_TAKEN = ("key", "message", "retry_after_ms")
T = TypeVar("T")


class McpGuest(Guest):
    """The guest of one approved server."""

    runtime = "mcp"

    def __init__(
        self,
        config: ServerConfig,
        pinned: Mapping[str, Definition],
        line: OpenLine,
        calls: HostCalls,
        new_pins: NewPins,
        *,
        may: Callable[[str], bool],
        report: Report,
        clock: Clock,
    ) -> None:
        self.name = config.subject
        self.config = config
        self.registrations = Registrations(self.name)
        self.stopped: Problem | None = None
        self.changes: list[Change] = []
        """The differences from the pins at the last comparison."""
        self.seen: list[Definition] = []
        """The server's offer at the last comparison."""
        self._pinned = dict(pinned)
        self._calls = calls
        self._new_pins = new_pins
        self._may = may
        self._report = report
        self._server = OnDemand(config, line, self._answers, self._compare, report=report, clock=clock)
        self._tools: dict[str, Definition] = {}
        self._count = 0

    async def load(self) -> Registrations:
        """Offer the pinned tools (M1)."""
        self._offer(self._pinned.values())
        return self.registrations

    def _offer(self, definitions: Iterable[Definition]) -> None:
        """Register exactly these tools; if two get the same name, offer the first."""
        found, self._tools = Registrations(self.name), {}
        for item in definitions:
            name = tool_name(self.config.name, item.name)
            if name in self._tools:
                self._report(
                    "tool_refused", {"tool": item.name, "reason": f"Another tool already has the name {name}."}
                )
                continue
            self._tools[name] = item
            about = {"label": item.title or item.name, "description": item.description}
            found.add("tool", {"name": name, **about, "parameters": {"type": "object", **item.input_schema}})
        self.registrations = found

    def renew(self, standing: ServerStanding) -> None:
        """Apply people's new decisions: changed pins, or a withdrawn approval."""
        if not standing.admits(self.config):
            self._offer(())
            self.stop(unapproved(self.config, standing))
        elif self.stopped is not None or standing.pinned != self._pinned:
            looked = self.stopped is None and self._server.connected
            self.stopped, self._pinned = None, dict(standing.pinned)
            if looked:
                self._compare(self.seen)
            else:  # the next call starts the server and compares
                self.changes = []
                self._offer(self._pinned.values())

    # Calls

    async def call_tool(
        self,
        name: str,
        arguments: Any,
        *,
        call_id: str = "call",
        prepared: bool = False,
        on_update: Callable[[Any], None] | None = None,
        timeout: float | None = None,
    ) -> ToolOutcome:
        """Call a tool through the dispatcher (M2). The tool's own error is an outcome; a refusal is a Problem."""
        if self.stopped is not None:
            raise self.stopped
        given = arguments if self.withdrawn(name) is not None else self.registrations.fit(name, arguments)
        try:
            output = await self._host_call("tool", {"name": name, "input": given}, timeout)
        except Problem as problem:
            raise (self.withdrawn(name) if problem.key == "tool_changed" else None) or problem from None
        return ToolOutcome(output["content"], output["details"], output["isError"])

    async def _host_call(self, method: str, params: dict[str, Any], timeout: float | None = None) -> Output:
        """Make a host call of the server's subject; return its output or raise its Problem."""
        self._count += 1
        limit = None if timeout is None else int(timeout * 1000)
        request = HostCall(f"{self.name}/{self._count}", "", method, params, limit)
        result = await self._calls.answer(request, self.name)
        if result.error is None:
            return result.output
        details = dict(result.error.details or {})
        key = str(details.pop("problem", "extension_failed"))
        raise Problem(key, result.error.message, **{n: v for n, v in details.items() if n not in _TAKEN})

    def _answers(self, folders: list[str]) -> ServerRequests:
        """Return the object that answers the server's requests (M4)."""
        from forestay.extensions.mcp.requests import ServerRequests  # the protocol's package is large

        return ServerRequests(self.config.name, self._host_call, self._may, folders)

    def _changed(self, name: str) -> Change | None:
        if name in self._tools:
            return None
        return next((item for item in self.changes if tool_name(self.config.name, item.tool) == name), None)

    def withdrawn(self, name: str) -> Problem | None:
        """Return the Problem of a withdrawn tool, with its change (M3); None for other tools."""
        change = self._changed(name)
        if change is None:
            return None
        return Problem(
            "tool_changed",
            f"The tool {change.tool} of {self.config.name} is withdrawn: it is {change.kind}.",
            tool=name,
            diff=change.diff,
            faults=list(change.faults),
            fix=f"Read the diff, then run: forestay mcp trust {self.config.name}{self.config.named_by}",
        )

    async def perform(self, call: Call, name: str, arguments: dict[str, Any]) -> Output:
        """Perform the host call: connect to the server and call the tool once."""

        async def asked(connection: Connection) -> Output:
            given = await self._renewed(name, arguments)  # the server may have just started
            definition = self._tools.get(name)
            if definition is None:
                raise _gone(self.config.name, name)
            from forestay.extensions.mcp.content import passed_on

            seconds = call.remaining(self.config.entry.call_seconds)
            result = await connection.call(definition, given, seconds=seconds)
            return passed_on(self.config.name, definition.name, result, definition.output_schema)

        return await self._used(asked)

    async def _renewed(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return fitting arguments once the tool may be called; a withdrawn tool needs a person's yes (M5)."""
        while (change := self._changed(name)) is not None:
            offered = next((item for item in self.seen if tool_name(self.config.name, item.name) == name), None)
            if offered is None or not await self._new_pins.agreed(change, offered):
                raise self.withdrawn(name) or _gone(self.config.name, name)
            if offered in self.seen:  # the definition is still the one that was shown
                self._pinned = await self._new_pins.pin(self._pinned, offered)
                self._compare(self.seen)
                arguments = self.registrations.fit(name, arguments)
        return arguments

    async def offered(self) -> list[Definition]:
        """Return the server's current offer for a person to review. Calls no tool."""
        found = await self._used(lambda connection: connection.offered())
        self._compare(found)
        return found

    @property
    def about(self) -> dict[str, Any]:
        """The server's self-description while it is connected."""
        return self._server.about

    async def _used(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        if self.stopped is not None:
            raise self.stopped
        return await self._server.use(work)

    def _compare(self, offered: list[Definition]) -> None:
        """Withdraw the tools that differ from their pins (M3)."""
        self.seen = offered
        changes = compare(self._pinned, offered)
        withdrawn = {item.tool for item in changes}
        self._offer([item for name, item in self._pinned.items() if name not in withdrawn])
        if changes and changes != self.changes:
            self._report("tools_changed", {"changes": [msgspec.to_builtins(item) for item in changes[:20]]})
        self.changes = changes

    async def close(self) -> None:
        await self._server.close()

    # Methods of `Guest` that a server does not have

    async def run_command(self, name: str, arguments: str = "", *, timeout: float | None = None) -> Any:
        raise Problem("not_found", f"{self.name} has no command {name[:80]}.", commands=[])

    async def hook(
        self, event: dict[str, Any], index: int, *, timeout: float | None = None, signal: bool = False
    ) -> HookOutcome:
        return HookOutcome(None, None, False)

    def hold(self, held: bool) -> None:
        """Do nothing: policy asks before the server is reached, so no deadline runs meanwhile."""

    def stop(self, problem: Problem) -> None:
        """Refuse all further calls with this problem, and end the server."""
        self.stopped = problem
        self._server.end()

    def effect(self, name: str) -> EffectClass:
        """Return the effect class of a tool: `unsafe`, unless a person listed its name under `read_only`."""
        definition = self._tools.get(name)
        return "read" if definition is not None and definition.name in self.config.entry.read_only else "unsafe"


def _gone(server: str, name: str) -> Problem:
    return Problem("method_not_found", f"{server} has no tool {name[:80]!r}.")

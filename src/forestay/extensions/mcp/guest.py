"""An MCP server as an extension: its pinned tools are there at once, the server is started when one is called.

M1  Nothing is started by loading. The tools are those that a person pinned.
M2  A call is a host call of the server's own subject: capability `tool`, resource `server/tool`. The server is reached
    inside that call, after policy has allowed it. It is never repeated.
M3  After each start, and whenever the server says that its tools changed, they are compared with the pins. A tool that
    differs is withdrawn before it can be called, and its diff is on record.
M4  A server that fails to start is left alone for a while, twice as long each time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from forestay.extensions.connectors.contract import Call, Output
from forestay.extensions.guests import Guest, Report
from forestay.extensions.mcp.definitions import Change, Definition, compare
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
    from forestay.extensions.mcp.lines import AddressLine, ProgramLine

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
_TAKEN = ("key", "message", "retry_after_ms")
T = TypeVar("T")
OpenLine = Callable[[], "ProgramLine | AddressLine"]


class McpGuest(Guest):
    """The guest of one approved server."""

    runtime = "mcp"

    def __init__(
        self,
        config: ServerConfig,
        pinned: Mapping[str, Definition],
        line: OpenLine,
        calls: HostCalls,
        *,
        report: Report,
        clock: Clock,
    ) -> None:
        self.name = config.subject
        self.config = config
        self.registrations = Registrations(self.name)
        self.stopped: Problem | None = None
        self.changes: list[Change] = []
        """What is not as it was pinned, as of the last look at the server."""
        self._pinned = dict(pinned)
        self._line = line
        self._calls = calls
        self._report = report
        self._clock = clock
        self._connection: Connection | None = None
        self._starting = asyncio.Lock()
        self._tools: dict[str, Definition] = {}
        self._count = self._busy = 0
        self._failures, self._not_before = 0, 0.0
        self._idle: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[None] | None = None

    async def load(self) -> Registrations:
        """Offer what is pinned (M1)."""
        self._offer(self._pinned.values())
        return self.registrations

    def _offer(self, definitions: Iterable[Definition]) -> None:
        """Register these tools and no others; of two whose names become one, the first is offered."""
        found, self._tools = Registrations(self.name), {}
        for item in definitions:
            name = tool_name(self.config.name, item.name)
            if name in self._tools:
                self._report("tool_refused", {"tool": item.name, "reason": f"Another tool is called {name}."})
                continue
            self._tools[name] = item
            about = {"label": item.title or item.name, "description": item.description}
            found.add("tool", {"name": name, **about, "parameters": {"type": "object", **item.input_schema}})
        self.registrations = found

    def renew(self, standing: ServerStanding) -> None:
        """Take in what people decided since: other pins, or an approval that is taken back."""
        if not standing.admits(self.config):
            self._offer(())
            self.stop(unapproved(self.config, standing))
        elif self.stopped is not None or standing.pinned != self._pinned:
            self.stopped, self._pinned, self.changes = None, dict(standing.pinned), []
            self._offer(self._pinned.values())
            self._end()  # the next call starts the server and compares

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
        """Call a tool through the door (M2). The tool's own error is an outcome; a refusal is a Problem."""
        if self.stopped is not None:
            raise self.stopped
        if (problem := self.withdrawn(name)) is not None:
            raise problem
        given = self.registrations.fit(name, arguments)
        self._count += 1
        limit = None if timeout is None else int(timeout * 1000)
        request = HostCall(f"{self.name}/{self._count}", "", "tool", {"name": name, "input": given}, limit)
        async for result in self._calls.call(request, self.name):
            if result.error is not None:
                details = dict(result.error.details or {})
                key = str(details.pop("problem", "extension_failed"))
                raise Problem(key, result.error.message, **{n: v for n, v in details.items() if n not in _TAKEN})
            output = result.output
            return ToolOutcome(output["content"], output["details"], output["isError"])
        raise AssertionError("a host call ends with a result")

    def withdrawn(self, name: str) -> Problem | None:
        """What changed about a tool that is not offered any more (M3)."""
        change = next((item for item in self.changes if tool_name(self.config.name, item.tool) == name), None)
        if name in self._tools or change is None:
            return None
        return Problem(
            "tool_changed",
            f"The tool {change.tool} of {self.config.name} is withdrawn: it is {change.kind}.",
            tool=name,
            diff=change.diff,
            faults=list(change.faults),
            fix=f"Read the diff, then run: forestay mcp trust {self.config.name}",
        )

    async def perform(self, call: Call, name: str, arguments: dict[str, Any]) -> Output:
        """Inside the host call: reach the server, and call the tool once."""

        async def asked(connection: Connection) -> Output:
            if (problem := self.withdrawn(name)) is not None:  # the server may just have been started
                raise problem
            definition = self._tools.get(name)
            if definition is None:
                raise Problem("method_not_found", f"{self.config.name} has no tool {name[:80]!r}.")
            from forestay.extensions.mcp.content import passed_on

            seconds = call.remaining(self.config.entry.call_seconds)
            result = await connection.call(definition.name, arguments, seconds=seconds)
            return passed_on(self.config.name, definition.name, result, definition.output_schema)

        return await self._with(asked)

    async def offered(self) -> list[Definition]:
        """What the server offers now, for a person to look at. Calls no tool."""
        return await self._with(lambda connection: connection.tools())

    @property
    def about(self) -> dict[str, Any]:
        """What the server said about itself, while it is connected."""
        return self._connection.server if self._connection is not None else {}

    # The connection

    async def _with(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """`work` with a connection that is open, and stays so at least until it is done."""
        self._busy += 1
        self._rest(False)
        try:
            return await work(await self._connected())
        finally:
            self._busy -= 1
            self._rest(self._busy == 0)

    async def _connected(self) -> Connection:
        async with self._starting:
            if self.stopped is not None:
                raise self.stopped
            if self._connection is not None and self._connection.usable:
                return self._connection
            from forestay.extensions.mcp.connection import Connection  # the protocol's package is large

            await self._disconnect()
            self._check_wait()
            line = self._line()
            entry = self.config.entry
            connection = Connection(line, self.config.name, seconds=entry.start_seconds, on_change=self._look_again)
            try:
                await connection.start(entry.start_seconds)
                self._compare(await connection.tools())
            except Problem as problem:
                await connection.close()
                self._failed_to_start(problem)
                raise
            except BaseException:
                await connection.close()
                raise
            self._failures, self._connection = 0, connection
            self._report("server_started", {"fingerprint": self.config.fingerprint, **line.facts})
            return connection

    def _check_wait(self) -> None:
        """M4."""
        left = self._not_before - self._clock.monotonic()
        if self._failures and left > 0:
            told = f"The MCP server {self.config.name} failed to start; it is tried again in {left:.0f} s."
            wait = int(left * 1000)
            raise Problem("unavailable", told, retry_after_ms=wait, server=self.config.name, wait_ms=wait)

    def _failed_to_start(self, problem: Problem) -> None:
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2**self._failures)
        self._failures += 1
        self._not_before = self._clock.monotonic() + wait
        self._report("server_failed", {"problem": problem.key, "message": problem.message, "wait_seconds": wait})

    def _compare(self, offered: list[Definition]) -> None:
        """Withdraw what is not as it was pinned (M3)."""
        changes = compare(self._pinned, offered)
        withdrawn = {item.tool for item in changes}
        self._offer([item for name, item in self._pinned.items() if name not in withdrawn])
        if changes and changes != self.changes:
            self._report("tools_changed", {"changes": [msgspec.to_builtins(item) for item in changes[:20]]})
        self.changes = changes

    def _look_again(self) -> None:
        """The server says that its tools changed: look once, however often it says so meanwhile."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._looked())

    async def _looked(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            self._compare(await connection.tools())
        except Problem as problem:
            self._report("server_failed", {"problem": problem.key, "message": problem.message})
            await self._disconnect()  # the next call starts it again, and compares before it calls

    def _rest(self, resting: bool) -> None:
        """Stop a server that nobody uses for a while; the next call starts it again."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if resting:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(self.config.entry.idle_seconds, self._end)

    def _end(self) -> None:
        self._ending = asyncio.ensure_future(self._disconnect())

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        self._rest(False)
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        if self._ending is not None:
            await self._ending
        await self._disconnect()

    # What a server has nothing of

    async def run_command(self, name: str, arguments: str = "", *, timeout: float | None = None) -> Any:
        raise Problem("not_found", f"{self.name} has no command {name[:80]}.", commands=[])

    async def hook(
        self, event: dict[str, Any], index: int, *, timeout: float | None = None, signal: bool = False
    ) -> HookOutcome:
        return HookOutcome(None, None, False)

    def hold(self, held: bool) -> None:
        """Policy asks before the server is reached, so no time of its own runs meanwhile."""

    def stop(self, problem: Problem) -> None:
        """Take it out of use, and end it."""
        self.stopped = problem
        self._end()

    def effect(self, name: str) -> EffectClass:
        """What a call may do: `unsafe` unless a person wrote the tool's own name under `read_only`."""
        definition = self._tools.get(name)
        return "read" if definition is not None and definition.name in self.config.entry.read_only else "unsafe"

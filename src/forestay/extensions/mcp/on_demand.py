"""A server's connection: opens when a call needs it, and closes after an idle time.

N1  `use` provides a connection that stays open until the work is done. Two simultaneous uses share one start.
N2  A server's offer is checked after each start and after each reported change, before any call.
N3  After a failed start, the next start must wait, each time twice as long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from forestay.extensions.guests import Report
from forestay.extensions.mcp.definitions import Definition
from forestay.extensions.mcp.server_config import ServerConfig
from forestay.kernel import Clock, Problem

if TYPE_CHECKING:
    from forestay.extensions.mcp.connection import Connection
    from forestay.extensions.mcp.lines import AddressLine, ProgramLine
    from forestay.extensions.mcp.requests import ServerRequests

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
T = TypeVar("T")
OpenLine = Callable[[], "ProgramLine | AddressLine"]


class OnDemand:
    """The connection to one server. `look` checks its offer (N2); `answers` makes the object for its requests."""

    def __init__(
        self,
        config: ServerConfig,
        line: OpenLine,
        answers: Callable[[list[str]], ServerRequests],
        look: Callable[[list[Definition]], None],
        *,
        report: Report,
        clock: Clock,
    ) -> None:
        self._config = config
        self._line = line
        self._answers = answers
        self._look = look
        self._report = report
        self._clock = clock
        self._connection: Connection | None = None
        self._starting = asyncio.Lock()
        self._busy = 0
        self._failures, self._not_before = 0, 0.0
        self._used_at = 0.0
        self._idle: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[None] | None = None

    async def use(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` with a connection that stays open until it is done (N1)."""
        self._busy += 1
        try:
            connection = self._connection
            if connection is None or not connection.usable:
                connection = await self._connected()
            return await work(connection)
        finally:
            self._busy -= 1
            self._used_at = asyncio.get_running_loop().time()
            if self._idle is None:
                self._rest(self._config.entry.idle_seconds)

    @property
    def about(self) -> dict[str, Any]:
        """The server's self-description while it is connected."""
        return self._connection.server if self._connection is not None else {}

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.usable

    def end(self) -> None:
        """Close the connection soon; the next use opens another."""
        self._ending = asyncio.ensure_future(self._disconnect())

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        if self._ending is not None:
            await self._ending
        await self._disconnect()

    async def _connected(self) -> Connection:
        async with self._starting:
            if self._connection is not None and self.connected:
                return self._connection
            await self._disconnect()
            self._check_wait()
            line = self._line()
            connection = self._made(line)
            try:
                await connection.start(self._config.entry.start_seconds)
                self._look(await connection.offered())
            except Problem as problem:
                await connection.close()
                self._failed_to_start(problem)
                raise
            except BaseException:
                await connection.close()
                raise
            self._failures, self._connection = 0, connection
            self._report("server_started", {"fingerprint": self._config.fingerprint, **line.facts})
            return connection

    def _made(self, line: ProgramLine | AddressLine) -> Connection:
        from forestay.extensions.mcp.connection import Connection  # the protocol's package is large

        seconds = self._config.entry.start_seconds
        answers = self._answers(line.folders)
        return Connection(line, self._config.name, answers, seconds=seconds, on_change=self._look_again)

    def _check_wait(self) -> None:
        """Refuse a start during the waiting time (N3)."""
        left = self._not_before - self._clock.monotonic()
        if self._failures and left > 0:
            told = f"The MCP server {self._config.name} failed to start; the next attempt is possible in {left:.0f} s."
            wait = int(left * 1000)
            raise Problem("unavailable", told, retry_after_ms=wait, server=self._config.name, wait_ms=wait)

    def _failed_to_start(self, problem: Problem) -> None:
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2**self._failures)
        self._failures += 1
        self._not_before = self._clock.monotonic() + wait
        self._report("server_failed", {"problem": problem.key, "message": problem.message, "wait_seconds": wait})

    def _look_again(self) -> None:
        """Check the offer again after a reported change; further reports during the check are ignored (N2)."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._looked())

    async def _looked(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            self._look(await connection.offered())
        except Problem as problem:
            self._report("server_failed", {"problem": problem.key, "message": problem.message})
            await self._disconnect()  # the next call starts it again, and compares first

    def _rest(self, seconds: float) -> None:
        """Check after `seconds` whether the connection is idle. There is only one timer."""
        self._idle = asyncio.get_running_loop().call_later(seconds, self._rested)

    def _rested(self) -> None:
        """Stop the server after its idle time; the next call starts it again."""
        self._idle = None
        left = self._used_at + self._config.entry.idle_seconds - asyncio.get_running_loop().time()
        if self._busy:
            return  # the end of that use starts the timer again
        if left > 0:
            self._rest(left)
        else:
            self.end()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

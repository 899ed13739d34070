"""One connection to a server: handshake, tools and calls; every wait has a limit.

K1  A request without an answer in its time is cancelled, and the server is told. Progress restarts the time, up to a
    fixed last moment.
K2  A request is sent once. When the connection ends, waiting callers get a Problem at once, with the server's last
    words.
K3  `ServerRequests` answers the server's own requests (sampling, elicitation, roots). Meanwhile the server's time does
    not run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.client.session import IncomingMessage
from pydantic import BaseModel, ValidationError

from forestay.extensions.mcp.definitions import MAX_TOOLS, Definition
from forestay.extensions.mcp.hidden_text import spelled
from forestay.extensions.mcp.offer import (
    RESOURCE_TOOLS,
    from_prompt,
    from_resource,
    from_resources,
    of_prompt,
    of_tool,
    prompt_params,
)
from forestay.extensions.mcp.request_time import RequestTime
from forestay.extensions.mcp.requests import ServerRequests
from forestay.kernel import Problem

MAX_PAGES = 64
T = TypeVar("T", bound=BaseModel)
P = TypeVar("P", bound=types.PaginatedResult)


class Line(Protocol):
    """A transport that can be opened once, and that knows why the connection failed."""

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Open the streams of a client session."""

    folders: list[str]
    """The folders that its server is granted."""
    held: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while the line waits for a person."""

    def failure(self) -> Problem | None:
        """Return why it ended, if known."""

    def last_words(self) -> str: ...


class Connection:
    """An open connection. Its own task opens and closes it."""

    def __init__(
        self, line: Line, name: str, requests: ServerRequests, *, seconds: float, on_change: Callable[[], None]
    ) -> None:
        self._line = line
        self._requests = requests
        requests.held = line.held = self._held
        self._waits: set[RequestTime] = set()
        self._name = name
        self._seconds = seconds
        self._on_change = on_change
        self._session: ClientSession | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.server: dict[str, Any] = {}
        """The server's self-description from the handshake."""

    async def start(self, seconds: float) -> None:
        """Open the transport and shake hands, within `seconds`."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._live(opened, seconds))
        try:
            await asyncio.shield(opened)
        except BaseException:
            opened.cancel()
            await self.close()
            raise

    async def _live(self, opened: asyncio.Future[None], seconds: float) -> None:
        """The connection's task: it enters and leaves the transport and the session."""
        from forestay import __version__

        try:
            async with (
                self._line.open() as (read, write),
                ClientSession(
                    read,
                    write,
                    message_handler=self._heard,
                    sampling_callback=self._requests.sampling,
                    elicitation_callback=self._requests.elicitation,
                    list_roots_callback=self._requests.roots,
                    client_info=types.Implementation(name="forestay", version=__version__),
                ) as session,
            ):
                async with RequestTime(seconds, self._waits):
                    about = await session.initialize()
                self.server = about.model_dump(mode="json", by_alias=True, exclude_none=True)
                self._session = session
                _settle(opened, None)
                await self._closing.wait()
        except BaseException as error:
            _settle(opened, self._problem(error, "the handshake"))
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._session = None
            _settle(opened, self._problem(None, "the handshake"))

    @property
    def usable(self) -> bool:
        return self._session is not None and self._line.failure() is None

    async def close(self) -> None:
        """End the connection, and the server's program with it."""
        self._closing.set()
        task, self._task = self._task, None
        if task is None:
            return
        if self._session is None:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)

    # Requests

    async def offered(self) -> list[Definition]:
        """List everything that the server offers: tools, access to its resources, prompts. Too many are a Problem."""
        found: list[Definition] = []
        async for page in self._pages(types.ListToolsRequest, types.ListToolsResult, "tools/list"):
            self._add(found, [of_tool(tool) for tool in page.tools])
        can = self.server.get("capabilities", {})
        if "resources" in can:
            taken = {item.name for item in found}
            self._add(found, [item for item in RESOURCE_TOOLS if item.name not in taken])
        if "prompts" in can:
            async for shown in self._pages(types.ListPromptsRequest, types.ListPromptsResult, "prompts/list"):
                self._add(found, [of_prompt(prompt) for prompt in shown.prompts])
        return found

    def _add(self, found: list[Definition], more: list[Definition]) -> None:
        found += more
        if len(found) > MAX_TOOLS:
            told = f"The MCP server {self._name} offers more than {MAX_TOOLS} tools."
            raise Problem("server_failed", told, server=self._name, limit=MAX_TOOLS)

    async def _pages(self, request: type[Any], answer: type[P], what: str) -> AsyncIterator[P]:
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._ask(request(params=params), answer, what, self._seconds)
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return
        raise Problem(
            "server_failed", f"The answer to {what} of {self._name} has more than {MAX_PAGES} pages.", server=self._name
        )

    async def call(self, definition: Definition, arguments: dict[str, Any], *, seconds: float) -> types.CallToolResult:
        """Make the call of a definition once (K2). An error answer of the server is a `tool_failed`."""
        name, what = definition.name, f"the tool {definition.name[:80]}"
        if definition.kind == "prompt":
            asked = types.GetPromptRequest(params=prompt_params(definition, arguments))
            return from_prompt(await self._ask(asked, types.GetPromptResult, what, seconds))
        if definition.kind == "resources":
            listing = types.ListResourcesRequest(params=types.PaginatedRequestParams(cursor=arguments.get("cursor")))
            return from_resources(await self._ask(listing, types.ListResourcesResult, what, seconds))
        if definition.kind == "resource":
            reading = types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=arguments["uri"]))
            return from_resource(await self._ask(reading, types.ReadResourceResult, what, seconds))
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        return await self._ask(types.CallToolRequest(params=params), types.CallToolResult, what, seconds)

    async def _ask(
        self,
        request: types.ClientRequest,
        answer: type[T],
        what: str,
        seconds: float,
    ) -> T:
        session = self._session
        if session is None:
            raise self._problem(None, what)
        try:
            async with RequestTime(seconds, self._waits) as wait:
                return await session.send_request(request, answer, progress_callback=wait.heard)
        except MCPError as error:
            if not self.usable or _is_end(error):
                raise self._problem(error, what) from error
            words = spelled(str(error))[:2000]
            raise Problem("tool_failed", words or f"{what} failed.", server=self._name, code=error.code) from error
        except (TimeoutError, ValidationError, RuntimeError, ValueError) as error:
            raise self._problem(error, what, seconds) from error

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Stop the time of the current requests while the host answers the server's question (K3)."""
        waits = [wait for wait in self._waits if wait.hold()]
        try:
            yield
        finally:
            for wait in waits:
                wait.go_on()

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification | types.PromptListChangedNotification):
            self._on_change()

    def _problem(self, error: BaseException | None, what: str, seconds: float | None = None) -> Problem:
        """Return a failure of the connection as a Problem, with the server's last words."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        known = self._line.failure() or _first_problem(error)
        words: dict[str, Any] = {"stderr": said[-2000:]} if (said := self._line.last_words()) else {}
        if isinstance(error, TimeoutError) and (known is None or known.key == "server_failed"):
            after = f" for {seconds:g} seconds" if seconds is not None else " in time"
            told = f"The MCP server {self._name} sent nothing{after} about {what}."
            return Problem("timeout", told, server=self._name, **words)
        if known is not None:
            return Problem(known.key, known.message, **{"server": self._name, **known.details, **words})
        if isinstance(error, ValidationError):
            told = f"The MCP server {self._name} gave an answer to {what} that does not fit the protocol."
            return Problem("server_failed", told, server=self._name, **words)
        if _is_end(error):
            return Problem("server_failed", f"The MCP server {self._name} ended.", server=self._name, **words)
        reason = f": {spelled(str(error) or type(error).__name__)[:500]}" if error is not None else ""
        return Problem("server_failed", f"The MCP server {self._name} failed at {what}{reason}.", **words)


def _is_end(error: BaseException | None) -> bool:
    """Whether the error means that the connection is closed (the package reports that as an error answer)."""
    return isinstance(error, MCPError) and (error.code, str(error)) == (types.CONNECTION_CLOSED, "Connection closed")


def _settle(opened: asyncio.Future[None], problem: Problem | None) -> None:
    if opened.done():
        return
    if problem is None:
        opened.set_result(None)
    else:
        opened.set_exception(problem)
        opened.exception()


def _first_problem(error: BaseException | None) -> Problem | None:
    """Return the first Problem in an error's chain of causes, if there is one."""
    if error is None or isinstance(error, Problem):
        return error
    return _first_problem(error.__cause__)

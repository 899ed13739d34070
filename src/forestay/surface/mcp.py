"""The host as an MCP server at `/mcp`: streamable HTTP, one request a POST, no session.

M1  A tool call makes requests with its caller's key, which pass the same admission as any other.
M2  A page of another site reaches nothing: an `Origin` that a browser sends must be the host's own. (A request for
    another name does not get here: N1 of `host_names`.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import forestay
from forestay.client import AsyncClient
from forestay.kernel import Clock, Ids, Problem
from forestay.surface.exchange import request_id
from forestay.surface.inner_transport import InnerTransport
from forestay.surface.mcp_tools import served_tools
from forestay.surface.negotiation import JSON
from forestay.surface.operations import Call, Operations
from forestay.surface.relayed import Relayed

MCP_PATH = "/mcp"
api = Operations["McpEndpoint"](contract="mcp", tag="mcp")


class McpEndpoint:
    """Answers MCP requests of any caller. `door` returns the application with every operation; `url` is its address."""

    def __init__(self, door: Callable[[], ASGIApp], url: str, clock: Clock, ids: Ids) -> None:
        self._door = door
        self._url = url
        self._clock = clock
        self._ids = ids

    @api.post(
        MCP_PATH,
        "mcp.rpc",
        dict[str, Any],
        body=dict[str, Any],
        streams=True,  # a tool call waits for its run, with or without a stream
    )
    async def rpc(self, call: Call) -> Response:
        """One message of the Model Context Protocol: its tools ask agents and start, follow, answer and cancel runs."""
        check_site(call.request, self._url)
        if "content-type" not in call.request.headers:
            raise Problem("unsupported_media_type", "The body does not say what it is.", expected=JSON)
        return Relayed(self._serve, call.data)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one message, in a task group of its own."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from forestay.envelope import mcp_server

        async with self._client(Request(scope)) as client:
            tools = partial(served_tools, client, self._clock, self._ids)
            server = mcp_server(tools, "forestay", version=forestay.__version__)
            manager = StreamableHTTPSessionManager(server, stateless=True)
            async with manager.run():
                await manager.handle_request(scope, receive, send)

    def _client(self, request: Request) -> AsyncClient:
        """Return a client of this host with the key of `request` (M1)."""
        key = request.headers["authorization"].split()[-1]
        names = {"x-request-id": request_id(request), "traceparent": request.headers.get("traceparent", "")}
        headers = {name: value for name, value in names.items() if value}
        return AsyncClient(self._url, key, patience=0, transport=InnerTransport(self._door()), headers=headers)


def check_site(request: Request, url: str) -> None:
    """Refuse a request that a page of another site could have made (M2)."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc not in (request.headers.get("host", ""), urlsplit(url).netloc):
        raise Problem("permission_denied", f"Pages of {origin[:200]!r} may not use this host.", at="Origin")

"""A server at a URL: streamable HTTP, over connections to checked addresses only (P11).

H1  Each connection goes to a checked address (`connectors/addresses.py`). The name is used for TLS and `Host`.
    A private, loopback or link-local address is reachable if the approved URL or a grant names exactly that address.
H2  A redirect to another origin is an error that names it; nothing is sent there.
H3  A host other than the server's own (its authorization server) needs TLS, unless a grant names it.
H4  An answer has a size limit. Compressed answers are refused.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from forestay.extensions.connectors.addresses import Resolver, canonical_host, checked, resolve_host
from forestay.kernel import Problem

MAX_ANSWER = 8 * 1024 * 1024
MAX_EVENT = 4 * 1024 * 1024
CONNECT_SECONDS = 15.0
_MOST_ADDRESSES = 3


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends a request to a checked address of its host (H1) and limits the answer (H4)."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, granted: Callable[[str], bool], resolver: Resolver) -> None:
        self._inner = inner
        self._granted = granted
        self._resolver = resolver
        self.failure: Problem | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = canonical_host(request.url.host)
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            self._check_tls(request.url.scheme, host)
            addresses = await asyncio.to_thread(checked, host, port, self._granted, self._resolver)
        except Problem as problem:
            self.failure = problem
            raise httpx2.ConnectError(problem.message, request=request) from problem
        response = await self._first(request, host, addresses[:_MOST_ADDRESSES])
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise self._failed("The MCP server compressed its answer, although the request forbids that.")
        if "text/event-stream" not in response.headers.get("content-type", ""):  # an event has its own limit
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream, self._failed)
        return response

    def _check_tls(self, scheme: str, host: str) -> None:
        """Require TLS, except for hosts that a person named in the approved URL or a grant (H3)."""
        if scheme != "https" and not self._granted(host):
            told = f"The connection to {host[:200]} would not use TLS."
            raise Problem("address_blocked", told, host=host[:200], fix="Use an https address.")

    def _failed(self, words: str) -> httpx2.ReadError:
        """Remember why the connection failed: the layers above only learn that it ended."""
        self.failure = Problem("server_failed", words)
        return httpx2.ReadError(words)

    async def _first(self, request: httpx2.Request, host: str, addresses: list[str]) -> httpx2.Response:
        for number, address in enumerate(addresses, start=1):
            directed = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._inner.handle_async_request(directed)
            except httpx2.ConnectError:
                if number == len(addresses):
                    raise
        raise AssertionError("a host has at least one address")

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A body that raises an error when it exceeds its limit."""

    def __init__(self, inner: httpx2.AsyncByteStream, failed: Callable[[str], httpx2.ReadError]) -> None:
        self._inner = inner
        self._failed = failed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for part in self._inner:
            total += len(part)
            if total > MAX_ANSWER:
                raise self._failed(f"The MCP server gave an answer of more than {MAX_ANSWER} bytes.")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def http_streams(
    url: str,
    headers: Mapping[str, str],
    transport: CheckedTransport,
    *,
    auth: httpx2.Auth | None = None,
    quiet_seconds: float,
) -> AsyncIterator[Any]:
    """Open the two streams of a client session; `auth` signs each request."""
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=quiet_seconds)
    fixed = {**headers, "accept-encoding": "identity"}
    client = httpx2.AsyncClient(transport=transport, headers=fixed, timeout=timeout, auth=auth, trust_env=False)
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=MAX_EVENT) as streams:
        yield streams


def checked_transport(granted: Callable[[str], bool]) -> CheckedTransport:
    """Make the transport of one server; `granted` tells whether a special address was granted by name."""
    inner = httpx2.AsyncHTTPTransport(verify=ssl.create_default_context(), trust_env=False)
    return CheckedTransport(inner, granted, resolve_host)

"""Connects a client to an application of this process, without a socket; streams arrive while they are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
from starlette.types import ASGIApp, Message

_CHUNKS = 16  # by which the application may be ahead of its reader


class InnerTransport(httpx.AsyncBaseTransport):
    """Passes each request to `app`. A reader that leaves counts as a client that disconnects."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(await request.aread())
        task = asyncio.create_task(exchange.run(self._app, _scope(request)))
        try:
            status, headers = await exchange.started
        except BaseException:
            task.cancel()
            raise
        return httpx.Response(status, headers=headers, stream=_Chunks(exchange, task), request=request)


class _Exchange:
    """One request and its answer, as an application sees them."""

    def __init__(self, body: bytes) -> None:
        self.started: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]] = asyncio.get_running_loop().create_future()
        self.chunks: asyncio.Queue[bytes | httpx.ReadError | None] = asyncio.Queue(_CHUNKS)
        self._body: bytes | None = body
        self._gone = asyncio.Event()

    async def run(self, app: ASGIApp, scope: dict[str, object]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - the reader gets it like a broken connection
            broken = httpx.ReadError(str(error))
            if not self.started.done():
                self.started.set_exception(broken)
            else:
                await self.chunks.put(broken)
        await self.chunks.put(None)

    def leave(self) -> None:
        self._gone.set()

    async def _receive(self) -> Message:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not self.started.done():
                self.started.set_result((message["status"], list(message.get("headers", ()))))
        elif chunk := message.get("body", b""):
            await self.chunks.put(chunk)


class _Chunks(httpx.AsyncByteStream):
    """The body of an answer."""

    def __init__(self, exchange: _Exchange, task: asyncio.Task[None]) -> None:
        self._exchange = exchange
        self._task = task

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._exchange.chunks.get()) is not None:
            if isinstance(chunk, httpx.ReadError):
                raise chunk
            yield chunk

    async def aclose(self) -> None:
        self._exchange.leave()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


def _scope(request: httpx.Request) -> dict[str, object]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": None,
        "root_path": "",
    }

"""Server-sent events: writing a frame, waiting with a keep-alive, and the answer that stays open.

S5  A slow reader holds back only its own stream: the events that it has not read stay in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Generic, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forestay.surface.exchange import Refused
from forestay.surface.negotiation import EVENTS

KEEPALIVE_SECONDS = 15.0
KEEPALIVE = b":keepalive\n\n"
SEND_SECONDS = 120.0
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
_log = logging.getLogger("forestay.surface")
T = TypeVar("T")
U = TypeVar("U")


def frame(data: bytes, event: str = "", id: int | None = None) -> bytes:
    """Return the frame of one event; each line of `data` is a line of its own."""
    head = (b"" if id is None else b"id: %d\n" % id) + (b"event: %b\n" % event.encode() if event else b"")
    return head + b"data: %b\n\n" % data.replace(b"\n", b"\ndata: ")


class Awaited(Generic[T]):
    """Waits for the next item of a source in steps: a wait that times out loses no item."""

    def __init__(self, source: AsyncIterator[T]) -> None:
        self._source = source
        self._pending: asyncio.Future[T | None] | None = None

    async def ready(self, seconds: float) -> bool:
        """Whether the next item, or the end, arrives within `seconds`."""
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._following())
        done, _ = await asyncio.wait({self._pending}, timeout=max(0.0, seconds))
        return bool(done)

    def take(self) -> T | None:
        """Return the item that is ready; None at the end."""
        assert self._pending is not None
        pending, self._pending = self._pending, None
        return pending.result()

    async def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._pending
        if isinstance(self._source, AsyncGenerator):
            await self._source.aclose()

    async def _following(self) -> T | None:
        return await anext(self._source, None)


async def beside(main: AsyncIterator[T], aside: AsyncIterator[U]) -> AsyncGenerator[T | U, None]:
    """Yield the items of both sources as they come; end with `main`."""
    first, second = asyncio.ensure_future(anext(main, None)), asyncio.ensure_future(anext(aside, None))
    try:
        while True:
            await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
            if second.done() and (notice := second.result()) is not None:
                yield notice
                second = asyncio.ensure_future(anext(aside, None))
            elif first.done():
                if (item := first.result()) is None:
                    return
                yield item
                first = asyncio.ensure_future(anext(main, None))
            else:
                await asyncio.wait({first})  # there will be no more notices
    finally:
        for pending, source in ((first, main), (second, aside)):
            pending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await pending
            if isinstance(source, AsyncGenerator):
                await source.aclose()


class EventStream(Response):
    """An open answer: sends frames as they come, until they end, or the reader goes or stops reading (S5)."""

    media_type = EVENTS

    def __init__(
        self, frames: AsyncGenerator[bytes, None], closing: asyncio.Event, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(None, 200, {**_HEADERS, **(headers or {})})
        self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]
        self._frames = frames
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        tasks = [
            asyncio.ensure_future(self._pump(send)),
            asyncio.ensure_future(_gone(receive)),
            asyncio.ensure_future(self._closing.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(results[0], Exception) and not isinstance(results[0], TimeoutError | Refused):
            _log.error("a stream broke off", exc_info=results[0])  # its reader comes back with Last-Event-ID
        if tasks[1].cancelled() and not isinstance(results[0], Refused):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        async with contextlib.aclosing(self._frames) as source:
            async for item in source:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": item, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""Both networks: from clients to a host, and from a host to the outside. Slow, reordering, lossy, repeating.

A message waits for a time of its own, so messages overtake each other. A request may be lost before the host sees it,
its answer may be lost afterwards, and the network may bring a request twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import TYPE_CHECKING, Any

import httpx

from tests.simulation.machine import Process

if TYPE_CHECKING:
    from tests.simulation.outside import Outside


class Weather:
    """How bad the networks are: chances between 0 and 1. `calm` is for good."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.lost = chance.choice((0.0, 0.02, 0.1, 0.25))
        self.repeated = chance.choice((0.0, 0.05, 0.2))
        self.slow = chance.choice((0.002, 0.05, 1.5))

    def calm(self) -> None:
        self.lost = self.repeated = 0.0
        self.slow = 0.002

    def is_lost(self) -> bool:
        return self._chance.random() < self.lost

    def is_repeated(self) -> bool:
        return self._chance.random() < self.repeated

    async def travel(self) -> None:
        await asyncio.sleep(self._chance.random() ** 3 * self.slow)


class ToHost(httpx.AsyncBaseTransport):
    """A client's way to whichever process serves now. `find` gives it with its door, None while there is none."""

    def __init__(self, weather: Weather, find: Callable[[], tuple[Process, httpx.AsyncBaseTransport] | None]) -> None:
        self._weather = weather
        self._find = find
        self._echoes: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        await self._weather.travel()
        if self._weather.is_lost():
            raise httpx.ConnectError("the request was lost", request=request)
        if self._weather.is_repeated():
            echo = asyncio.ensure_future(self._again(request))
            self._echoes.add(echo)
            echo.add_done_callback(self._echoes.discard)
        answer = await self._delivered(request)
        await self._weather.travel()
        if self._weather.is_lost():
            await answer.aclose()
            raise httpx.ReadError("the answer was lost", request=request)
        return answer

    async def _delivered(self, request: httpx.Request) -> httpx.Response:
        found = self._find()
        if found is None:
            raise httpx.ConnectError("refused", request=request)
        process, door = found
        return await until_death(process, process.spawn(_answered(door, request, process, self._weather)))

    async def _again(self, request: httpx.Request) -> None:
        await self._weather.travel()
        await self._weather.travel()
        try:
            answer = await self._delivered(request)
            await answer.aclose()
        except httpx.HTTPError:
            pass


async def _answered(
    door: httpx.AsyncBaseTransport, request: httpx.Request, process: Process, weather: Weather
) -> httpx.Response:
    """The answer with its whole body, or, of a stream, with a body that breaks when its host dies."""
    answer = await door.handle_async_request(request)
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        await answer.aread()
        return answer
    assert isinstance(answer.stream, httpx.AsyncByteStream)
    stream = _Breaking(answer.stream, process, weather)
    return httpx.Response(answer.status_code, headers=answer.headers, stream=stream, request=request)


class _Breaking(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, process: Process, weather: Weather) -> None:
        self._inner = inner
        self._process = process
        self._weather = weather

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._inner)
        while True:
            try:
                chunk = await until_death(self._process, self._process.spawn(_next(chunks)))
            except EOFError:
                return
            if self._weather.is_lost():
                raise httpx.ReadError("the connection broke")
            yield chunk

    async def aclose(self) -> None:
        if self._process.alive:
            await until_death(self._process, self._process.spawn(self._inner.aclose()))


async def _next(chunks: AsyncIterator[bytes]) -> bytes:
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        raise EOFError from None


async def until_death(process: Process, task: asyncio.Task[Any]) -> Any:
    """What `task` of `process` gives; a broken connection when the process dies first."""
    try:
        await asyncio.wait({task, process.died}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        raise httpx.ReadError("the host is gone")
    if task.cancelled():
        raise httpx.ReadError("the host stopped")
    return task.result()


class ToOutside(httpx.AsyncBaseTransport):
    """A host's way to the outside."""

    def __init__(self, weather: Weather, outside: Outside, process: Process) -> None:
        self._weather = weather
        self._outside = outside
        self._process = process

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        if not self._process.alive:
            raise httpx.ConnectError("the dead send nothing", request=request)
        self._outside.sent(request, body)
        await self._weather.travel()
        if self._weather.is_lost():
            raise httpx.ConnectError("the request was lost", request=request)
        status, answer = self._outside.arrived(request, body)
        if self._weather.is_repeated():
            self._outside.arrived(request, body)
        await self._weather.travel()
        if self._weather.is_lost():
            raise httpx.ReadError("the answer was lost", request=request)
        return httpx.Response(status, content=json.dumps(answer).encode(), request=request)

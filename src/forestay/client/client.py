"""`Client`: `AsyncClient` for plain code. Its coroutines run on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from forestay.client.async_client import AsyncClient, AsyncRelaySession

P = ParamSpec("P")
T = TypeVar("T")


class Closing(Protocol):
    async def close(self) -> None: ...


A = TypeVar("A", bound=Closing)


class Loop:
    """An event loop in a thread, so that the caller may run inside another loop, as in a notebook."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forestay-client", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Return the result of a coroutine; cancel it when the caller is interrupted."""

        async def awaited() -> T:
            return await awaitable

        future = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """Yield the items of an asynchronous generator, one by one."""
        try:
            while True:
                try:
                    item = self.run(anext(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if not self._loop.is_closed():
                self.run(items.aclose())

    def close(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking(Generic[A]):
    """The blocking face of an asynchronous object."""

    def __init__(self, loop: Loop, inner: A) -> None:
        self._loop = loop
        self._inner = inner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._loop.run(self._inner.close())


def _blocking(method: Callable[Concatenate[A, P], Awaitable[T]]) -> Callable[Concatenate[Blocking[A], P], T]:
    @functools.wraps(method)
    def call(self: Blocking[A], /, *arguments: P.args, **options: P.kwargs) -> T:
        return self._loop.run(method(self._inner, *arguments, **options))

    return call


def _iterating(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Blocking[A], P], Iterator[T]]:
    @functools.wraps(method)
    def call(self: Blocking[A], /, *arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        return self._loop.each(method(self._inner, *arguments, **options))

    return call


class Client(Blocking[AsyncClient]):
    """`with Client() as client: client.run("order", {"pieces": 3})`."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 90,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        async def pause(seconds: float) -> None:
            await asyncio.to_thread(sleep, seconds)

        super().__init__(Loop(), AsyncClient(url, key, timeout=timeout, sleep=pause))
        self.url = self._inner.url

    def close(self) -> None:
        super().close()
        self._loop.close()

    send = _blocking(AsyncClient.send)
    start = _blocking(AsyncClient.start)
    get = _blocking(AsyncClient.get)
    cancel = _blocking(AsyncClient.cancel)
    pause = _blocking(AsyncClient.pause)
    resume = _blocking(AsyncClient.resume)
    fork = _blocking(AsyncClient.fork)
    answer = _blocking(AsyncClient.answer)
    put_workflow = _blocking(AsyncClient.put_workflow)
    questions = _blocking(AsyncClient.questions)
    agents = _blocking(AsyncClient.agents)
    wait = _blocking(AsyncClient.wait)
    run = _blocking(AsyncClient.run)
    ask = _blocking(AsyncClient.ask)
    runs = _iterating(AsyncClient.runs)
    events = _iterating(AsyncClient.events)

    def relay(self, app_id: str, config: dict[str, Any] | None = None) -> RelaySession:
        """Open a relay session on the host; its `with` block closes it."""
        return RelaySession(self._loop, self._loop.run(self._inner.relay(app_id, config)))


class RelaySession(Blocking[AsyncRelaySession]):
    """A relay session: ingests facts, and dispatches tasks whose answers may pass the model's window."""

    @property
    def session_id(self) -> str:
        return self._inner.session_id

    ingest = _blocking(AsyncRelaySession.ingest)
    dispatch = _blocking(AsyncRelaySession.dispatch)
    facts = _blocking(AsyncRelaySession.facts)

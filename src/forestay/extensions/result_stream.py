"""Streams results from a connector's thread to a reader: in parts, in order, with a limited buffer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import msgspec

from forestay.extensions.connectors.contract import Output
from forestay.extensions.protocol import Backpressure, Chunk
from forestay.kernel import Problem

CREDITS = 16
"""How many parts of a streamed result may wait for their reader."""


class Part(msgspec.Struct, frozen=True):
    output: Output
    chunk: Chunk


class ResultStream:
    """Buffers parts between a connector's thread and a reader, at most CREDITS at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[Part | None] = asyncio.Queue()
        self._credits = threading.Semaphore(CREDITS)
        self._left = CREDITS
        self._lock = threading.Lock()
        self._abandoned = threading.Event()
        self._taken = asyncio.Event()
        self.index = 0

    def emit(self, output: Output) -> None:
        if not self._on_loop():  # a connector on the loop must not block it: it awaits `room` first
            while not self._credits.acquire(timeout=0.05):
                if self._abandoned.is_set():
                    raise Problem("cancelled", "The reader of the result is gone.")
        with self._lock:
            self._left = max(0, self._left - 1)
            part = Part(output, Chunk(self.index, False, Backpressure(credits=self._left)))
            self.index += 1
        self._loop.call_soon_threadsafe(self._queue.put_nowait, part)

    def _on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def room(self) -> None:
        """Wait until there is room for another part."""
        while self._left <= 0 and not self._abandoned.is_set():
            self._taken.clear()
            await self._taken.wait()

    def finish(self) -> None:
        self._queue.put_nowait(None)

    def abandon(self) -> None:
        self._abandoned.set()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._taken.set)

    async def parts(self, patience: float | None) -> AsyncIterator[Part]:
        async with asyncio.timeout(patience):
            while (part := await self._queue.get()) is not None:
                yield part
                with self._lock:
                    self._left = min(CREDITS, self._left + 1)
                self._taken.set()
                self._credits.release()


def own_thread(loop: asyncio.AbstractEventLoop, work: Callable[[], Output]) -> asyncio.Future[Output]:
    """Run a call that may take long on its own thread, so that short calls never wait for it."""
    future: asyncio.Future[Output] = loop.create_future()

    def settle(output: Output | None, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(output or {})
            else:
                future.set_exception(error)

    def run() -> None:
        output: Output | None = None
        failure: BaseException | None = None
        try:
            output = work()
        except BaseException as error:  # noqa: BLE001 - passed to the loop, which answers
            failure = error
        try:
            loop.call_soon_threadsafe(settle, output, failure)
        except RuntimeError:
            pass  # the loop is closed; nobody waits

    threading.Thread(target=run, name="forestay-connector-long", daemon=True).start()
    return future

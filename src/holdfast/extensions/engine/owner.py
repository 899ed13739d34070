"""The thread that owns a VM: everything that touches the VM is done here, in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from holdfast.extensions.engine.native import THREAD_STACK

_starting = threading.Lock()


class Owner:
    """Runs one piece of work after the other, and hands each result to the event loop."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-vm-{name}"[:60], daemon=True)
        with _starting:  # the size of a new thread's stack is a setting of the process
            before = threading.stack_size(THREAD_STACK)
            try:
                self._thread.start()
            finally:
                threading.stack_size(before)

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do `work`, then `done(result)` on the event loop; what `work` raises is its result."""
        self._queue.put((work, done))

    def stop(self) -> None:
        """End after the work that is queued."""
        self._queue.put(None)

    async def join(self) -> None:
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - the thread's outermost boundary: the loop gets it
                result = error
            try:
                self._loop.call_soon_threadsafe(done, result)
            except RuntimeError:  # the loop is closed: nobody is interested any more
                return
            del item, work, done, result

"""A program that the host itself provides: it runs on the event loop, and the `exec` connector uses it as a process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import queue
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError

from forestay.extensions.connectors.contract import Call, Output
from forestay.extensions.pi_program import Streams
from forestay.kernel import Problem

MAX_INPUT = 16 * 1024 * 1024
_TURN = 0.05

Serve = Callable[[Call, Sequence[str], str, Streams], Awaitable[int]]
"""Runs a program once: takes the call that starts it, its arguments, its folder and its streams."""


class Hosted:
    """One such program: `run` starts it on the loop and passes its output on, on the caller's thread."""

    def __init__(
        self,
        serve: Serve,
        loop: asyncio.AbstractEventLoop,
        argv: Sequence[str],
        cwd: str,
        *,
        stdin: bytes | None,
        live: bool,
    ) -> None:
        self._serve, self._loop, self._argv, self._cwd = serve, loop, argv, cwd
        self._written: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._typed: asyncio.Queue[str | None] = asyncio.Queue()
        self._partial = b""
        self._size = 0
        self._stopped: str | None = None
        self._task: asyncio.Task[int] | None = None
        if stdin is not None or not live:
            self.write(stdin or b"", end=True)

    def run(self, call: Call, *, timeout: float | None, limit: int) -> Output:
        """Run to the end; return {stdout, stderr, code, signal, killed, truncated}. A streaming call gets chunks."""
        until = None if timeout is None else time.monotonic() + timeout
        parts = {"stdout": bytearray(), "stderr": bytearray()}
        streams = Streams(
            lambda text: self._written.put(("stdout", text.encode())),
            lambda text: self._written.put(("stderr", text.encode())),
            self._typed.get,
        )
        if call.streaming:
            call.emit({"pid": 1})
        work = asyncio.run_coroutine_threadsafe(self._whole(call, streams), self._loop)
        truncated = False
        try:
            while (part := self._next(call, until)) is not None:
                name, data = part
                if call.streaming and data:
                    call.emit({"stream": name, "base64": base64.b64encode(data).decode()})
                elif data:
                    truncated = truncated or len(parts[name]) + len(data) > limit
                    parts[name] += data[: limit - len(parts[name])]
        except Problem:
            self.kill("cancelled")
            raise
        try:
            code: int | None = work.result()
        except (CancelledError, asyncio.CancelledError):
            code = None
        if call.cancelled.is_set():
            raise Problem("cancelled", "The call was cancelled; the program was stopped.")
        ended = {"code": code, "signal": None if code is not None else "SIGTERM", "killed": self._stopped is not None}
        whole = {"stdout": bytes(parts["stdout"]), "stderr": bytes(parts["stderr"])}
        return {**whole, **ended, "timed_out": self._stopped == "timeout", "truncated": truncated}

    async def _whole(self, call: Call, streams: Streams) -> int:
        try:
            if self._stopped is not None:
                raise asyncio.CancelledError  # stopped before it began
            self._task = asyncio.current_task()
            return await self._serve(call, self._argv, self._cwd, streams)
        finally:
            self._written.put(None)

    def _next(self, call: Call, until: float | None) -> tuple[str, bytes] | None:
        """Return the next part of the output; None at the end."""
        while True:
            late = until is not None and time.monotonic() >= until
            if self._stopped is None and (late or call.remaining(1.0) <= 0):
                self.kill("timeout")
            try:
                return self._written.get(timeout=_TURN)
            except queue.Empty:
                continue

    def write(self, data: bytes, *, end: bool) -> None:
        """Pass input on as whole lines; at the end also the unfinished line."""
        self._size += len(data)
        if self._size > MAX_INPUT:
            raise Problem("payload_too_large", "The input is larger than this program reads.", limit=MAX_INPUT)
        *lines, self._partial = (self._partial + data).split(b"\n")
        lines += [self._partial] if end and self._partial else []
        for line in lines:
            self._loop.call_soon_threadsafe(self._typed.put_nowait, line.decode("utf-8", "replace"))
        if end:
            self._loop.call_soon_threadsafe(self._typed.put_nowait, None)

    def signal(self, number: signal.Signals) -> None:
        self.kill(number.name)

    def kill(self, why: str) -> None:
        """Stop the program, even before it begins. (A task cancelled before its first step never reports its end.)"""
        self._stopped = self._stopped or why
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the program has ended
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

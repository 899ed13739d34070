"""A server that runs as a program and speaks JSON-RPC in lines on its standard input and output.

S1  The program runs in the process sandbox, in a session of its own; with the connection its whole tree ends.
S2  A line has a largest size, standard error keeps its end only, and what nobody asked for is rationed. A program that
    passes a limit is killed, and the Problem says which one.
S3  Whatever the program does, reading it costs the event loop one bounded step at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from forestay.extensions.connectors.process import kill_tree
from forestay.extensions.mcp.hidden_text import spelled
from forestay.extensions.mcp.ration import Ration
from forestay.extensions.sandbox import CLEAN, Launch
from forestay.kernel import Problem

MAX_LINE = 4 * 1024 * 1024
MAX_ERRORS = 8 * 1024
"""Bytes of standard error that are kept: the last ones."""
MAX_ERRORS_IN_ALL = 64 * 1024 * 1024
MAX_NOISE = 1000
"""Lines that are no messages: some programs greet on standard output."""
_CHUNK = 64 * 1024
_LARGE = 256 * 1024
_GRACE = 1.0
_FRAMES = ("Traceback (", "  ", "\t")
"""How lines of a stack trace begin. No answer of the host carries one, so the line that says why must stand alone."""

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


class ServerProgram:
    """One running server. `failure` says why the host ended it, or that it ended by itself."""

    def __init__(self, child: asyncio.subprocess.Process, name: str, ration: Ration) -> None:
        self._child = child
        self._name = name
        self._ration = ration
        self._noise = 0
        self._all_said = asyncio.Event()
        self._stopping = False
        self._errors = bytearray()
        self.failure: Problem | None = None

    @classmethod
    async def start(cls, launch: Launch, name: str, ration: Ration) -> ServerProgram:
        try:
            child = await asyncio.create_subprocess_exec(
                *launch.argv,
                cwd="/",
                env=CLEAN,
                pass_fds=[launch.descriptor],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise Problem("server_failed", f"The MCP server {name} cannot be started: {error.strerror}.") from error
        return cls(child, name, ration)

    @property
    def last_words(self) -> str:
        """The end of what it wrote to standard error: nothing hidden in it, and no frames of a stack."""
        said = bytes(self._errors).decode("utf-8", "replace").splitlines()
        return spelled("\n".join(line for line in said if not line.startswith(_FRAMES))).strip()

    async def read_messages(self, send: MemoryObjectSendStream[Incoming]) -> None:
        """Standard output as messages, until it ends or passes a limit (S2)."""
        assert self._child.stdout is not None
        line = bytearray()
        async with send:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                while self.failure is None and (chunk := await self._child.stdout.read(_CHUNK)):
                    first, *rest = chunk.split(b"\n")
                    line += first
                    for begun in rest:
                        await self._take(bytes(line), send)
                        line = bytearray(begun)
                    if len(line) > MAX_LINE:
                        self.fail(f"wrote a line of more than {MAX_LINE} bytes")
                await self._hear_out()
                self.fail("ended")

    async def _hear_out(self) -> None:
        """A program that ends says why on standard error, which is read a moment later than the end of its output."""
        if self.failure is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_said.wait(), _GRACE)

    async def _take(self, line: bytes, send: MemoryObjectSendStream[Incoming]) -> None:
        if self.failure is not None or not line.strip():
            return
        if len(line) > MAX_LINE:
            self.fail(f"wrote a line of more than {MAX_LINE} bytes")
            return
        try:
            message = await asyncio.to_thread(_message, line) if len(line) > _LARGE else _message(line)
        except ValueError:
            self._noise += 1
            if self._noise > MAX_NOISE:
                self.fail(f"wrote more than {MAX_NOISE} lines that are no messages")
            return
        if isinstance(message, types.JSONRPCRequest | types.JSONRPCNotification) and not self._ration.take():
            self.fail("sent more than it was asked for")
            return
        await send.send(SessionMessage(message))

    async def read_errors(self) -> None:
        """Standard error: its end is kept for the person who looks why it failed (S2)."""
        assert self._child.stderr is not None
        total = 0
        while self.failure is None and (chunk := await self._child.stderr.read(_CHUNK)):
            total += len(chunk)
            self._errors = (self._errors + chunk)[-MAX_ERRORS:]
            if total > MAX_ERRORS_IN_ALL:
                self.fail("wrote to its standard error without end")
            await asyncio.sleep(0)
        self._all_said.set()

    async def write_messages(self, receive: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """What the host says, one line a message; a program that does not read is noticed by whoever waits for it."""
        stdin = self._child.stdin
        assert stdin is not None
        async with receive:
            with contextlib.suppress(OSError):
                async for item in receive:
                    stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await stdin.drain()

    def fail(self, what: str) -> None:
        """End the program, for the first reason that there is."""
        if self.failure is None and not self._stopping:
            self.failure = Problem("server_failed", f"The MCP server {self._name} {what}.", server=self._name)
        self.kill()

    def kill(self) -> None:
        """End the whole tree: the group, and descendants that left it (S1)."""
        if self._child.returncode is None:
            kill_tree(self._child.pid)

    async def stop(self) -> None:
        """Close its input, give it a moment, then end it and wait for the end."""
        assert self._child.stdin is not None
        self._stopping = True
        self._child.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._child.wait(), _GRACE)
        self.kill()
        await self._child.wait()

    async def drain(self) -> None:
        """Read what is left in its pipes, so that they close. A survivor that holds one open gets a moment."""
        assert self._child.stdout is not None and self._child.stderr is not None
        for pipe in (self._child.stdout, self._child.stderr):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    while await pipe.read(_CHUNK):
                        pass


@asynccontextmanager
async def stdio_streams(program: ServerProgram) -> AsyncIterator[Streams]:
    """The two streams that a client session reads and writes. The program ends with the block."""
    incoming, read = anyio.create_memory_object_stream[Incoming](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.ensure_future(program.read_messages(incoming)),
        asyncio.ensure_future(program.read_errors()),
        asyncio.ensure_future(program.write_messages(outgoing)),
    ]
    try:
        yield read, write
    finally:
        stopping = asyncio.ensure_future(program.stop())
        with anyio.CancelScope(shield=True):
            await stopping
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await program.drain()
        for stream in (incoming, read, write, outgoing):
            stream.close()


def _message(line: bytes) -> types.JSONRPCMessage:
    return types.jsonrpc_message_adapter.validate_json(line, by_name=False)

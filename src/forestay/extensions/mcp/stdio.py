"""A server that runs as a program and exchanges JSON-RPC lines over its standard input and output.

S1  The program runs in the process sandbox and in its own session; its whole process tree ends with the connection.
S2  A line has a size limit, only the end of standard error is kept, and unsolicited messages are rationed. A program
    that exceeds a limit is killed, and the Problem names the limit.
S3  Whatever the program does, each read is one short step of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from forestay.extensions.connectors.process import kill_tree
from forestay.extensions.mcp.hidden_text import spelled
from forestay.extensions.mcp.ration import Ration
from forestay.extensions.sandbox import CLEAN, Launch
from forestay.kernel import Problem

MAX_LINE = 4 * 1024 * 1024
MAX_ERRORS = 8 * 1024
"""The number of last bytes of standard error that are kept."""
MAX_ERRORS_IN_ALL = 64 * 1024 * 1024
MAX_NOISE = 1000
"""The limit for lines that are not messages: some programs print a greeting on standard output."""
_CHUNK = 64 * 1024
_LARGE = 256 * 1024
_GRACE = 1.0
_FRAMES = ("Traceback (", "  ", "\t")
"""How lines of a stack trace begin. The host's answers leave them out; the line with the error itself stays."""

Incoming = SessionMessage | Exception


class ServerProgram:
    """One running server. `failure` tells why the host ended it, or that it ended by itself."""

    def __init__(self, child: asyncio.subprocess.Process, name: str, ration: Ration) -> None:
        self._child = child
        self._name = name
        self.ration = ration
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
    def input(self) -> asyncio.StreamWriter:
        assert self._child.stdin is not None
        return self._child.stdin

    @property
    def output(self) -> asyncio.StreamReader:
        assert self._child.stdout is not None
        return self._child.stdout

    @property
    def last_words(self) -> str:
        """The end of its standard error, without hidden characters and stack frames."""
        said = bytes(self._errors).decode("utf-8", "replace").splitlines()
        return spelled("\n".join(line for line in said if not line.startswith(_FRAMES))).strip()

    async def hear_out(self) -> None:
        """At the end of its output, wait a moment for standard error, which has the reason."""
        if self.failure is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_said.wait(), _GRACE)
        self.fail("ended")

    async def read_errors(self) -> None:
        """Read standard error, and keep its end for the report of a failure (S2)."""
        assert self._child.stderr is not None
        total = 0
        while self.failure is None and (chunk := await self._child.stderr.read(_CHUNK)):
            total += len(chunk)
            self._errors = (self._errors + chunk)[-MAX_ERRORS:]
            if total > MAX_ERRORS_IN_ALL:
                self.fail(f"wrote more than {MAX_ERRORS_IN_ALL} bytes to its standard error")
            await asyncio.sleep(0)
        self._all_said.set()

    def fail(self, what: str) -> None:
        """Kill the program; the first reason is kept."""
        if self.failure is None and not self._stopping:
            self.failure = Problem("server_failed", f"The MCP server {self._name} {what}.", server=self._name)
        self.kill()

    def kill(self) -> None:
        """Kill the whole tree: the process group, and descendants that left it (S1)."""
        if self._child.returncode is None:
            kill_tree(self._child.pid)

    async def stop(self) -> None:
        """Close its input, give it a moment to end, then kill it and wait."""
        assert self._child.stdin is not None
        self._stopping = True
        self._child.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._child.wait(), _GRACE)
        self.kill()
        await self._child.wait()

    async def drain(self) -> None:
        """Read the rest of its pipes, so that they close. A descendant that keeps one open gets a moment."""
        assert self._child.stdout is not None and self._child.stderr is not None
        for pipe in (self._child.stdout, self._child.stderr):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    while await pipe.read(_CHUNK):
                        pass


class ProgramOutput:
    """A program's messages for a client session (`mcp`'s ReadStream), read directly from the pipe without a task."""

    def __init__(self, program: ServerProgram) -> None:
        self._program = program
        self._lines: deque[bytes] = deque()
        self._begun = bytearray()
        self._noise = 0

    async def receive(self) -> Incoming:
        """Return the next message; raise EndOfStream when the program ends or exceeds a limit (S2)."""
        if self._lines:
            await asyncio.sleep(0)  # each of many lines in one read is its own step (S3)
        while self._program.failure is None:
            if not self._lines:
                if not await self._read():
                    break
            elif (message := await self._message(self._lines.popleft())) is not None:
                return SessionMessage(message)
        await self._program.hear_out()
        raise anyio.EndOfStream

    async def _read(self) -> bool:
        """Read more; return False at the end. A line that is too long ends the program before it is complete."""
        chunk = await self._program.output.read(_CHUNK)
        first, *rest = chunk.split(b"\n")
        self._begun += first
        for begun in rest:
            self._lines.append(bytes(self._begun))
            self._begun = bytearray(begun)
        if max(len(self._begun), len(self._lines[0]) if self._lines else 0) > MAX_LINE:
            self._program.fail(f"wrote a line of more than {MAX_LINE} bytes")
        return bool(chunk)

    async def _message(self, line: bytes) -> types.JSONRPCMessage | None:
        if not line.strip():
            return None
        try:
            message = await asyncio.to_thread(_parsed, line) if len(line) > _LARGE else _parsed(line)
        except ValueError:
            self._noise += 1
            if self._noise > MAX_NOISE:
                self._program.fail(f"wrote more than {MAX_NOISE} lines that are not messages")
            return None
        if isinstance(message, types.JSONRPCRequest | types.JSONRPCNotification) and not self._program.ration.take():
            self._program.fail("sent too many unsolicited messages")
            return None
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Do nothing: the pipe closes when the program has ended."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `aclose`."""


class ProgramInput:
    """Writes the host's messages of a client session (`mcp`'s WriteStream) into the pipe, one line each."""

    def __init__(self, stdin: asyncio.StreamWriter) -> None:
        self._stdin = stdin

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message; if the program does not read it, the wait for its answer times out."""
        if self._stdin.is_closing():
            raise anyio.ClosedResourceError
        self._stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        with contextlib.suppress(OSError):  # it has ended: the end of its output gives the reason
            await self._stdin.drain()

    async def aclose(self) -> None:
        """Do nothing: the pipe closes when the program is stopped."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `aclose`."""


Streams = tuple[ProgramOutput, ProgramInput]


@asynccontextmanager
async def stdio_streams(program: ServerProgram) -> AsyncIterator[Streams]:
    """Open the two streams of a client session. The program ends with the block."""
    errors = asyncio.ensure_future(program.read_errors())
    try:
        yield ProgramOutput(program), ProgramInput(program.input)
    finally:
        stopping = asyncio.ensure_future(program.stop())
        with anyio.CancelScope(shield=True):
            await stopping
            errors.cancel()
            await asyncio.gather(errors, return_exceptions=True)
            await program.drain()


def _parsed(line: bytes) -> types.JSONRPCMessage:
    return types.jsonrpc_message_adapter.validate_json(line, by_name=False)

"""Offers a host program to the programs that an extension starts: a script on their PATH, and pipes to the host.

The sandbox needs no exception: the script and its pipes are in the extension's own temporary folder.

P1  Each use of the script counts as part of the call that started the program, and ends with that call at the latest.
P2  The folder belongs to the extension, so the host trusts nothing in it: it follows no links, writes only to pipes,
    reads only plain files of limited size, and never blocks the event loop.
P3  When a script ends, for any reason, its host program ends too.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from forestay.extensions.connectors.contract import Call
from forestay.extensions.connectors.hosted import MAX_INPUT, Serve
from forestay.extensions.connectors.process import MAX_OUTPUT
from forestay.extensions.pi_program import Streams
from forestay.kernel import Problem

AT_ONCE = 8
_WAITING = 512
_MAX_ARGUMENTS, _MAX_PATH = 1024 * 1024, 4096
_TURN, _PATIENCE = 0.01, 1000
"""A script has `_PATIENCE` turns of `_TURN` seconds to open its end of a pipe."""
_HERE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NAME = re.compile(rb"[A-Za-z0-9]{1,32}")
_SCRIPT = """#!/bin/sh
# The host runs this program: pass arguments and input through named pipes, and print what it answers.
PATH=/usr/local/bin:/usr/bin:/bin
here={folder}
mine=$(mktemp -d "$here/XXXXXXXX") || exit 127
jobs=
trap 'kill $jobs 2>/dev/null; rm -rf "$mine"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
mkfifo "$mine/in" "$mine/out" "$mine/err" "$mine/code" "$mine/life" || exit 127
pwd -P > "$mine/cwd"
for word; do printf '%s\\0' "$word"; done > "$mine/args"
[ -t 0 ] && exec < /dev/null
exec 3<&0
# A host that answers without reading the input may be done, and the folder gone, before this begins.
{{ cat <&3 > "$mine/in"; }} 2>/dev/null & jobs=$!
exec 3<&-
cat "$mine/err" >&2 & told=$!
cat "$mine/out" & said=$!
jobs="$jobs $told $said"
# Opened for reading too, so that it does not wait for the host.
exec 9<> "$mine/life"
echo "${{mine##*/}}" > "$here/door"
wait "$said"
wait "$told"
read -r code < "$mine/code"
exit "${{code:-1}}"
"""


class Doorway:
    """Connects one running program to `serve`. Open it before the program starts, close it when the program ends."""

    def __init__(self, name: str, serve: Serve, loop: asyncio.AbstractEventLoop, call: Call, temp: str) -> None:
        self._serve, self._loop, self._call = serve, loop, call
        self._visits: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._rest = b""
        self.folder = tempfile.mkdtemp(prefix="door", dir=temp)
        script = Path(self.folder) / name
        script.write_text(_SCRIPT.format(folder=shlex.quote(self.folder)))
        script.chmod(0o700)
        os.mkfifo(f"{self.folder}/door", 0o600)
        self._place = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | _HERE)
        self._door = _pipe(self._place, "door", os.O_RDWR)
        loop.call_soon_threadsafe(loop.add_reader, self._door, self._knocked)

    def close(self) -> None:
        """End all visits and remove the script (P1); called from the program's thread."""
        with contextlib.suppress(RuntimeError):  # a closed loop has no visits
            self._loop.call_soon_threadsafe(self._end)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> None:
        self._loop.remove_reader(self._door)
        os.close(self._door)
        os.close(self._place)
        for visit in self._visits:
            visit.cancel()

    def _knocked(self) -> None:
        *names, self._rest = (self._rest + os.read(self._door, _MAX_PATH)).split(b"\n")
        self._rest = self._rest[-_MAX_PATH:]
        for name in names:
            if _NAME.fullmatch(name) and len(self._visits) < _WAITING:
                visit = self._loop.create_task(self._visit(name.decode()))
                self._visits.add(visit)
                visit.add_done_callback(self._visits.discard)

    async def _visit(self, name: str) -> None:
        """Run the host program once for a script; ignore a malformed request (P2)."""
        async with self._turn:
            with contextlib.ExitStack() as kept, contextlib.suppress(OSError):
                place = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _HERE, dir_fd=self._place)
                kept.callback(os.close, place)
                words = _text(place, "args", _MAX_ARGUMENTS).split("\0")[:-1]
                cwd = _text(place, "cwd", _MAX_PATH).removesuffix("\n")
                code = await self._served(place, words, cwd)
                last = await _awaited(place, "code")
                kept.callback(os.close, last)
                os.write(last, f"{code}\n".encode())

    async def _served(self, place: int, words: Sequence[str], cwd: str) -> int:
        """Run until the program has ended and the script has its output, or until the script ends (P3)."""
        pipes: list[_Heard | _Told] = []
        try:
            pipes.append(life := await _Heard.opened(self._loop, place, "life"))
            pipes.append(typed := await _Heard.opened(self._loop, place, "in"))
            pipes.append(out := await _Told.opened(self._loop, place, "out"))
            pipes.append(error := await _Told.opened(self._loop, place, "err"))
            streams = Streams(out.write, error.write, typed.line)
            work = asyncio.ensure_future(self._whole(words, cwd, streams, out, error))
            gone = asyncio.ensure_future(life.line())
            try:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                return work.result() if work.done() else 1
            finally:
                work.cancel()
                gone.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
        finally:
            for pipe in pipes:
                pipe.close()

    async def _whole(self, words: Sequence[str], cwd: str, streams: Streams, *told: _Told) -> int:
        code = await self._serve(self._call, words, cwd, streams)
        for pipe in told:
            await pipe.finish()
        return code


class _Heard:
    """A pipe that the script writes to, read line by line."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.BaseTransport) -> None:
        self._reader, self._transport = reader, transport
        self._left = MAX_INPUT
        self.close = transport.close

    @classmethod
    async def opened(cls, loop: asyncio.AbstractEventLoop, place: int, name: str) -> _Heard:
        reader = asyncio.StreamReader(limit=MAX_INPUT)
        pipe = os.fdopen(_pipe(place, name, os.O_RDONLY), "rb", 0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        return cls(reader, transport)

    async def line(self) -> str | None:
        """Return the next line; None at the end."""
        try:
            data = await self._reader.readline()
        except ValueError:
            data, self._left = b"?", 0
        self._left -= len(data)
        if self._left < 0:
            raise Problem("payload_too_large", "The input is larger than this program reads.", limit=MAX_INPUT)
        return data.decode("utf-8", "replace").removesuffix("\n") if data else None


class _Told(asyncio.BaseProtocol):
    """A pipe that the script reads; it buffers unread text up to a limit."""

    def __init__(self) -> None:
        self._lost = asyncio.get_running_loop().create_future()
        self._transport: asyncio.WriteTransport | None = None

    @classmethod
    async def opened(cls, loop: asyncio.AbstractEventLoop, place: int, name: str) -> _Told:
        pipe = os.fdopen(await _awaited(place, name), "wb", 0)
        told = cls()
        told._transport, _ = await loop.connect_write_pipe(lambda: told, pipe)
        return told

    def connection_lost(self, _error: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    def write(self, text: str) -> None:
        assert self._transport is not None
        if self._transport.get_write_buffer_size() > MAX_OUTPUT:
            raise Problem("payload_too_large", "The output of this program is not being read.", limit=MAX_OUTPUT)
        if not self._transport.is_closing():
            self._transport.write(text.encode("utf-8", "replace"))

    async def finish(self) -> None:
        """Wait until everything is written, and close the pipe."""
        self.close()
        await self._lost

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _pipe(place: int, name: str, flags: int) -> int:
    """Open a named pipe; refuse any other kind of file (P2)."""
    found = os.open(name, flags | _HERE, dir_fd=place)
    if not stat.S_ISFIFO(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.EINVAL, "this is not a pipe")
    return found


async def _awaited(place: int, name: str) -> int:
    """Open a pipe for writing; wait until the script opens it for reading."""
    for _ in range(_PATIENCE):
        try:
            return _pipe(place, name, os.O_WRONLY)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        await asyncio.sleep(_TURN)
    raise OSError(errno.ETIMEDOUT, "nobody reads this pipe")


def _text(place: int, name: str, most: int) -> str:
    """Read a plain file of at most `most` bytes; refuse others (P2)."""
    with os.fdopen(os.open(name, os.O_RDONLY | _HERE, dir_fd=place), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "this is not a plain file")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.E2BIG, "this is too long")
    return data.decode("utf-8", "replace")

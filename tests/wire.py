"""A wire to PostgreSQL that tests hold and cut: what goes through it is what a network would carry."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_WRITES = b"pg_try_advisory_lock_shared"  # what only a connection says that appends


class Wire:
    """Listens on loopback, and carries each connection to the server at `address`."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query))
        self._socket = f"{query['host']}/.s.PGSQL.{query.get('port', 5432)}"
        self._login = f"{parts.username or 'postgres'}@"
        self._database = parts.path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._open = asyncio.Event()
        self._left = 0
        self.was_cut = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._call(self._listen())

    def address(self, schema: str) -> str:
        options = "sslmode=disable&gssencmode=disable"
        return f"postgresql://{self._login}127.0.0.1:{self._port}{self._database}?{options}&schema={schema}"

    def hold(self) -> None:
        """Carry nothing, and say nothing: the machines at both ends cannot know."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    def cut_at(self, message: int) -> None:
        """Cut the next writing connection that carries so many further messages, before it carries the last."""
        self._left, self.was_cut = message, False

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            there, other = await asyncio.open_unix_connection(self._socket)
            ends.append(other)
            connection = _Connection(self, ends)
            await asyncio.gather(connection.pump(reader, other, asks=True), connection.pump(there, writer, asks=False))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for end in ends:
                end.close()

    async def pass_on(self, connection: _Connection) -> bool:
        """Wait while the wire is held; whether the next message is carried."""
        await self._open.wait()
        if not connection.writes or not self._left:
            return True
        self._left -= 1
        self.was_cut = not self._left
        return not self.was_cut


class _Connection:
    def __init__(self, wire: Wire, ends: list[asyncio.StreamWriter]) -> None:
        self._wire = wire
        self._ends = ends
        self.writes = False

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asks: bool) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            async for message in _messages(reader, asks):
                self.writes = self.writes or (asks and _WRITES in message)
                if not await self._wire.pass_on(self):
                    break
                writer.write(message)
                await writer.drain()
        for end in self._ends:
            end.transport.abort()


async def _messages(reader: asyncio.StreamReader, asks: bool) -> AsyncIterator[bytes]:
    """PostgreSQL's messages: a letter, a length, a text; the client's first one has no letter."""
    if asks:
        head = await reader.readexactly(4)
        yield head + await reader.readexactly(int.from_bytes(head, "big") - 4)
    while True:
        head = await reader.readexactly(5)
        yield head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


@contextmanager
def wire(address: str) -> Iterator[Wire]:
    made = Wire(address)
    try:
        yield made
    finally:
        made.close()

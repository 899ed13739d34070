"""The socket that a host is served on."""

from __future__ import annotations

import asyncio
import socket

from forestay.surface import bind


async def test_an_answer_is_sent_at_once_on_any_event_loop() -> None:
    """Without TCP_NODELAY the second part of an answer waits for the client's delayed acknowledgement: 40 ms."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made: socket.socket = writer.get_extra_info("socket")
        found.set_result(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(accepted, sock=bind("127.0.0.1", 0)) as server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(found, 10) != 0
        writer.close()

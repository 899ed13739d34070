"""A host reached in its own process: streams arrive while they are written, and a broken answer is an error."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from forestay.surface import InnerTransport

START = {"type": "http.response.start", "status": 200, "headers": []}


async def test_a_chunk_arrives_before_the_next_is_written() -> None:
    seen = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await asyncio.wait_for(seen.wait(), 10)
        await send({"type": "http.response.body", "body": b"two"})

    found = []
    async with httpx.AsyncClient(transport=InnerTransport(app)) as client, client.stream("GET", "http://h/") as answer:
        async for chunk in answer.aiter_raw():
            found.append(chunk)
            seen.set()
    assert found == [b"one", b"two"]


@pytest.mark.parametrize("begun", [False, True])
async def test_an_application_that_fails_is_a_broken_connection(begun: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send(START)
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("no more")

    async with httpx.AsyncClient(transport=InnerTransport(app)) as client:
        with pytest.raises(httpx.ReadError, match="no more"):
            await client.get("http://h/")


async def test_a_reader_that_leaves_is_a_client_that_disconnects() -> None:
    gone = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        try:
            await receive()
        finally:
            gone.set()

    async with httpx.AsyncClient(transport=InnerTransport(app)) as client, client.stream("GET", "http://h/"):
        pass
    await asyncio.wait_for(gone.wait(), 10)

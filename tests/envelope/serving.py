"""One example, served for real: HTTP and A2A by uvicorn on loopback, gRPC by grpcio, MCP over streamable HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc.aio
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from forestay.envelope.expand import Expanders
from forestay.envelope.pages import page_request, slice_by_offset
from forestay.envelope.transports.a2a_agent import agent_card, agent_routes
from forestay.envelope.transports.grpc_service import add_to
from forestay.envelope.transports.http import operation_routes
from forestay.envelope.transports.operations import Operation, Operations, Reply
from forestay.kernel import Ids, ManualClock, Problem, SeededRandomness

BOOKS = [{"id": f"b{n}", "title": f"Book {n}", "author": f"a{n % 3}", "pages": 100 + n} for n in range(20)]


async def fetch_author(key: Any) -> dict[str, Any]:
    return {"id": key, "name": f"Author {key}"}


async def get_book(parameters: dict[str, Any]) -> Any:
    wanted = parameters.get("id")
    found = [book for book in BOOKS if book["id"] == wanted]
    if not found:
        raise Problem("not_found", f"There is no book {wanted!r}.", at="$.id")
    return found[0]


async def list_books(parameters: dict[str, Any]) -> Any:
    items, page = slice_by_offset(BOOKS, page_request(parameters.get("limit"), parameters.get("offset")))
    return Reply(result=items, page=page)


async def be_busy(_parameters: dict[str, Any]) -> Any:
    raise Problem("rate_limited", "Too many requests.", retry_after_ms=1500)


async def be_wrong(_parameters: dict[str, Any]) -> Any:
    raise Problem("schema_mismatch", "The year is not a number.", at="$.year")


async def be_unknown(_parameters: dict[str, Any]) -> Any:
    raise Problem("unauthenticated", "Who are you?")


async def crash(_parameters: dict[str, Any]) -> Any:
    raise RuntimeError("secret /home/somebody/file")


async def wait_long(_parameters: dict[str, Any]) -> Any:
    await asyncio.Event().wait()


async def half(_parameters: dict[str, Any]) -> Any:
    return Reply(result={"done": 3}, problem=Problem("upstream_failed", "The fourth part failed."))


def operations() -> Operations:
    clock = ManualClock()
    made = Operations(clock, Ids(clock, SeededRandomness(7)), expanders=Expanders({"author": fetch_author}))
    for name, function, read_only in (
        ("book.get", get_book, True),
        ("book.list", list_books, True),
        ("busy", be_busy, False),
        ("wrong", be_wrong, False),
        ("locked", be_unknown, False),
        ("crash", crash, False),
        ("half", half, False),
        ("slow", wait_long, False),
    ):
        made.add(Operation(name=name, function=function, description=f"The operation {name}.", read_only=read_only))
    return made


def app(url: str = "http://127.0.0.1/a2a", *, required: bool = False) -> Starlette:
    made = operations()
    card = agent_card(made, name="Books", description="Lends books.", version="1.0.0", url=url, required=required)
    return Starlette(routes=[*operation_routes(made), *agent_routes(made, card)])


@contextlib.contextmanager
def served(make: Any) -> Iterator[str]:
    """`make(url)` served by uvicorn in a thread; the address to reach it."""
    import socket

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    application: ASGIApp = make(url)
    server = uvicorn.Server(uvicorn.Config(application, log_level="error", lifespan="auto"))
    started = threading.Event()

    async def serve() -> None:
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        started.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


@contextlib.asynccontextmanager
async def grpc_channel() -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    add_to(server, operations())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)

"""Serves by uvicorn on a socket that is bound before anything else, and shuts down without dropping a request.

Nobody can connect before the application can answer: a bound socket refuses until `serving` listens on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import uvicorn

from forestay.kernel import HttpLimits, Problem
from forestay.surface.connection_limits import Guard
from forestay.surface.guard import GuardedProtocol

T = TypeVar("T")
_BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket; port 0 picks a free one. Binding first finds a taken port before work begins."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # without TCP, asyncio leaves Nagle on: 40 ms
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise _taken(host, port, error) from error
    return made


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listen(bound: socket.socket) -> None:
    """Let callers connect; a Problem when another process bound the same port and listened first."""
    try:
        bound.listen(_BACKLOG)
    except OSError as error:
        host, port = bound.getsockname()[:2]
        raise _taken(host, port, error) from error


def _taken(host: str, port: int, error: Exception) -> Problem:
    return Problem(
        "unavailable", f"Port {port} on {host} cannot be used.", reason=str(error), fix="Choose another --port."
    )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the host: it drains before the server stops."""
        yield


@contextlib.asynccontextmanager
async def serving(app: Any, bound: socket.socket, guard: Guard | None = None) -> AsyncIterator[None]:
    """Serve `app` on `bound` within the guard's limits while the block runs; then let open requests end."""
    guard = guard or Guard(HttpLimits())
    config = uvicorn.Config(
        app,
        http=functools.partial(GuardedProtocol, guard=guard),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=guard.limits.keep_alive_seconds,  # type: ignore[arg-type]
        timeout_graceful_shutdown=10,
        backlog=_BACKLOG,
    )
    _listen(bound)
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        while not server.started:
            if task.done():
                task.result()
                raise Problem("unavailable", "The server did not start.")
            await asyncio.sleep(0.005)
        yield
    finally:
        server.should_exit = True
        await task


async def until_signalled(*, ready: Callable[[], Awaitable[None]]) -> None:
    """Call `ready`, then wait for SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await ready()
        await stop.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on uvloop where there is one.

    A server allocates in bursts and keeps little: with the interpreter's defaults it spends a tenth of its time looking
    for cycles among objects that live as long as it does. So the garbage collector skips the objects of the start, and
    looks at young objects less often.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)

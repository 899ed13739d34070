"""The outermost layer: every request has an id, a trace, a line in the log, its metrics and its place in the limits.

Invariants:

- F1  Every answer carries `X-Request-Id`: the caller's when it is a plain one, else one of ours.
- F2  What is logged, counted or traced names routes, keys by id and statuses; never a query, a body, a header's value.
- F3  A mount's stream counts as a stream of its key: beyond the limits it is refused before its first byte.
- F4  A mount's request has its place in the load of the host, and none while the host drains.
- F5  A mount that does not count its bodies itself is never given one beyond the limit.
- F6  A stream ends with its key: once the key is revoked or expired it is closed at once, and nothing more is sent on
      it. A long poll is answered with 401.
- F7  An encoded slash separates nothing: what a proxy takes for one segment is one here too. A name that may hold
      anything (a node's, a signal's) may hold it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from contextlib import ExitStack
from typing import Any, TextIO
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from forestay.host import Tracing
from forestay.kernel import Problem, iso, read_traceparent, redact_text, trace_id
from forestay.surface.answers import BODY_LIMIT, contract_of, problem_answer, request_id
from forestay.surface.app import App
from forestay.surface.auth import Keys
from forestay.surface.exchange import Exchange, Refused, open_exchange
from forestay.surface.limits import Kind, Load
from forestay.surface.metrics import HttpMetrics
from forestay.surface.services import Services

_ENCODED_SLASH = re.compile("%2f", re.IGNORECASE)
ACCESS_LOG = logging.getLogger("forestay.access")


def log_requests(stream: TextIO) -> None:
    """Write a line for each request to `stream`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s"))
    ACCESS_LOG.addHandler(handler)
    ACCESS_LOG.setLevel(logging.INFO)
    ACCESS_LOG.propagate = False


class Front:
    """One application and its mounts behind one door."""

    def __init__(self, app: App, services: Services, metrics: HttpMetrics, tracing: Tracing) -> None:
        self._app = app
        self._services = services
        self._metrics = metrics
        self._tracing = tracing

    @property
    def keys(self) -> Keys:
        return self._services.keys

    @property
    def load(self) -> Load:
        return self._services.load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["forestay.clock"], scope["forestay.ids"] = self._services.clock, self._services.ids
        scope["path"], scope["forestay.slashes"] = _path(scope)
        request = Request(scope)
        trace = read_traceparent(request.headers.get("traceparent"))
        exchange = open_exchange(scope, request_id(request), trace)
        started = time.perf_counter()
        try:
            if self._tracing.active:
                with self._tracing.span(f"HTTP {_method(request)}", kind="server", parent=trace) as span:
                    await self._serve(request, exchange, receive, send)
                    span.set("http.request.method", _method(request))
                    span.set("http.route", exchange.route)
                    span.set("http.response.status_code", exchange.status)
            else:
                await self._serve(request, exchange, receive, send)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.observe(_method(request), exchange.route, exchange.status, seconds)
            if ACCESS_LOG.isEnabledFor(logging.INFO):
                ACCESS_LOG.info("%s", self._line(request, exchange, seconds))

    async def _serve(self, request: Request, exchange: Exchange, receive: Receive, send: Send) -> None:
        mount = self._app.mount_of(request.scope["path"])
        with ExitStack() as held:
            passage = _Passage(self, request, exchange, send, held)
            try:
                if mount is None:
                    await self._app(request.scope, receive, passage.send)
                else:
                    await passage.enter("requests")
                    bodies = passage.bounded(receive, BODY_LIMIT)
                    await self._app(request.scope, bodies, passage.send_mounted)
            except asyncio.CancelledError:
                if not await passage.close():
                    raise
            except Exception as error:
                if not _was_refused(error):
                    raise

    def _line(self, request: Request, exchange: Exchange, seconds: float) -> str:
        """One JSON object: who asked for what and what came of it (F2)."""
        caller = exchange.caller
        line: dict[str, Any] = {
            "time": iso(self._services.clock.now_ms()),
            "request": exchange.request_id,
            "method": _method(request),
            "route": exchange.route,
            "path": None if exchange.route != "unmatched" else _beginning(request.scope["path"]),
            "status": exchange.status,
            "ms": round(seconds * 1000, 3),
            "client": request.client.host if request.client else None,
            "key": caller.key_id if caller else None,
            "tenant": caller.tenant if caller else None,
            "trace": trace_id(exchange.trace) if exchange.trace else None,
        }
        return json.dumps({name: value for name, value in line.items() if value is not None})


class _Passage:
    """One request on its way through: what it may send and receive, and its place in the load (F1, F3 to F5)."""

    def __init__(self, front: Front, request: Request, exchange: Exchange, send: Send, held: ExitStack) -> None:
        self._front = front
        self._request = request
        self._exchange = exchange
        self._held = held
        self._places = held.enter_context(ExitStack())
        self._send = send
        self._refused = False
        self._streams = False
        self._task = asyncio.current_task()
        self._watched = False
        self._cut = False
        exchange.waits = self.watch

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._exchange.status = message["status"]
            self._streams = _is_stream(message)
            if self._streams:
                self.watch()
            message = _with_id(message, self._exchange.request_id)
        elif self._streams and not self._holds():
            if not self._cut:
                self._cut = True
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            raise Refused
        await self._send(message)

    def watch(self) -> None:
        """From now on the request ends with its key (F6)."""
        caller = self._exchange.caller
        if caller is None or self._watched:
            return
        self._watched = True
        self._held.enter_context(self._front.keys.watched(caller.key_id, self._key_ended))

    def _key_ended(self) -> None:
        if self._task is not None and not self._cut:
            self._cut = True
            self._task.cancel()

    async def close(self) -> bool:
        """End what was cut because its key ended; False when it is somebody else who cancels."""
        if not self._cut or self._task is None or self._task.uncancel():
            return False
        if self._streams:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not self._exchange.status:
            await self._tell_why()
        return True

    async def _tell_why(self) -> None:
        caller = self._exchange.caller
        try:
            if caller is not None:
                self._front.keys.caller(caller.key_id)
        except Problem as problem:
            with contextlib.suppress(Refused):
                await self._refuse(problem)

    def _holds(self) -> bool:
        """Whether the key of the request is still one (F6)."""
        caller = self._exchange.caller
        try:
            return caller is None or bool(self._front.keys.caller(caller.key_id))
        except Problem:
            return False

    async def send_mounted(self, message: Message) -> None:
        if self._refused:
            raise Refused
        if message["type"] == "http.response.start" and _is_stream(message):
            self._places.close()  # a stream holds a stream's place, not a request's
            await self.enter("streams")
        await self.send(message)

    async def enter(self, kind: Kind) -> None:
        """Take a place until the request ends, or answer why there is none (F3, F4)."""
        caller = self._exchange.caller
        try:
            self._places.enter_context(self._front.load.enter(kind, caller.key_id if caller is not None else ""))
        except Problem as problem:
            await self._refuse(problem)

    def bounded(self, receive: Receive, limit: int) -> Receive:
        """`receive`, refusing what is more than `limit` (F5)."""
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                await self._refuse(Problem("payload_too_large", f"The body is larger than {limit} bytes.", limit=limit))
            return message

        return counted

    async def _refuse(self, problem: Problem) -> None:
        self._refused = True
        scope = self._request.scope
        await problem_answer(self._request, problem, contract_of(scope["path"]))(scope, _nothing, self.send)
        raise Refused from problem


def _path(scope: Scope) -> tuple[str, bool]:
    """The path with NUL in place of each encoded slash, and whether every NUL in it is one (F7)."""
    raw: str = scope.get("raw_path", b"").decode("ascii")
    if not _ENCODED_SLASH.search(raw):
        return scope["path"], False
    return unquote(_ENCODED_SLASH.sub("%00", raw)), "%00" not in raw


def _method(request: Request) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
    return request.method if request.method in known else "OTHER"


def _beginning(path: str) -> str:
    """Enough of an address that leads nowhere to see what was meant; the rest could be a token."""
    return redact_text("/".join(path.split("/")[:3])[:64])


def _with_id(message: Message, reference: str) -> Message:
    """F1."""
    headers = message.get("headers", ())
    if any(name.lower() == b"x-request-id" for name, _ in headers):
        return message
    return {**message, "headers": [*headers, (b"x-request-id", reference.encode("latin-1"))]}


def _is_stream(message: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message.get("headers", ())
    )


def _was_refused(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_was_refused(item) for item in error.exceptions)
    return isinstance(error, Refused)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}

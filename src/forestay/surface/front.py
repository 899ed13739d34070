"""The outermost layer: gives every request an id, a trace, a log line and metrics, and ends it with its key.

Invariants:

- F1  Every answer carries `X-Request-Id`: the caller's when it is plain, else one of ours.
- F2  Logs, metrics and traces name routes, keys by id and statuses; never a query, a body or a header's value.
- F6  A stream ends with its key: once the key is revoked or expired, the stream is closed at once and nothing more is
      sent. A long poll is answered with 401.
- F7  An encoded slash does not separate segments, so a proxy and this host see the same segments. Free names (a node's,
      a signal's) may contain one.
- F8  A request for another host's name is refused here (N1 of `host_names`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from contextlib import ExitStack
from typing import Any, TextIO
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from forestay.kernel import Problem, iso, read_traceparent, redact_text, trace_id
from forestay.surface.answers import contract_of, problem_answer
from forestay.surface.auth import Keys
from forestay.surface.dispatch import Dispatch
from forestay.surface.exchange import Exchange, Refused, open_exchange
from forestay.surface.host_names import HostNames
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
    """Wraps the dispatch: every request passes here first."""

    def __init__(self, dispatch: Dispatch, services: Services, metrics: HttpMetrics, names: HostNames) -> None:
        self._dispatch = dispatch
        self._services = services
        self._metrics = metrics
        self._names = names
        self._tracing = services.host.tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"], scope["forestay.slashes"] = _path(scope)
        request = Request(scope)
        trace = read_traceparent(request.headers.get("traceparent"))
        exchange = open_exchange(request, self._services.host.clock, self._services.host.ids, trace)
        started = time.perf_counter()
        try:
            if self._tracing.active:
                with self._tracing.span(f"HTTP {_method(request)}", kind="server", parent=trace) as span:
                    await self._serve(request, exchange, receive, send)
                    about = {"http.request.method": _method(request), "http.route": exchange.route}
                    span.set({**about, "http.response.status_code": exchange.status})
            else:
                await self._serve(request, exchange, receive, send)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.observe(_method(request), exchange.route, exchange.status, seconds)
            if ACCESS_LOG.isEnabledFor(logging.INFO):
                ACCESS_LOG.info("%s", self._line(request, exchange, seconds))

    async def _serve(self, request: Request, exchange: Exchange, receive: Receive, send: Send) -> None:
        with ExitStack() as held:
            passage = _Passage(self._services.keys, request, exchange, send, held)
            try:
                self._names.check(request)
            except Problem as problem:
                refusal = problem_answer(request, problem, contract_of(request.scope["path"]))
                await refusal(request.scope, receive, passage.send)
                return
            try:
                await self._dispatch(request.scope, receive, passage.send)
            except asyncio.CancelledError:
                if not await passage.close():
                    raise
            except Exception as error:
                if not _was_refused(error):
                    raise

    def _line(self, request: Request, exchange: Exchange, seconds: float) -> str:
        """Return the log line as one JSON object: the caller, the route and the status (F2)."""
        caller = exchange.caller
        line: dict[str, Any] = {
            "time": iso(exchange.clock.now_ms()),
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
    """Sends one request's answer, and ends it when its key ends (F1, F6)."""

    def __init__(self, keys: Keys, request: Request, exchange: Exchange, send: Send, held: ExitStack) -> None:
        self._keys = keys
        self._request = request
        self._exchange = exchange
        self._held = held
        self._send = send
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
        elif self._streams and self._ended() is not None:
            if not self._cut:
                self._cut = True
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            raise Refused
        await self._send(message)

    def watch(self) -> None:
        """End the request when its key ends, from now on (F6)."""
        caller = self._exchange.caller
        if caller is None or self._watched:
            return
        self._watched = True
        self._held.enter_context(self._keys.watched(caller.key_id, self._key_ended))

    def _key_ended(self) -> None:
        if self._task is not None and not self._cut:
            self._cut = True
            self._task.cancel()

    async def close(self) -> bool:
        """End the answer after the key ended; False when something else cancelled the request."""
        if not self._cut or self._task is None or self._task.uncancel():
            return False
        if self._streams:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not self._exchange.status and (problem := self._ended()) is not None:
            scope = self._request.scope
            await problem_answer(self._request, problem, contract_of(scope["path"]))(scope, _nothing, self.send)
        return True

    def _ended(self) -> Problem | None:
        """Return why the request's key is no longer valid, or None (F6)."""
        caller = self._exchange.caller
        try:
            if caller is not None:
                self._keys.caller(caller.key_id)
        except Problem as problem:
            return problem
        return None


def _path(scope: Scope) -> tuple[str, bool]:
    """Return the path with NUL for each encoded slash, and whether every NUL stands for a slash (F7)."""
    raw: str = scope.get("raw_path", b"").decode("ascii")
    if not _ENCODED_SLASH.search(raw):
        return scope["path"], False
    return unquote(_ENCODED_SLASH.sub("%00", raw)), "%00" not in raw


def _method(request: Request) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
    return request.method if request.method in known else "OTHER"


def _beginning(path: str) -> str:
    """Return the beginning of an unknown address for the log; the rest could be a token."""
    return redact_text("/".join(path.split("/")[:3])[:64])


def _with_id(message: Message, reference: str) -> Message:
    """Add the request's id, unless it is there (F1)."""
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

"""The server's own limits: what a connection may cost before it reaches an operation.

Invariants:

- G1  A head that is not whole in time ends its connection: 408 when part of it came, no answer when nothing did.
- G2  A body that is not whole in time ends its connection: 408 when nothing was answered yet.
- G3  A head with too many lines or bytes is 431, a body with too many bytes 413; neither is held beyond its limit.
- G4  Beyond the limit of connections, in all or of one client, a new one gets 503 and `Retry-After`.
- G5  A client that does not read its answer in time loses its connection.
- G6  Refusing costs little: what a refused client still sends is discarded, for at most as long as a body may take.
      A second of silence ends the connection sooner.
- G7  A request means the same to us and to every proxy before us (RFC 9112): a version that we speak, one host, one
      length or chunks and nothing else. One that asks for another protocol is answered in this one, with its body.
- G8  An answer reaches a client that is still sending its body. A connection that must end is closed after the body has
      arrived, because closing earlier resets it and loses the answer.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
import re
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forestay.kernel import Problem
from forestay.surface.connection_limits import Guard

LINGER_SECONDS = 1.0
_MOST_LINGERING = 256
_FRAMING = (b"content-length", b"transfer-encoding")
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits. A request that arrives whole needs no timer."""

    def __init__(self, *arguments: Any, guard: Guard, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._guard = guard
        self._limits = guard.limits
        self._name = ""
        self._refusal: Problem | None = None
        self._lingers = False  # further bytes are discarded (G6, G8)
        self._silence: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timed = ""
        self._writing: asyncio.TimerHandle | None = None
        self._phase = "idle"
        self._head_bytes = 0
        self._body_bytes = 0

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._name = _client(self.client[0]) if self.client else ""
        problem = self._guard.enter(self._name)
        if problem is not None:
            self._refuse(problem)
        else:
            self._wait_for("idle", self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._writing is not None:
            self._writing.cancel()
        if self._silence is not None:
            self._silence.cancel()
        self._guard.leave(self._name)
        if self._lingers:
            self._guard.lingering -= 1
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingers:
            self._wait_for_silence()
            return
        continued = self._phase == "head"
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._lingers or self.transport.is_closing():
            return
        if continued and self._phase == "head":
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.header_bytes:
                self._refuse(_head_too_large(self._limits.header_bytes))
                return
        if self._phase == "head":
            self._wait_for("head", self._limits.header_seconds)  # G1
        elif self._phase == "body":
            self._wait_for("body", self._limits.body_seconds)  # G2
        else:
            self._stop_waiting()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        except httptools.HttpParserUpgrade as asked:
            rest = data[asked.args[0] :]
            if self._phase == "body":
                self._read_body_only()
            if rest:
                self._parse(rest)

    def _read_body_only(self) -> None:
        """Read the body of an upgrade request with a second parser: the first sees none. Then the connection ends."""
        self.cycle.keep_alive = False
        self.parser = httptools.HttpRequestParser(_Body(self))
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        said = [b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING]
        self.parser.feed_data(b"POST / HTTP/1.1\r\nconnection: close\r\n%b\r\n" % b"".join(said))

    # Callbacks of the parser (an exception in one reaches `send_400_response`)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase, self._head_bytes, self._body_bytes = "head", 0, 0

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        if len(self.headers) >= self._limits.header_count:
            self._stop(_head_too_large(self._limits.header_count, "lines"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_head()
        self._phase = "body"
        super().on_headers_complete()
        self.cycle.transport = _Answering(self)  # type: ignore[assignment]

    def _check_head(self) -> None:
        """Refuse a head that breaks the limits or the framing rules (G3, G7)."""
        version = self.parser.get_http_version()
        hosts = []
        for name, value in self.headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"content-length" and value.isdigit() and int(value[:20]) > self._limits.body_bytes:
                self._stop(_body_too_large(self._limits.body_bytes))
            elif name == b"transfer-encoding" and (value.lower() != b"chunked" or version == "1.0"):
                self._stop(_unreadable("The body may be sent in chunks, and in no other coding."))
        if version not in ("1.0", "1.1"):
            self._stop(_unreadable("HTTP/1.1 is spoken here."))
        if len(hosts) > 1 or (not hosts and version == "1.1") or not all(map(_HOST.fullmatch, hosts)):
            self._stop(_unreadable("A request names one Host."))

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            self._stop(_body_too_large(self._limits.body_bytes))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and any(name in _FRAMING and value != b"0" for name, value in self.headers):
            return  # the body is still to come: `_read_body_only`
        self._phase = "idle"
        super().on_message_complete()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.header_bytes:
            self._stop(_head_too_large(self._limits.header_bytes))

    def _stop(self, problem: Problem) -> None:
        self._refusal = problem
        raise problem

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP, or too many, with the contract's error body."""
        self._refuse(self._refusal or _unreadable("This is not an HTTP request that can be read."))

    # Time

    def _wait_for(self, what: str, seconds: float) -> None:
        if self._timer is None or self._timed != what:
            self._stop_waiting()
            self._timed = what
            self._timer = self.loop.call_later(seconds, self._late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._timed == "linger":
            self.transport.close()
        elif self._timed == "idle":
            self._guard.refused["idle"] += 1
            self.transport.close()
        else:
            name = "headers" if self._timed == "head" else "body"
            self._refuse(Problem("request_timeout", f"The {name} did not arrive in time.", reason=f"{name}_time"))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(self._limits.write_seconds, self._unread)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _unread(self) -> None:
        """Drop a client that does not read its answer (G5)."""
        self._writing = None
        self._guard.refused["unread"] += 1
        self.transport.abort()

    # Refusing

    def _refuse(self, problem: Problem) -> None:
        """Send the problem, unless an answer is already on its way, and end the connection (G6)."""
        self._guard.refused[str(problem.details.get("reason", problem.key))] += 1
        cycle = self.cycle
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started and not cycle.response_complete:
                self._stop_waiting()
                self.transport.abort()
                return
        if cycle is None or not (cycle.response_complete and self._in_body):  # otherwise it has its answer
            self.transport.write(_answer(problem, self._guard.ids.new("req")))
        self._linger()

    @property
    def _in_body(self) -> bool:
        """Whether a request's head has arrived and its body has not."""
        return self._phase == "body"

    def end(self) -> None:
        """Close after an answer; first receive what the client is still sending (G8)."""
        if self._in_body:
            self._linger()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        if self._lingers:
            self.server_state.total_requests += 1
        else:
            super().on_response_complete()

    def _linger(self) -> None:
        """Send no more and discard what comes, until the client ends or falls silent (G6)."""
        self._stop_waiting()
        if self._lingers:
            return
        self._lingers = True
        self._guard.lingering += 1
        if self._guard.lingering > _MOST_LINGERING:
            self.transport.abort()
        elif not self.transport.can_write_eof():
            self.transport.close()
        else:
            self.transport.write_eof()
            self.flow.resume_reading()
            self._wait_for("linger", self._limits.body_seconds)
            self._wait_for_silence()

    def _wait_for_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self.loop.call_later(LINGER_SECONDS, self.transport.close)


class _Answering:
    """The transport for the code that answers a request; closing it goes through the protocol (G8).

    The first write, which is a head, is sent together with the next write of the same loop turn: sending costs more
    than making the answer, and the client wakes once.
    """

    __slots__ = ("_begun", "_head", "_loop", "_protocol", "_transport", "is_closing")

    def __init__(self, protocol: GuardedProtocol) -> None:
        self._protocol = protocol
        self._transport = protocol.transport
        self._loop = protocol.loop
        self._begun = False
        self._head = b""
        self.is_closing = protocol.transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._begun:
            self._begun, self._head = True, data
            self._loop.call_soon(self._flush)
        elif self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._protocol.end()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class _Body:
    """Parser callbacks for a body whose head was read before."""

    def __init__(self, protocol: GuardedProtocol) -> None:
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete


def _client(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 network of an IPv6 subscriber."""
    return (
        ":".join(ipaddress.IPv6Address(address.partition("%")[0]).exploded.split(":")[:4])
        if ":" in address
        else address
    )


def _answer(problem: Problem, request_id: str) -> bytes:
    status = problem.row.http
    retry = b"retry-after: 1\r\n" if status == 503 else b""
    details = {**problem.details, "retryAfter": 1} if status == 503 else problem.details
    body = msgspec.json.encode(Problem(problem.key, problem.message, **details).as_openwop())
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\nx-request-id: %b\r\n"
        b"connection: close\r\n%bcontent-length: %d\r\n\r\n%b"
        % (status, http.HTTPStatus(status).phrase.encode(), request_id.encode(), retry, len(body), body)
    )


def _unreadable(message: str) -> Problem:
    return Problem("invalid_request", message, reason="http")


def _head_too_large(limit: int, unit: str = "bytes") -> Problem:
    return Problem(
        "head_too_large", f"The head of the request has more than {limit} {unit}.", limit=limit, reason="headers"
    )


def _body_too_large(limit: int) -> Problem:
    return Problem("payload_too_large", f"The body is larger than {limit} bytes.", limit=limit, reason="body")

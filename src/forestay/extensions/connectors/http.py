"""HTTP for extensions: granted hosts, checked addresses, limited size and time.

The first request and every redirect take the same steps: parse, ask policy about the host, resolve, check the
addresses, connect to a checked address (Pi §3.2A `http`, P11).
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from forestay.extensions.connectors.addresses import Resolver, canonical_host, checked, resolve_host
from forestay.extensions.connectors.contract import Call, Output, io_problem, number, text
from forestay.kernel import Problem

MAX_BODY = 32 * 1024 * 1024
MAX_HEADERS = 64 * 1024
MAX_REDIRECTS = 10
TIMEOUT = 30.0
_CHUNK = 64 * 1024
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_OURS = {"host", "connection", "content-length", "transfer-encoding", "upgrade", "proxy-authorization", "te",
         "trailer", "keep-alive", "expect", "accept-encoding"}  # fmt: skip
_CREDENTIALS = {"authorization", "cookie", "proxy-authorization"}


class Request(msgspec.Struct, frozen=True):
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class HttpConnector:
    method = "http"

    def __init__(self, *, resolver: Resolver = resolve_host, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._resolver = resolver
        self._tls = tls or ssl.create_default_context

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        if params.get("op") == "lookup":
            return self._lookup(call, params)
        request = _request(params)
        redirect = params.get("redirect", "follow")
        limit = number(params, "max_bytes", MAX_BODY, most=MAX_BODY)
        for step in range(MAX_REDIRECTS + 1):
            call.check()
            connection, response = self._send(call, request)
            try:
                location = response.getheader("location")
                if response.status in (301, 302, 303, 307, 308) and location and redirect != "manual":
                    if redirect == "error":
                        raise Problem(
                            "io_failed", "The server redirects, and the request forbids that.", errno="EREDIRECT"
                        )
                    request = _redirected(request, response.status, location)
                    continue
                return self._answer(call, params, request, response, limit, redirected=step > 0)
            except (OSError, http.client.HTTPException, zlib.error) as error:
                raise _failed(call, request, error) from error
            finally:
                connection.close()
        raise Problem("io_failed", f"More than {MAX_REDIRECTS} redirects.", errno="ETOOMANYREDIRECTS", url=request.url)

    def _lookup(self, call: Call, params: Mapping[str, Any]) -> Output:
        """Return the addresses of a granted host; refuse it if one of them is forbidden, as for a request."""
        host = canonical_host(text(params, "host"))
        call.policy.permit("http", host)
        return {"addresses": checked(host, 0, lambda name: call.policy.granted("http!", name), self._resolver)}

    def _send(self, call: Call, request: Request) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        parts = urlsplit(request.url)
        host, port = canonical_host(parts.hostname or ""), parts.port or (443 if parts.scheme == "https" else 80)
        call.policy.permit("http", host)
        addresses = checked(host, port, lambda name: call.policy.granted("http!", name), self._resolver)
        connection = http.client.HTTPConnection(host, port)
        try:
            connection.sock = self._connect(call, parts, host, port, addresses)
            self._put(connection, request, parts, host)
            return connection, connection.getresponse()
        except ValueError as error:
            connection.close()
            message = f"The request has an invalid header: {error}"
            raise Problem("invalid_request", message, at="$.params.headers") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _failed(call, request, error) from error

    def _put(self, connection: http.client.HTTPConnection, request: Request, parts: SplitResult, host: str) -> None:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.putrequest(request.method, path, skip_host=True, skip_accept_encoding=True)
        named = f"[{host}]" if ":" in host else parts.hostname or host
        connection.putheader("Host", named if parts.port is None else f"{named}:{parts.port}")
        connection.putheader("Accept-Encoding", "gzip, deflate")
        for name, value in request.headers:
            connection.putheader(name, value)
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            connection.putheader("Content-Length", str(len(request.body)))
        connection.putheader("Connection", "close")
        connection.endheaders(request.body or None)

    def _connect(self, call: Call, parts: SplitResult, host: str, port: int, addresses: list[str]) -> socket.socket:
        """Open a socket to a checked address; the name is used only for TLS (N1)."""
        failure: OSError | None = None
        for address in addresses:
            try:
                raw = socket.create_connection((address, port), timeout=max(0.001, call.remaining(TIMEOUT)))
                break
            except OSError as error:
                failure = error
        else:
            raise failure or OSError("no address")
        call.on_cancel(lambda: _shut(raw))
        if parts.scheme != "https":
            return raw
        try:
            return self._tls().wrap_socket(raw, server_hostname=host)
        except BaseException:
            raw.close()
            raise

    def _answer(
        self, call: Call, params: Mapping[str, Any], request: Request, response: http.client.HTTPResponse, limit: int,
        *, redirected: bool,
    ) -> Output:  # fmt: skip
        pairs = [(name.lower(), value) for name, value in response.getheaders()]
        encoding = dict(pairs).get("content-encoding", "").lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            pairs = [pair for pair in pairs if pair[0] not in ("content-encoding", "content-length")]
        head: Output = {
            "status": response.status,
            "statusText": response.reason or "",
            "headers": _object(pairs),
            "headerList": [list(pair) for pair in pairs],
            "url": request.url,
            "redirected": redirected,
        }
        body = _decoded(_parts(call, response), encoding)
        if params.get("stream") is True and call.streaming:
            call.emit(head)
            size = 0
            for part in _bounded(body, limit):
                size += len(part)
                call.emit({"base64": base64.b64encode(part).decode()})
            return {"size": size}
        data = b"".join(_bounded(body, limit))
        if params.get("response") == "base64":
            return {**head, "base64": base64.b64encode(data).decode()}
        return {**head, "body": data.decode("utf-8", "replace")}


def _request(params: Mapping[str, Any]) -> Request:
    method = text(params, "method", "GET").upper()
    if method not in _METHODS:
        raise Problem("invalid_request", f"The method {method[:20]!r} is not allowed.", at="$.params.method")
    headers = params.get("headers") or {}
    pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
    try:
        named = tuple((str(name), str(value)) for name, value in pairs)
    except (TypeError, ValueError):
        raise Problem("schema_mismatch", "`headers` must be an object.", at="$.params.headers") from None
    if sum(len(name) + len(value) for name, value in named) > MAX_HEADERS:
        raise Problem("payload_too_large", "The headers are too large.", limit=MAX_HEADERS)
    body = params.get("body")
    data = (
        base64.b64decode(str(params["base64"]))
        if params.get("base64")
        else str(body).encode()
        if body is not None
        else b""
    )
    if len(data) > MAX_BODY:
        raise Problem("payload_too_large", "The body is too large.", limit=MAX_BODY, observed=len(data))
    kept = tuple((name, value) for name, value in named if name.lower() not in _OURS)
    return Request(method, _url(text(params, "url")), kept, data)


def _url(url: str) -> str:
    """Return the URL; raise a Problem if it cannot be fetched."""
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError as error:
        raise Problem("invalid_request", f"This is not a URL: {error}", at="$.params.url") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Problem("invalid_request", "Only http and https URLs with a host can be fetched.", at="$.params.url")
    if parts.username is not None or any(ord(character) < 33 for character in url.strip()):
        raise Problem("invalid_request", "A URL must not hold credentials or control characters.", at="$.params.url")
    return url.strip()


def _redirected(request: Request, status: int, location: str) -> Request:
    target = _url(urljoin(request.url, location).partition("#")[0])
    method, body, headers = request.method, request.body, request.headers
    if status == 303 or (status in (301, 302) and method == "POST"):
        method, body = ("HEAD" if method == "HEAD" else "GET"), b""
        headers = tuple(pair for pair in headers if not pair[0].lower().startswith("content-"))
    old, new = urlsplit(request.url), urlsplit(target)
    if (old.scheme, old.hostname, old.port) != (new.scheme, new.hostname, new.port):
        headers = tuple(pair for pair in headers if pair[0].lower() not in _CREDENTIALS)
    return Request(method, target, headers, body)


def _parts(call: Call, response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        call.check()
        data = response.read1(_CHUNK)
        if not data:
            return
        yield data


def _decoded(parts: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Decompress the body in small steps, so that a compression bomb reaches the limit early."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        yield from parts
        return
    engine = zlib.decompressobj(47)
    for number_, part in enumerate(parts):
        if number_ == 0 and encoding == "deflate" and part[:1] and part[0] & 0x0F != 8:
            engine = zlib.decompressobj(-15)
        while part:
            yield engine.decompress(part, _CHUNK)
            part = engine.unconsumed_tail
    yield engine.flush()


def _bounded(parts: Iterator[bytes], limit: int) -> Iterator[bytes]:
    total = 0
    for part in parts:
        total += len(part)
        if total > limit:
            raise Problem("payload_too_large", f"The answer has more than {limit} bytes.", limit=limit, errno="EFBIG")
        if part:
            yield part


def _object(pairs: list[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _failed(call: Call, request: Request, error: Exception) -> Problem:
    host = urlsplit(request.url).hostname
    if call.cancelled.is_set():
        return Problem("cancelled", "The request was cancelled.", url_host=host)
    if isinstance(error, TimeoutError):
        return Problem("timeout", f"{host} did not answer in time.", errno="ETIMEDOUT", host=host)
    if isinstance(error, ssl.SSLError):
        return Problem("io_failed", f"TLS with {host} failed: {error.reason}", errno="EPROTO", host=host)
    if isinstance(error, OSError):
        problem = io_problem(error)
        problem.details["host"] = host
        return problem
    return Problem("io_failed", f"{host} gave an answer that is not HTTP.", errno="EPROTO", host=host)


def _shut(raw: socket.socket) -> None:
    try:
        raw.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass

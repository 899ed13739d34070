"""Reading bodies within limits, and answering: the only place where bytes become values and values bytes.

Invariants:

- H1  A body is never held beyond its limit: too many bytes are refused while they arrive.
- H2  Every failure leaves as the contract's error body; an exception nobody foresaw leaves as a 500 with a
      correlation id and none of its text.
- H3  429, 503 and whatever else may pass by waiting carry `Retry-After`, and the same time stands in the body
      (OpenWOP §1.2, LAFS D5).
- H4  Every answer carries the request's id in `X-Request-Id`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar, overload

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forestay import envelope
from forestay.kernel import Clock, Ids, Problem, SystemClock, canonical
from forestay.models import whole
from forestay.surface.exchange import Refused
from forestay.surface.negotiation import JSON, LAFS, PROBLEM_JSON, form_of

T = TypeVar("T")
Contract = Literal["openwop", "crp", "lafs"]
Endpoint = Callable[[Request], Awaitable[Response]]

BODY_LIMIT = 1024 * 1024
_RETRY_MS = 1000
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{2,127}")
_JSON_TYPE = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json", re.IGNORECASE)
_system_clock = SystemClock()
_system_ids = Ids(_system_clock)
_log = logging.getLogger("forestay.surface")


# Reading


async def read_body(request: Request, limit: int = BODY_LIMIT) -> bytes:
    """The whole body, refused as soon as it is known to exceed `limit` (H1)."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise Problem("unsupported_media_type", f"A body in {coding[:40]!r} is not read here.", expected="identity")
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(int(declared[:20]), limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(size, limit)
        chunks.append(chunk)
    return b"".join(chunks)


@overload
async def read_json(request: Request, *, limit: int = ...) -> Any: ...
@overload
async def read_json(request: Request, type: type[T], limit: int = ...) -> T: ...


async def read_json(request: Request, type: Any = Any, limit: int = BODY_LIMIT) -> Any:
    """The body as a `type`; a missing body, another media type, bad JSON or a bad shape is a Problem."""
    data = await read_body(request, limit)
    if not data:
        raise Problem("invalid_json", "The request has no body.", at="$", fix="Send one JSON document.")
    return parse_json(request, data, type, limit)


def parse_json(request: Request, data: bytes, type: Any, limit: int = BODY_LIMIT) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind and not _JSON_TYPE.fullmatch(kind):
        raise Problem("unsupported_media_type", f"{kind[:80]} is not read here.", expected=JSON)
    try:
        return canonical.decode(data, type, limit=limit)
    except Problem as problem:
        if "got `float`" not in problem.message:
            raise
        try:
            return msgspec.convert(_whole(canonical.decode(data, limit=limit)), type)
        except msgspec.ValidationError:
            raise problem from None


def _whole(value: Any) -> Any:
    """As JSON Schema counts: 7.0 is an integer."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def _too_large(size: int, limit: int) -> Problem:
    return Problem("payload_too_large", f"The body is larger than {limit} bytes.", limit=limit, observed=size)


# Who asked


def request_id(request: Request) -> str:
    """The caller's `X-Request-Id` when it is a plain one, else one of ours; the same for the whole request."""
    known: str | None = request.scope.get("forestay.request_id")
    if known is None:
        given = request.headers.get("x-request-id", "")
        known = given if _REQUEST_ID.fullmatch(given) else _ids(request).new("req")
        request.scope["forestay.request_id"] = known
    return known


def _ids(request: Request) -> Ids:
    return request.scope.get("forestay.ids") or _system_ids


def _clock(request: Request) -> Clock:
    return request.scope.get("forestay.clock") or _system_clock


def _operation(request: Request) -> str:
    """The name of what was asked: set by the route, else the method and path."""
    name: str = request.scope.get("forestay.operation") or f"{request.method} {request.url.path}"
    return name[:128]


# Answering


def contract_of(path: str) -> Contract:
    """Whose words a refusal at this path is said in."""
    if path == "/crp" or path.startswith("/crp/"):
        return "crp"
    return "lafs" if path.startswith(("/host/", "/_lafs/")) else "openwop"


def answer(
    request: Request,
    body: Any = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    contract: Contract = "openwop",
) -> Response:
    """`body` as JSON, in a LAFS envelope when the caller or the contract wants one; 204 and 304 have no body."""
    if status in (204, 304):
        return respond(request, b"", status, None, headers)
    preferred = form_of(request.headers.get("accept", ""), failed=False) == "lafs"
    if preferred or contract == "lafs":
        wrapped = envelope.success(_operation(request), body, **_said(request))
        return respond(request, envelope.encode(wrapped), status, LAFS if preferred else JSON, headers)
    return respond(request, msgspec.json.encode(body), status, JSON, headers)


def problem_answer(
    request: Request, problem: Problem, contract: Contract = "openwop", headers: Mapping[str, str] | None = None
) -> Response:
    """`problem` as `contract` says it, or as RFC 9457 or LAFS when the caller prefers that."""
    status = problem.row.http
    extra = dict(headers or {})
    if status in (429, 503) or problem.retry_after_ms is not None:
        wait_ms = _RETRY_MS if problem.retry_after_ms is None else problem.retry_after_ms
        seconds = max(1, math.ceil(wait_ms / 1000))
        problem = _with_retry(problem, wait_ms, seconds if status == 503 else None)
        extra["Retry-After"] = str(seconds)
    if status == 401:
        extra.setdefault("WWW-Authenticate", 'Bearer realm="forestay"')
    if status == 405 and isinstance(problem.details.get("allow"), list):
        extra["Allow"] = ", ".join(problem.details["allow"])
    reference = request_id(request)
    form = form_of(request.headers.get("accept", ""), failed=True)
    if form == "problem":
        content, kind = msgspec.json.encode(problem.as_problem_json(instance=reference)), PROBLEM_JSON
    elif form == "lafs" or contract == "lafs":
        kind = LAFS if form == "lafs" else JSON
        content = envelope.encode(envelope.failure(problem, _operation(request), **_said(request)))
    else:
        content, kind = msgspec.json.encode(_own_body(problem, contract, reference)), JSON
    return respond(request, content, status, kind, extra)


def _said(request: Request) -> dict[str, Any]:
    """What every envelope of this request has in common."""
    return {
        "clock": _clock(request),
        "ids": _ids(request),
        "transport": "http",
        "request_id": request_id(request),
        "mvi": "full",
    }


def _own_body(problem: Problem, contract: Contract, reference: str) -> dict[str, Any]:
    body = problem.as_crp() if contract == "crp" else problem.as_openwop()
    if contract == "crp" and "partial_output" in problem.details:  # C14: all that was generated, whatever its length
        body["details"]["partial_output"] = whole(problem.details["partial_output"])
    if problem.row.http >= 500:
        name = "correlation_id" if contract == "crp" else "correlationId"
        body["details"] = {**body.get("details", {}), name: reference}
    return body


def _with_retry(problem: Problem, wait_ms: int, seconds: int | None) -> Problem:
    """The problem with its waiting time filled in (H3)."""
    details = problem.details if seconds is None else {**problem.details, "retryAfter": seconds}
    filled = Problem(problem.key, problem.message, retry_after_ms=wait_ms, **details)
    filled.__cause__ = problem.__cause__
    return filled


def respond(
    request: Request, content: bytes, status: int, kind: str | None, headers: Mapping[str, str] | None
) -> Response:
    """Bytes as an answer, with the headers that every answer has (H4)."""
    every = {"X-Request-Id": request_id(request), "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    every.update(headers or {})
    return Response(content, status, every, media_type=kind)


# The boundary


def as_problem(error: BaseException, reference: str) -> Problem:
    """What an exception means to a caller; one that nobody foresaw is logged with the reference he gets."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return _of_http(error)
    if isinstance(error, RecursionError):
        return Problem("nesting_too_deep", "The document is nested too deeply.")
    _log.error("unexpected error, reference %s", reference, exc_info=error)
    return Problem.unexpected(error, reference)


def _of_http(error: HTTPException) -> Problem:
    """Starlette's own refusals, as rows of the table."""
    if error.status_code == 405:
        allow = sorted(filter(None, (error.headers or {}).get("Allow", "").replace(" ", "").split(",")))
        return Problem("method_not_allowed", "This method is not allowed here.", allow=allow)
    if error.status_code == 404:
        return Problem("not_found", "There is nothing at this address.", fix="See /v1/openapi.json for what there is.")
    if error.status_code < 500:
        return Problem("invalid_request", str(error.detail) or "The request cannot be understood.")
    return Problem("internal", "forestay met an unexpected error.")


def handler(contract: Contract) -> Callable[[Endpoint], Endpoint]:
    """An endpoint whose failures become `contract`'s answers (H2)."""

    def wrap(endpoint: Endpoint) -> Endpoint:
        @functools.wraps(endpoint)
        async def guarded(request: Request) -> Response:
            try:
                return await endpoint(request)
            except (asyncio.CancelledError, ClientDisconnect, Refused):
                raise
            except Exception as error:  # noqa: BLE001 - the boundary: whatever it is becomes an answer
                return problem_answer(request, as_problem(error, request_id(request)), contract)

        return guarded

    return wrap


class Boundary:
    """The same for a whole `Router`: routing and endpoints inside it. (A `Starlette` has a boundary of its own.)"""

    def __init__(self, app: ASGIApp, contract: Contract, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self._app = app
        self._contract: Contract = contract
        self._clock = clock
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("forestay.clock", self._clock)
        scope.setdefault("forestay.ids", self._ids)
        scope.setdefault(
            "app", self._app
        )  # with an app in scope, Starlette raises its 404 and 405 instead of answering
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except ClientDisconnect:
            return
        except Refused:  # it has its answer from elsewhere
            raise
        except Exception as error:
            request = Request(scope, receive)
            problem = as_problem(error, request_id(request))
            if started:  # an answer is on its way already: all that is left is to end it
                raise
            await problem_answer(request, problem, self._contract)(scope, receive, send)

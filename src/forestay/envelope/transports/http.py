"""Envelopes over HTTP: content negotiation, statuses, Retry-After (R21, D5, §1.10).

A client gets the envelope as `application/json`; as `application/vnd.lafs.envelope+json` when it asks for that; and a
failure as RFC 9457 when it prefers `application/problem+json`. The status is the registry's in every form.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from forestay.envelope.build import failure
from forestay.envelope.transports.operations import Operations, Said
from forestay.envelope.types import MEDIA_TYPE
from forestay.kernel import Clock, Ids, Problem, canonical

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
MAX_BODY_BYTES = 1024 * 1024
DEFAULT_RETRY_AFTER_S = 1
RequestId = Callable[[Request], str]
_encode = msgspec.json.Encoder().encode


def negotiate(accept: str | None, *, failed: bool) -> str | None:
    """Return the media type to answer with, or None when the client accepts none of ours (RFC 9110 §12.5.1)."""
    offers = (JSON, MEDIA_TYPE, PROBLEM_JSON) if failed else (JSON, MEDIA_TYPE)
    ranges = _ranges(accept or "*/*")
    scored = [(_quality(offer, ranges), -place, offer) for place, offer in enumerate(offers)]
    quality, _, best = max(scored)
    if quality > 0:
        return best
    # A client that accepts only problem details says nothing about successes: it gets plain JSON.
    return JSON if not failed and _quality(PROBLEM_JSON, ranges) > 0 else None


def respond(said: Said, accept: str | None) -> Response:
    """Return the answer as an HTTP response."""
    problem = said.problem
    media = negotiate(accept, failed=problem is not None)
    status = 200 if problem is None else problem.row.http
    headers = {"Vary": "Accept"}
    if problem is not None:
        after = retry_after(problem)
        if after is not None:
            headers["Retry-After"] = str(after)
    if media == PROBLEM_JSON and problem is not None:
        body: dict[str, Any] = problem.as_problem_json(instance=said.envelope.meta.request_id)
    else:
        body = said.shown
    return Response(_encode(body), status, headers, media_type=media or JSON)


def retry_after(problem: Problem) -> int | None:
    """Return the seconds to wait, rounded up; 429 and 503 always have them (D5)."""
    if problem.retry_after_ms is not None:
        return max(1, math.ceil(problem.retry_after_ms / 1000))
    return DEFAULT_RETRY_AFTER_S if problem.row.http in (429, 503) else None


async def read_json(request: Request, limit: int = MAX_BODY_BYTES) -> Any:
    """Read the body as JSON; check its announced length before reading, and its real length while reading."""
    announced = request.headers.get("content-length", "0")
    if not announced.isascii() or not announced.isdigit() or len(announced) > 18 or int(announced) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    if not body:
        return {}
    media = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if media != JSON and not media.endswith("+json"):
        raise Problem("unsupported_media_type", f"A body of type {media[:80]!r} is not read here.")
    return canonical.decode(bytes(body), limit=limit)


def operation_routes(operations: Operations, *, prefix: str = "/operations") -> list[Route]:
    """`GET` and `POST {prefix}/{name}`: parameters from the query or the JSON body."""

    async def call(request: Request) -> Response:
        parameters: dict[str, Any] = dict(request.query_params)
        problem: Problem | None = None
        try:
            if request.method == "POST":
                body = await read_json(request)
                if not isinstance(body, dict):
                    raise Problem("schema_mismatch", "The body is an object of parameters.", at="$")
                parameters |= body
            if isinstance(parameters.get("_budget"), str):
                parameters["_budget"] = canonical.decode(parameters["_budget"])
        except Problem as caught:
            problem = caught
        accept = request.headers.get("accept")
        name = request.path_params["name"]
        request_id = request.headers.get("x-request-id")
        if problem is None and negotiate(accept, failed=False) is None:
            problem = Problem("not_acceptable", "None of the media types you accept can be produced.", accept=accept)
        if problem is not None:
            return respond(operations.refuse(name, problem, transport="http", request_id=request_id), accept)
        said = await operations.call(name, parameters, transport="http", request_id=request_id)
        return respond(said, accept)

    return [Route(f"{prefix}/{{name:path}}", call, methods=["GET", "POST"])]


def answering(
    operation: str,
    clock: Clock,
    ids: Ids,
    function: Callable[[Request], Awaitable[Said]],
    request_id: RequestId | None = None,
) -> Callable[[Request], Awaitable[Response]]:
    """Make an endpoint from a function that returns an answer or raises a Problem."""

    async def endpoint(request: Request) -> Response:
        try:
            said = await function(request)
        except Problem as problem:
            name = None if request_id is None else request_id(request)
            envelope = failure(problem, operation, transport="http", clock=clock, ids=ids, request_id=name)
            said = Said(envelope, msgspec.to_builtins(envelope), problem)
        return respond(said, request.headers.get("accept"))

    return endpoint


def _ranges(accept: str) -> list[tuple[str, float]]:
    ranges: list[tuple[str, float]] = []
    for part in accept[:2048].split(",")[:50]:
        media, *parameters = (piece.strip() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                quality = _number(value.strip())
        if media:
            ranges.append((media.lower(), quality))
    return ranges


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 <= value <= 1 else 0.0


def _quality(offer: str, ranges: list[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that covers `offer`."""
    family = offer.partition("/")[0] + "/*"
    for wanted in (offer, family, "*/*"):
        for media, quality in ranges:
            if media == wanted:
                return quality
    return 0.0


def _too_large(limit: int) -> Problem:
    return Problem(
        "payload_too_large", f"A body may have {limit} bytes.", limit=limit, fix="Send less, or send it in parts."
    )

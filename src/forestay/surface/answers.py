"""Turns values and problems into HTTP answers.

Invariants:

- H2  Every failure is answered with the contract's error body; an unexpected exception is a 500 with a correlation id
      and none of its text.
- H3  429, 503 and every other problem with a time to wait carry `Retry-After`, and the body has the same time
      (OpenWOP §1.2, LAFS D5).
- H4  Every answer carries the request's id in `X-Request-Id`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forestay import envelope
from forestay.kernel import Problem
from forestay.models import whole
from forestay.surface.exchange import exchange_of
from forestay.surface.negotiation import JSON, LAFS, PROBLEM_JSON, form_of

Contract = Literal["openwop", "crp", "lafs", "a2a", "mcp", "openai", "anthropic", "console"]

_RETRY_MS = 1000
_log = logging.getLogger("forestay.surface")


def contract_of(path: str) -> Contract:
    """Return the contract whose error body a refusal at this path has."""
    if path == "/crp" or path.startswith("/crp/"):
        return "crp"
    if path.startswith("/openai/"):
        return "openai"
    if path.startswith("/anthropic/"):
        return "anthropic"
    return "lafs" if path.startswith(("/host/", "/_lafs/", "/forms/", "/a2a", "/mcp")) else "openwop"


def answer(
    request: Request,
    body: Any = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    contract: Contract = "openwop",
) -> Response:
    """Answer with `body` as JSON, enveloped if the caller or the contract wants that; 204 and 304 have no body."""
    if status in (204, 304):
        return respond(request, b"", status, None, headers)
    preferred = form_of(request.headers.get("accept", ""), failed=False) == "lafs"
    if preferred or contract == "lafs":
        wrapped = envelope.success(_operation(request), body, **_said(request))
        return respond(request, envelope.encode(wrapped), status, LAFS if preferred else JSON, headers)
    return respond(request, msgspec.json.encode(body), status, JSON, headers)


def with_headers(problem: Problem) -> tuple[Problem, dict[str, str]]:
    """Return the problem with its waiting time (H3), and the headers that repeat it."""
    headers: dict[str, str] = {}
    status = problem.row.http
    if status in (429, 503) or problem.retry_after_ms is not None:
        wait_ms = _RETRY_MS if problem.retry_after_ms is None else problem.retry_after_ms
        seconds = max(1, math.ceil(wait_ms / 1000))
        problem = _with_retry(problem, wait_ms, seconds if status == 503 else None)
        headers = {"Retry-After": str(seconds), **_rate_headers(problem, seconds)}
    if status == 405 and isinstance(problem.details.get("allow"), list):
        headers["Allow"] = ", ".join(problem.details["allow"])
    return problem, headers


def problem_answer(request: Request, problem: Problem, contract: Contract = "openwop") -> Response:
    """Answer with `problem` in the contract's form, or as RFC 9457 or LAFS when the caller prefers that."""
    status = problem.row.http
    problem, extra = with_headers(problem)
    if status == 401:
        extra["WWW-Authenticate"] = 'Bearer realm="forestay"'
    reference = exchange_of(request).request_id
    form = form_of(request.headers.get("accept", ""), failed=True)
    if form == "problem":
        content, kind = msgspec.json.encode(problem.as_problem_json(instance=reference)), PROBLEM_JSON
    elif form == "lafs" or contract in ("lafs", "a2a", "mcp"):
        kind = LAFS if form == "lafs" else JSON
        content = envelope.encode(envelope.failure(problem, _operation(request), **_said(request)))
    else:
        content, kind = msgspec.json.encode(_own_body(problem, contract, reference)), JSON
    return respond(request, content, status, kind, extra)


def _operation(request: Request) -> str:
    """Return the operation's name, else the method and path."""
    return (exchange_of(request).operation or f"{request.method} {request.url.path}")[:128]


def _said(request: Request) -> dict[str, Any]:
    """Return the members that every envelope of this request shares."""
    exchange = exchange_of(request)
    return {
        "clock": exchange.clock,
        "ids": exchange.ids,
        "transport": "http",
        "request_id": exchange.request_id,
        "mvi": "full",
    }


def _own_body(problem: Problem, contract: Contract, reference: str) -> dict[str, Any]:
    if contract == "openai":
        return {"error": openai_error(problem)}
    if contract == "anthropic":
        return {"type": "error", "error": anthropic_error(problem), "request_id": reference}
    body = problem.as_crp() if contract == "crp" else problem.as_openwop()
    if contract == "crp" and "partial_output" in problem.details:  # C14: all generated text, whatever its length
        body["details"]["partial_output"] = whole(problem.details["partial_output"])
    if problem.row.http >= 500:
        name = "correlation_id" if contract == "crp" else "correlationId"
        body["details"] = {**body.get("details", {}), name: reference}
    return body


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return a problem in OpenAI's form; `type` follows from the status, as its clients expect."""
    at = problem.details.get("at")
    param = at.removeprefix("$.") if isinstance(at, str) else None
    return {**_told(problem, "server_error"), "param": param, "code": problem.key}


def anthropic_error(problem: Problem) -> dict[str, Any]:
    """Return a problem in Anthropic's form."""
    return _told(problem, "api_error")


def _told(problem: Problem, internal: str) -> dict[str, Any]:
    """Return the message with its fix, and the error type of the status; `internal` is the type of a 5xx."""
    status = problem.row.http
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else internal)
    fix = problem.details.get("fix")
    message = f"{problem.message} {fix}" if isinstance(fix, str) else problem.message
    return {"message": message, "type": kind}


def _rate_headers(problem: Problem, seconds: int) -> dict[str, str]:
    """Return the exceeded rate in the header fields of the IETF draft (`RateLimit`, `RateLimit-Policy`)."""
    details = problem.details
    if problem.key != "rate_limited" or "windowSeconds" not in details:
        return {}
    name = f'"{details["scope"]}"'
    return {
        "RateLimit": f"{name};r=0;t={seconds}",
        "RateLimit-Policy": f"{name};q={details['limit']};w={details['windowSeconds']}",
    }


def _with_retry(problem: Problem, wait_ms: int, seconds: int | None) -> Problem:
    details = problem.details if seconds is None else {**problem.details, "retryAfter": seconds}
    filled = Problem(problem.key, problem.message, retry_after_ms=wait_ms, **details)
    filled.__cause__ = problem.__cause__
    return filled


def respond(
    request: Request, content: bytes, status: int, kind: str | None, headers: Mapping[str, str] | None
) -> Response:
    """Answer with bytes and the headers of every answer (H4)."""
    every = {
        "X-Request-Id": exchange_of(request).request_id,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    every.update(headers or {})
    return Response(content, status, every, media_type=kind)


def as_problem(error: BaseException, reference: str) -> Problem:
    """Return the Problem that an exception means to a caller; log an unexpected one with the caller's reference."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RecursionError):
        return Problem("nesting_too_deep", "The document is nested too deeply.")
    _log.error("unexpected error, reference %s", reference, exc_info=error)
    return Problem.unexpected(error, reference)

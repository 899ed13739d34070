"""The sidecar's operations (CRP §1.14): declared at the methods of `Service`, served by the one router.

- M1  A key needs `runs:read` to look and `runs:create` to change anything; what the contract calls open needs none.
- M2  A session that was opened with a binding secret is entered with a signature over the request (C11).
- M3  A stream that has begun ends with `done` or `error`; what fails before its first event is an HTTP error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forestay.kernel import OPERATOR, Problem
from forestay.relay import PROTOCOL_VERSION, CrpError, Session
from forestay.surface.crp.service import DECLARED, Declared, Service
from forestay.surface.negotiation import EVENTS, JSON
from forestay.surface.openapi import About, document
from forestay.surface.operations import Call, Operation

BODY_LIMIT = 104_857_600
METRICS = "text/plain; version=0.0.4"
_SESSION = ("invalid_request", "not_found", "session_closed", "session_expired", "signature_invalid", "role_denied")


def operations(service_of: Callable[[str], Service], prefix: str = "/crp") -> list[Operation]:
    """The sidecar below `prefix`; `service_of` gives a tenant's view of it."""
    made: list[Operation] = []
    described: dict[str, Any] = {}

    async def openapi(call: Call) -> Response:
        if not described:
            key_required = service_of(OPERATOR).auth_required
            described.update(description(made, prefix or "/", key_required=key_required))
        return call.answer(described)

    for item in DECLARED:
        perform = openapi if item.name == "getOpenapi" else _performed(item, service_of)
        made.append(_operation(item, perform, prefix))
    return made


def description(served: list[Operation], server: str, *, key_required: bool = True) -> dict[str, Any]:
    about = About(
        summary="Sessions, dispatches and facts over HTTP (CRP 2.0).",
        title="forestay relay",
        version=PROTOCOL_VERSION,
        server=server,
        errors=CrpError,
        key_required=key_required,
    )
    return document(served, about)


def _operation(item: Declared, perform: Callable[[Call], Awaitable[Response]], prefix: str) -> Operation:
    problems = (*(_SESSION if item.session else ()), *item.problems, "internal")
    return Operation(
        name=f"crp.{item.name}",
        method=item.method,
        path=prefix + item.path,
        perform=perform,
        summary=item.summary,
        answers=item.answers,
        problems=tuple(dict.fromkeys(problems)),
        scopes=() if item.open else ("runs:read",) if item.method == "GET" else ("runs:create",),
        auth="none" if item.open else "key",
        query=item.query,
        body=item.body,
        body_optional=item.body_optional,
        body_limit=BODY_LIMIT,
        reads_body=item.reads_body,
        headers=("X-CRP-Signature",) if item.session else (),
        sensitive=item.name in ("exportState", "createSession", "resumeSession"),
        streams=item.streams,
        contract="crp",
        media=EVENTS if item.streams else METRICS if item.text else JSON,
        tag=item.tag,
    )


def _performed(item: Declared, service_of: Callable[[str], Service]) -> Callable[[Call], Awaitable[Response]]:
    async def perform(call: Call) -> Response:
        service = service_of(OPERATOR if item.open else call.caller.tenant)
        try:
            response = await _answer(item, service, call)
        except Problem as problem:
            service.requests[item.name, problem.row.http] += 1
            raise
        service.requests[item.name, response.status_code] += 1
        return response

    return perform


async def _answer(item: Declared, service: Service, call: Call) -> Response:
    arguments: list[Any] = []
    if item.session:
        arguments.append(await _entered(service, call, signed=item.name != "resumeSession"))
    if item.body is not None and item.reads_body:
        arguments.append(call.body)
    if item.query is not None:
        arguments.append(call.query)
    if item.whole:
        arguments.append(call)
    result = await getattr(service, item.function)(*arguments)
    if isinstance(result, Response):
        return result
    if item.text:
        return Response(result, 200, media_type=METRICS)
    status, body = result if isinstance(result, tuple) else (200, result)
    return call.answer(body, status)


async def _entered(service: Service, call: Call, *, signed: bool) -> Session:
    """The session that the path names (M2)."""
    session = await service.relay.session(call.path["sessionId"])
    if signed:
        request = call.request
        signature = request.headers.get("x-crp-signature")
        await session.authenticate(request.method, _target(request), call.data, signature)
    return session


def _target(request: Request) -> str:
    """What the signature covers: the path as it was asked for, with its query when there is one (C11)."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    query: bytes = request.scope.get("query_string", b"")
    path = raw.split(b"?")[0]
    return (path + b"?" + query if query else path).decode("latin-1")

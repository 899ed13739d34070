"""The sidecar as an ASGI application: `/crp` of the host, or a server of its own (CRP C9, C11).

Invariants:

- R1  A request is matched, then authenticated (token, then signature), then read, then performed; whatever fails there
      leaves as `{code, message, details}`.
- R2  Without a token only this machine is answered; `/health`, `/ready` and the description are open.
- R3  A stream that has begun ends with `done` or `error`; what fails before its first event is an HTTP error.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from forestay.http.answers import answer, as_problem, parse_json, problem_answer, read_body, request_id
from forestay.http.crp import openapi, rpc, views
from forestay.http.crp.operations import OPERATIONS, Operation
from forestay.http.crp.service import Service, given_fields
from forestay.http.exchange import note_route
from forestay.kernel import canonical
from forestay.kernel.problems import Problem
from forestay.models.assemble import whole
from forestay.relay import Relay, Session, SessionConfig, StreamEvent
from forestay.relay.replies import told

BODY_LIMIT = 104_857_600
_SESSION = re.compile(r"/sessions/([^/]{1,128})(/.+)")


def crp_app(
    relay: Relay,
    *,
    token: str | None = None,
    trusted: bool = False,
    max_sessions: int = 256,
    providers: bool = True,
) -> ASGIApp:
    """The sidecar over `relay`. `trusted`: whoever mounts it has checked the caller already. `providers`: whether
    callers may register providers, and so choose addresses that the host calls."""
    service = Service(relay, max_sessions=max_sessions, auth_required=trusted or token is not None, providers=providers)
    return _App(service, token, trusted)


class _App:
    def __init__(self, service: Service, token: str | None, trusted: bool) -> None:
        self.service = service
        self._token = token
        self._trusted = trusted
        self._exact: dict[tuple[str, str], Operation] = {
            (item.method, item.path): item for item in OPERATIONS if not item.session
        }
        self._of_session: dict[tuple[str, str], Operation] = {
            (item.method, item.path.removeprefix("/sessions/{sessionId}")): item for item in OPERATIONS if item.session
        }
        self._description: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope["forestay.clock"] = self.service.relay.clock
        request = Request(scope, receive)
        name = "unmatched"
        try:
            operation, session_id = self._match(request)
            name = operation.name
            scope["forestay.operation"] = f"crp.{name}"
            note_route(scope, f"crp.{name}")
            response = await self._answer(request, operation, session_id)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever it is becomes an answer (R1)
            response = _refused(request, as_problem(error, request_id(request)))
        self.service.requests[name, response.status_code] += 1
        await response(scope, receive, send)

    def _match(self, request: Request) -> tuple[Operation, str | None]:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"
        found = _SESSION.fullmatch(path)
        table, rest = (self._of_session, found.group(2)) if found else (self._exact, path)
        operation = table.get((request.method, rest)) or (
            table.get(("GET", rest)) if request.method == "HEAD" else None
        )
        if operation is None:
            allow = sorted(method for method, known in table if known == rest)
            if allow:
                raise Problem("method_not_allowed", f"{request.method[:16]} is not allowed here.", allow=allow)
            raise Problem("not_found", "There is nothing at this address.", fix="See openapi.json for what there is.")
        return operation, found.group(1) if found else None

    async def _answer(self, request: Request, operation: Operation, session_id: str | None) -> Response:
        if not operation.open:
            self._authorise(request)
        if operation.name == "getOpenapi":
            server = str(request.scope.get("root_path", "")) or "/"
            described = openapi.document(server, key_required=self.service.auth_required)
            return answer(request, described, contract="crp")
        data = await read_body(request, BODY_LIMIT) if operation.body is not None or request.method == "POST" else b""
        arguments: list[Any] = []
        if session_id is not None:
            arguments.append(await self._session(request, operation, session_id, data))
        if operation.name == "rpc":
            try:
                calls = _read(request, data, operation.body)
            except Problem as problem:
                if problem.row.http != 400:
                    raise
                return rpc.refused(request, problem)
            return await rpc.answer_all(self.service, request, data, calls)
        if operation.body is not None:
            if not data and not operation.body_optional:
                raise Problem("invalid_json", "The request has no body.", at="$", fix="Send one JSON document.")
            arguments.append(_read(request, data, operation.body) if data else None)
        if operation.query is not None:
            arguments.append(_query(request, operation.query))
        if operation.body is SessionConfig:
            arguments.append(given_fields(data))
        if operation.name == "dispatchStream":
            return await _stream(request, self.service.events(*arguments))
        result = await getattr(self.service, operation.perform)(*arguments)
        if operation.text:
            return Response(result, 200, media_type="text/plain; version=0.0.4")
        status, body = result if isinstance(result, tuple) else (200, result)
        return answer(request, body, status, contract="crp")

    async def _session(self, request: Request, operation: Operation, session_id: str, data: bytes) -> Session:
        session = await self.service.relay.session(session_id)
        if operation.name != "resumeSession":
            await session.authenticate(request.method, _target(request), data, request.headers.get("x-crp-signature"))
        return session

    def _authorise(self, request: Request) -> None:
        """R2."""
        if self._trusted:
            return
        if self._token is not None:
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode()):
                return
            raise Problem(
                "unauthenticated", "The request carries no valid token.", fix="Send Authorization: Bearer <token>."
            )
        client = request.client
        if client is not None and not _is_loopback(client.host):
            raise Problem(
                "unauthenticated",
                "Without a token only this machine is answered.",
                fix="Start the sidecar with a token.",
            )


def _read(request: Request, data: bytes, type: Any) -> Any:
    """The body as a `type`. JSON has one kind of number: `5.0` is read where `5` is meant."""
    try:
        return parse_json(request, data, type, BODY_LIMIT)
    except Problem as problem:
        if problem.key != "schema_mismatch" or "got `float`" not in problem.message:
            raise
    return parse_json(request, msgspec.json.encode(_whole(msgspec.json.decode(data))), type, BODY_LIMIT)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {key: _whole(item) for key, item in value.items()} if isinstance(value, dict) else value


def _refused(request: Request, problem: Problem) -> Response:
    response = problem_answer(request, problem, "crp")
    if "partial_output" in problem.details and response.media_type == "application/json":
        body = msgspec.json.decode(response.body)
        body.setdefault("details", {})["partial_output"] = whole(problem.details["partial_output"])
        headers = {key: value for key, value in response.headers.items() if key != "content-length"}
        return Response(msgspec.json.encode(body), response.status_code, headers)
    return response


async def _stream(request: Request, events: AsyncGenerator[StreamEvent, None]) -> Response:
    """Server-sent events, begun only when the first event is there (R3)."""
    first = await anext(events)

    async def frames() -> AsyncIterator[bytes]:
        yield _frame(first)
        async for event in told(events):
            yield _frame(event)

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Request-Id": request_id(request)}
    return StreamingResponse(frames(), 200, headers, media_type="text/event-stream")


def _frame(event: StreamEvent) -> bytes:
    return b"event: " + event.event_type.encode() + b"\ndata: " + msgspec.json.encode(views.event(event)) + b"\n\n"


def _query(request: Request, type: Any) -> Any:
    pairs = parse_qsl(request.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise Problem("invalid_request", f"The parameter {name[:40]} stands twice.", at=f"$.{name[:40]}")
        values[name] = value
    try:
        return msgspec.convert(values, type, strict=False)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error)
        raise Problem("schema_mismatch", message, at=where) from error


def _target(request: Request) -> str:
    """What the signature covers: the path as it was asked for, with its query when there is one (C11)."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    query: bytes = request.scope.get("query_string", b"")
    path = raw.split(b"?")[0]
    return (path + b"?" + query if query else path).decode("latin-1")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False

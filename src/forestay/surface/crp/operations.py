"""Declares the sidecar's operations, over HTTP and as JSON-RPC.

- M1  A key needs `runs:read` to read and `runs:create` to change anything; operations that the contract calls open need
      no key.
- M2  A request to a session with a binding secret must be signed (C11).
- M3  A stream that has begun ends with `done` or `error`; a failure before its first event is an HTTP error.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from starlette.requests import Request
from starlette.responses import Response

from forestay.kernel import OPERATOR, Problem
from forestay.relay import Session
from forestay.surface.negotiation import EVENTS, JSON
from forestay.surface.operations import Call, Details, Method, Operations, read_by
from forestay.surface.reading import read_body

if TYPE_CHECKING:
    from forestay.surface.crp.service import Service

_SESSION = ("invalid_request", "not_found", "session_closed", "session_expired", "signature_invalid", "role_denied")
_UNASKED = 65_536  # the most bytes of a body that only its signature covers
F = TypeVar("F", bound=Callable[..., Awaitable[object]])
ServiceOf = Callable[[str], "Service"]
api = Operations[ServiceOf](contract="crp", body_limit=104_857_600)


class RpcMethod(NamedTuple):
    """A method of JSON-RPC: the function of the service and the type of its parameters."""

    perform: Callable[..., Awaitable[object]]
    parameters: Any
    session: bool


RPC: dict[str, RpcMethod] = {}


class Group:
    """Operations below one path. Each is declared at the method of `Service` that performs it.

    The names of a method's parameters say what it gets: the `session` of the path, the `body`, the `query`, the whole
    `call`. A session's operations are JSON-RPC methods too, under the same name unless `rpc` gives another or none.
    """

    def __init__(self, tag: str, path: str = "") -> None:
        self._tag = tag
        self._path = path

    def get(
        self, path: str, name: str, answers: Any, *, open: bool = False, rpc: str | None = None, **more: Unpack[Details]
    ) -> Callable[[F], F]:
        return self._declare("GET", path, name, answers, open, rpc, more)

    def post(
        self, path: str, name: str, answers: Any, *, open: bool = False, rpc: str | None = None, **more: Unpack[Details]
    ) -> Callable[[F], F]:
        return self._declare("POST", path, name, answers, open, rpc, more)

    def _declare(
        self, method: Method, path: str, name: str, answers: Any, open: bool, rpc: str | None, more: Details
    ) -> Callable[[F], F]:
        if rpc is None:
            rpc = name if self._path else ""

        def declare(function: F) -> F:
            taken = tuple(inspect.signature(function).parameters)[1:]
            of_session = "session" in taken
            problems = (*(_SESSION if of_session else ()), *more.get("problems", ()), "internal")
            read = read_by(function)
            details: Details = {
                "scopes": () if open else ("runs:read",) if method == "GET" else ("runs:create",),
                "auth": "none" if open else "key",
                "headers": ("X-CRP-Signature",) if of_session else (),
                "media": EVENTS if more.get("streams") else JSON,
                "tag": self._tag,
                **read,
                **more,
                "problems": tuple(dict.fromkeys(problems)),
            }
            perform = _performing(function, name, taken, open)
            api.add(method, self._path + path, f"crp.{name}", answers, **details)(perform)
            if rpc:
                RPC[f"crp.{rpc}"] = RpcMethod(function, read.get("body", read.get("query")), of_session)
            return function

        return declare


def _performing(
    function: Callable[..., Awaitable[object]], name: str, taken: tuple[str, ...], open: bool
) -> Callable[[ServiceOf, Call], Awaitable[Response]]:
    async def answered(service: Service, call: Call) -> Response:
        values: dict[str, Any] = {"body": call.body, "query": call.query, "call": call}
        if "session" in taken:
            values["session"] = await _entered(service, call, signed=name != "resumeSession")
        result = await function(service, *(values[key] for key in taken))
        return result if isinstance(result, Response) else call.answer(result)

    async def perform(service_of: ServiceOf, call: Call) -> Response:
        service = service_of(OPERATOR if open else call.tenant)
        try:
            response = await answered(service, call)
        except Problem as problem:
            service.requests[name, problem.row.http] += 1
            raise
        service.requests[name, response.status_code] += 1
        return response

    perform.__doc__ = function.__doc__
    return perform


async def _entered(service: Service, call: Call, *, signed: bool) -> Session:
    """Return the session of the path, after checking the signature (M2)."""
    session = await service.relay.session(call.path["sessionId"])
    if signed:
        request = call.request
        data, signature = call.data, request.headers.get("x-crp-signature")
        if signature is not None and call.operation.body is None:  # an unneeded `{}` is signed too
            data = await read_body(request, _UNASKED)
        await session.authenticate(request.method, _target(request), data, signature)
    return session


def _target(request: Request) -> str:
    """Return the target that the signature covers: the requested path, with its query if there is one (C11)."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    query: bytes = request.scope.get("query_string", b"")
    path = raw.split(b"?")[0]
    return (path + b"?" + query if query else path).decode("latin-1")

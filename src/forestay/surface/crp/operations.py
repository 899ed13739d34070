"""How the sidecar declares its operations, over HTTP and as JSON-RPC.

- M1  A key needs `runs:read` to look and `runs:create` to change anything; what the contract calls open needs none.
- M2  A session that was opened with a binding secret is entered with a signature over the request (C11).
- M3  A stream that has begun ends with `done` or `error`; what fails before its first event is an HTTP error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from starlette.requests import Request
from starlette.responses import Response

from forestay.kernel import OPERATOR, Problem
from forestay.relay import Session
from forestay.surface.negotiation import EVENTS, JSON
from forestay.surface.operations import Call, Details, Method, Operations

if TYPE_CHECKING:
    from forestay.surface.crp.service import Service

_SESSION_PATH = "/sessions/{sessionId}"
_SESSION = ("invalid_request", "not_found", "session_closed", "session_expired", "signature_invalid", "role_denied")
F = TypeVar("F", bound=Callable[..., Awaitable[object]])
ServiceOf = Callable[[str], "Service"]
api = Operations[ServiceOf](contract="crp", body_limit=104_857_600)


class RpcMethod(NamedTuple):
    """A method of JSON-RPC: the function of the service and the type of its parameters."""

    perform: Callable[..., Awaitable[object]]
    parameters: Any
    session: bool


RPC: dict[str, RpcMethod] = {}


def operation(
    method: Method,
    path: str,
    name: str,
    answers: Any,
    group: str,
    *,
    open: bool = False,
    whole: bool = False,
    rpc: str = "",
    **details: Unpack[Details],
) -> Callable[[F], F]:
    """Declare the operation that the decorated method of `Service` performs.

    The method is given the session of the path, the body and the query, as far as there are any, and with `whole` the
    call itself. `rpc` is its name in JSON-RPC.
    """
    of_session = path.startswith(_SESSION_PATH)

    def declare(function: F) -> F:
        async def perform(service_of: ServiceOf, call: Call) -> Response:
            service = service_of(OPERATOR if open else call.tenant)
            try:
                response = await _answered(service, call)
            except Problem as problem:
                service.requests[name, problem.row.http] += 1
                raise
            service.requests[name, response.status_code] += 1
            return response

        async def _answered(service: Service, call: Call) -> Response:
            arguments: list[Any] = []
            if of_session:
                arguments.append(await _entered(service, call, signed=name != "resumeSession"))
            if call.operation.body is not None and call.operation.reads_body:
                arguments.append(call.body)
            if call.operation.query is not None:
                arguments.append(call.query)
            result = await function(service, *arguments, *((call,) if whole else ()))
            return result if isinstance(result, Response) else call.answer(result)

        perform.__doc__ = function.__doc__
        defaults: Details = {
            "scopes": () if open else ("runs:read",) if method == "GET" else ("runs:create",),
            "auth": "none" if open else "key",
            "headers": ("X-CRP-Signature",) if of_session else (),
            "media": EVENTS if details.get("streams") else JSON,
            "tag": group,
        }
        problems = (*(_SESSION if of_session else ()), *details.get("problems", ()), "internal")
        told: Details = {**defaults, **details, "problems": tuple(dict.fromkeys(problems))}
        api.add(method, path, f"crp.{name}", answers, **told)(perform)
        if rpc:
            RPC[f"crp.{rpc}"] = RpcMethod(function, details.get("body", details.get("query")), of_session)
        return function

    return declare


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

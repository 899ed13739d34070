"""A request passes authentication, rate limit, scope, load, query, body and idempotency, in this order; then its
operation performs it.

Invariants:

- D1  401 comes before every answer that could tell a caller something: before 404, 405 and 501.
- D2  Rate limits come before scopes (OpenWOP §1.4).
- D3  A mutating operation with an `Idempotency-Key` is executed once (OpenWOP §1.5). The same key from another caller
      of the tenant does not match, and is refused; an answer that shows a secret is repeated only to its API key.
- D4  Every request gets an answer in the operation's contract, whatever happens.
- D5  A stream holds a stream's place in the load until its last byte; everything else holds a request's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forestay.kernel import Clock, Ids, Problem, canonical
from forestay.runs import Claim, Idempotency, Reply
from forestay.surface.answers import Contract, as_problem, contract_of, problem_answer, respond, with_headers
from forestay.surface.auth import Caller
from forestay.surface.exchange import Exchange, Refused, open_exchange, request_id
from forestay.surface.limits import Load, RateLimits
from forestay.surface.negotiation import EVENTS
from forestay.surface.operations import Call, Operation
from forestay.surface.reading import Form, parse_form, parse_json, read_body, read_query
from forestay.surface.routing import Routes

_KEY = re.compile(r"[!-~]{1,255}")
_REPLAYED = "openwop-Idempotent-Replay"
# The headers of a kept answer; the request's id is not among them, because it belongs to one request.
_KEPT_HEADERS = frozenset({"content-type", "location", "etag"})


class Pages(Protocol):
    """The console as the surface needs it: its operations, the signed-in caller, and the page of a problem."""

    @property
    def operations(self) -> Sequence[Operation]: ...

    def caller(self, request: Request) -> Caller: ...

    def problem_page(self, request: Request, problem: Problem) -> Response: ...


class Dispatch:
    """An ASGI application over operations.

    `unmatched` gives the problem of an unknown path, for an authenticated caller. `contract` is the contract of unknown
    paths; without it, the path decides.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        authenticate: Callable[[Request], Caller],
        limits: RateLimits,
        load: Load,
        idempotency: Idempotency | None,
        *,
        clock: Clock,
        ids: Ids,
        unmatched: Callable[[Request], Problem],
        closing: asyncio.Event | None = None,
        contract: Contract | None = None,
        pages: Pages | None = None,
    ) -> None:
        shown = pages.operations if pages is not None else ()
        self.operations = (*operations, *shown)
        self._routes = Routes(self.operations)
        self._roots = {_root(operation.path) for operation in operations}
        self._page_roots = {_root(operation.path) for operation in shown}
        self._authenticate = authenticate
        self._limits = limits
        self._load = load
        self._idempotency = idempotency
        self._clock = clock
        self._ids = ids
        self._unmatched = unmatched
        self._closing = closing or asyncio.Event()
        self._contract = contract
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        exchange = open_exchange(request, self._clock, self._ids)
        contract: Contract | None = None
        try:
            operation, path = self._match(request, exchange)
            exchange.route = exchange.operation = operation.name
            contract = operation.contract
            caller = self._admit(operation, request, exchange)
            key = caller.key_id if caller is not None else ""
            if operation.streams and exchange.waits is not None:
                exchange.waits()
            with self._load.enter("streams" if operation.streams else "requests", key):
                response = await self._run(Call(operation, request, path, caller, self._closing))
                if operation.streams:
                    await response(scope, receive, send)
                    return
            if response.headers.get("content-type", "").startswith(EVENTS):  # D5
                with self._load.enter("streams", key):
                    await response(scope, receive, send)
                return
        except ClientDisconnect:
            return
        except Refused:  # the request already has its answer
            raise
        except Exception as error:  # D4, the boundary: any failure becomes an answer
            if exchange.status:  # an answer is already on its way: it can only be ended
                raise
            response = self._refusal(
                request, as_problem(error, exchange.request_id), contract or self._contract_at(request)
            )
        await response(scope, receive, send)

    def _contract_at(self, request: Request) -> Contract:
        """Return the contract of a refusal at this address: the console's for its pages, and for a browser at a path
        that belongs to no contract."""
        root = _root(request.scope["path"])
        if self._pages is not None and root not in self._roots:
            lost = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
            if lost or root in self._page_roots:
                return "console"
        return self._contract or contract_of(request.scope["path"])

    def _refusal(self, request: Request, problem: Problem, contract: Contract) -> Response:
        if contract == "console" and self._pages is not None:
            problem, headers = with_headers(problem)
            page = self._pages.problem_page(request, problem)
            page.headers.update(headers)
            return page
        return problem_answer(request, problem, contract)

    def _match(self, request: Request, exchange: Exchange) -> tuple[Operation, Mapping[str, str]]:
        scope = request.scope
        try:
            found = self._routes.match(request.method, scope["path"], slashes=scope.get("forestay.slashes", False))
            if found is not None:
                return found
            problem = self._unmatched(request)
        except Problem as refused:
            problem = refused
        if self._contract_at(request) != "console":
            self._identify(request, exchange, "unmatched", self._authenticate)
        raise problem

    def _identify(
        self, request: Request, exchange: Exchange, route: str, authenticate: Callable[[Request], Caller]
    ) -> Caller:
        """Return the caller; a Problem when it exceeds its rates."""
        caller = exchange.caller = authenticate(request)
        self._limits.admit(key=caller.key_id, tenant=caller.tenant, route=route)
        return caller

    def _admit(self, operation: Operation, request: Request, exchange: Exchange) -> Caller | None:
        """Return the caller if it may perform the operation (D1, D2); None when the operation needs no caller."""
        if operation.auth == "session" and self._pages is not None:
            caller = self._identify(request, exchange, operation.name, self._pages.caller)
        elif operation.auth == "key":
            caller = self._identify(request, exchange, operation.name, self._authenticate)
        else:
            self._limits.admit(key="", tenant="", route=operation.name)
            return None
        caller.require(*operation.scopes)
        if operation.operator:
            caller.require_operator()
        return caller

    async def _run(self, call: Call) -> Response:
        operation, request = call.operation, call.request
        if operation.query is not None:
            call.query = read_query(request, operation.query)
        if operation.body is not None:
            call.data = await read_body(request, operation.body_limit)
            if operation.reads_body:
                call.body = _body(call)
        key = request.headers.get("idempotency-key")
        if key is None or not operation.mutates or operation.streams:
            return await _performed(call)
        if not _KEY.fullmatch(key):
            raise Problem(
                "schema_mismatch", "An Idempotency-Key is 1 to 255 visible ASCII characters.", at="Idempotency-Key"
            )
        if self._idempotency is None:
            return await _performed(call)
        return await self._once(call, key, self._idempotency)

    async def _once(self, call: Call, key: str, idempotency: Idempotency) -> Response:
        """Perform a keyed call at most once; a repeated call gets the kept answer (D3)."""
        operation = call.operation
        digest = canonical.digest(
            {
                "by": _who(call),
                "path": dict(call.path),
                "query": sorted(call.request.query_params.multi_items()),
                "body": _content(call),
            }
        )
        tenant = call.tenant if operation.auth in ("key", "session") else f"token:{call.request.scope['path']}"
        found = await idempotency.begin(tenant, f"{operation.method} {operation.path}", key, digest)
        if isinstance(found, Reply):
            return respond(call.request, found.body, found.status, None, {**found.headers, _REPLAYED: "true"})
        return await self._execute(call, found, idempotency)

    async def _execute(self, call: Call, claim: Claim, idempotency: Idempotency) -> Response:
        call.reserved = claim.reserved
        reply: Reply | None = None
        try:
            try:
                response = await _performed(call)
            except Exception as error:  # noqa: BLE001 - a failure is an answer too, and some are final
                problem = as_problem(error, request_id(call.request))
                response = problem_answer(call.request, problem, call.operation.contract)
            if response.headers.get("content-type", "").startswith(EVENTS):
                return response
            kept = {name: value for name, value in response.headers.items() if name in _KEPT_HEADERS}
            reply = Reply(response.status_code, bytes(response.body), kept, call.operation.sensitive)
            return response
        finally:
            await idempotency.settle(claim, reply)


def _who(call: Call) -> str | None:
    """Return the caller as far as an idempotency key belongs to it: the API key or the principal (D3)."""
    if call.operation.auth not in ("key", "session"):
        return None
    return call.caller.key_id if call.operation.sensitive else call.caller.principal


def _root(path: str) -> str:
    """Return the first segment of a path."""
    return path.split("/", 2)[1]


async def _performed(call: Call) -> Response:
    result = await call.operation.perform(call)
    return result if isinstance(result, Response) else call.answer(result)


def _body(call: Call) -> Any:
    operation = call.operation
    if operation.body is Form:
        return parse_form(call.request, call.data)
    if not call.data and operation.body_optional:
        return None
    return parse_json(call.request, call.data, operation.body, operation.body_limit)


def _content(call: Call) -> Any:
    """Return the body for the idempotency digest: the same JSON in another spelling is the same request."""
    if call.operation.body is Form:
        return call.body
    return canonical.decode(call.data, limit=call.operation.body_limit) if call.data else None

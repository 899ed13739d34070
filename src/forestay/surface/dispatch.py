"""A request passes authentication, rate limit, scope, query, body and idempotency, in this order; then its operation.

Invariants:

- D1  401 comes before everything that a caller could learn something from: before 404, 405 and 501.
- D2  Rate limits come before scopes (OpenWOP §1.4).
- D3  A mutating operation with an `Idempotency-Key` is executed once (OpenWOP §1.5). The same key from somebody else is
      another request; an answer that shows a secret is given again to the API key that asked for it alone.
- D4  Whatever happens, there is an answer in the operation's contract.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from forestay.kernel import Clock, Ids, Problem, canonical
from forestay.runs import Claim, Idempotency, Reply
from forestay.surface.answers import (
    Contract,
    as_problem,
    contract_of,
    parse_json,
    problem_answer,
    read_body,
    request_id,
    respond,
)
from forestay.surface.auth import Caller
from forestay.surface.exchange import note_caller, note_route, note_waiting
from forestay.surface.limits import Load, RateLimits
from forestay.surface.operations import Call, Operation
from forestay.surface.routing import Routes

_KEY = re.compile(r"[!-~]{1,255}")
_SEE = "See the parameter in the openapi.json of this surface."
_REPLAYED = "openwop-Idempotent-Replay"
# What a kept answer keeps of its headers: not the request's id, which belongs to one request.
_KEPT_HEADERS = frozenset({"content-type", "location", "etag"})


class Dispatch:
    """An ASGI application over operations. `fallback` answers an authenticated caller on an unknown path, in the words
    of `contract`, or of the contract that has the path."""

    def __init__(
        self,
        routes: Routes,
        authenticate: Callable[[Request], Caller],
        limits: RateLimits,
        load: Load,
        idempotency: Idempotency | None,
        *,
        clock: Clock,
        ids: Ids,
        fallback: Callable[[Request], Problem],
        contract: Contract | None = None,
    ) -> None:
        self._routes = routes
        self._caller_of = authenticate
        self._limits = limits
        self._load = load
        self._idempotency = idempotency
        self._clock = clock
        self._ids = ids
        self._fallback = fallback
        self._contract = contract

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["forestay.clock"] = self._clock
        scope["forestay.ids"] = self._ids
        request = Request(scope, receive)
        contract = self._contract or contract_of(scope["path"])
        try:
            operation, path = self._match(request)
            scope["forestay.operation"] = operation.name
            note_route(scope, operation.name)
            contract = operation.contract
            caller = self._admit(operation, request)
            key = caller.key_id if caller is not None else ""
            if operation.streams:
                note_waiting(scope)
            with self._load.enter("streams" if operation.streams else "requests", key):
                response = await self._run(operation, request, path, caller)
                if operation.streams:  # a stream is open until its last byte
                    await response(scope, receive, send)
                    return
            if isinstance(response, StreamingResponse):
                with self._load.enter("streams", key):
                    await response(scope, receive, send)
                return
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - D4, the boundary: whatever it is becomes an answer
            response = problem_answer(request, as_problem(error, request_id(request)), contract)
        await response(scope, receive, send)

    def _match(self, request: Request) -> tuple[Operation, Mapping[str, str]]:
        try:
            scope = request.scope
            found = self._routes.match(request.method, scope["path"], slashes=scope.get("forestay.slashes", False))
        except Problem:
            self._authenticate(request, "unmatched")
            raise
        if found is None:
            self._authenticate(request, "unmatched")
            raise self._fallback(request)
        return found

    def _authenticate(self, request: Request, route: str) -> Caller:
        caller = self._caller_of(request)
        note_caller(request.scope, caller)
        self._limits.admit(key=caller.key_id, tenant=caller.tenant, route=route)
        return caller

    def _admit(self, operation: Operation, request: Request) -> Caller | None:
        """Who calls, and that he may (D1, D2); None where anybody may."""
        if operation.auth != "key":
            self._limits.admit(key="", tenant="", route=operation.name)
            return None
        caller = self._authenticate(request, operation.name)
        caller.require(*operation.scopes)
        return caller

    async def _run(
        self, operation: Operation, request: Request, path: Mapping[str, str], caller: Caller | None
    ) -> Response:
        call = Call(operation, request, path, caller)
        if operation.query is not None:
            call.query = read_query(request, operation.query)
        if operation.body is not None:
            call.data = await read_body(request, operation.body_limit)
            call.body = _typed(call) if operation.reads_body else None
        key = request.headers.get("idempotency-key")
        if key is None or not operation.mutates or operation.streams or self._idempotency is None:
            return await operation.perform(call)
        return await self._once(call, key, self._idempotency)

    async def _once(self, call: Call, key: str, idempotency: Idempotency) -> Response:
        """Perform a keyed call at most once, and give its answer again (D3)."""
        if not _KEY.fullmatch(key):
            raise Problem(
                "schema_mismatch", "An Idempotency-Key is 1 to 255 visible ASCII characters.", at="Idempotency-Key"
            )
        operation = call.operation
        digest = canonical.digest(
            {
                "by": _who(call),
                "path": dict(call.path),
                "query": sorted(call.request.query_params.multi_items()),
                "body": canonical.decode(call.data, limit=operation.body_limit) if call.data else None,
            }
        )
        tenant = call.caller.tenant if operation.auth == "key" else f"token:{call.request.scope['path']}"
        found = await idempotency.begin(tenant, f"{operation.method} {operation.path}", key, digest)
        if isinstance(found, Reply):
            return respond(call.request, found.body, found.status, None, {**found.headers, _REPLAYED: "true"})
        return await self._execute(call, found, idempotency)

    async def _execute(self, call: Call, claim: Claim, idempotency: Idempotency) -> Response:
        call.reserved = claim.reserved
        reply: Reply | None = None
        try:
            try:
                response = await call.operation.perform(call)
            except Exception as error:  # noqa: BLE001 - a failure is an answer too, and some are final
                problem = as_problem(error, request_id(call.request))
                response = problem_answer(call.request, problem, call.operation.contract)
            if isinstance(response, StreamingResponse):
                return response
            kept = {name: value for name, value in response.headers.items() if name in _KEPT_HEADERS}
            reply = Reply(response.status_code, bytes(response.body), kept, call.operation.sensitive)
            return response
        finally:
            await idempotency.settle(claim, reply)


def _who(call: Call) -> str | None:
    """Whose request it is, as far as that makes it another one (D3)."""
    if call.operation.auth != "key":
        return None
    return call.caller.key_id if call.operation.sensitive else call.caller.principal


def _typed(call: Call) -> Any:
    operation = call.operation
    if not call.data:
        if operation.body_optional:
            return None
        raise Problem("invalid_json", "The request has no body.", at="$", fix="Send one JSON document.")
    return parse_json(call.request, call.data, operation.body, operation.body_limit)


def read_query(request: Request, kind: type[msgspec.Struct]) -> Any:
    """The query as `kind`: a value out of range, of another type or given twice is refused (W8). Unknown parameters are
    ignored, unless `kind` forbids them."""
    fields = _fields(kind)
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        field = fields.get(name)
        if field is None:
            if kind.__struct_config__.forbid_unknown_fields:
                raise Problem("schema_mismatch", f"There is no parameter {name[:40]}.", at=f"$.{name[:40]}", fix=_SEE)
            continue
        if _is_list(field.type):
            values.setdefault(name, []).extend(item for item in value.split(",") if item)
        elif name in values:
            raise Problem("schema_mismatch", f"The parameter {name} is given twice.", at=name)
        else:
            values[name] = value
    for name, field in fields.items():
        if field.required and name not in values:
            raise Problem("schema_mismatch", f"The parameter {name} is missing.", at=name, fix=_SEE)
    return kind(**{fields[name].name: _parameter(name, value, fields[name].type) for name, value in values.items()})


class _Field(NamedTuple):
    name: str
    type: Any
    required: bool


@lru_cache(maxsize=256)
def _fields(kind: type[msgspec.Struct]) -> dict[str, _Field]:
    """The parameters of a query by their names outside. One that is there has a value: the word `null` is a text."""
    return {
        field.encode_name: _Field(field.name, _present(field.type), field.required)
        for field in msgspec.structs.fields(kind)
    }


def _present(kind: Any) -> Any:
    """A type without None."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return reduce(operator.or_, (part for part in get_args(kind) if part is not NoneType))


def _parameter(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "")
        raise Problem(
            "out_of_range" if "Expected `int` >" in message or "Expected `int` <" in message else "schema_mismatch",
            message,
            at=name + where,
            fix=_SEE,
        ) from error


def _is_list(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is list

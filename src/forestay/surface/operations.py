"""One entry of an HTTP surface: what is matched, checked, performed and described from the same data.

The route, the authorisation, the reading of query and body, the idempotency and the OpenAPI document all come
from an `Operation`; nothing about an endpoint is said twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forestay.kernel import Problem
from forestay.surface.answers import BODY_LIMIT, Contract, answer
from forestay.surface.auth import Caller
from forestay.surface.negotiation import JSON

Auth = Literal["key", "token", "none"]


class Query(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The query parameters of an operation; constraints stand in the annotations."""


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A request body: a field nobody knows is an error, not a surprise."""


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An answer's body: absent fields stay absent."""


class Call:
    """One request on its way through an operation, with everything checked that the operation declares."""

    __slots__ = ("_caller", "body", "data", "operation", "path", "query", "request", "reserved")

    def __init__(
        self, operation: Operation, request: Request, path: Mapping[str, str], caller: Caller | None = None
    ) -> None:
        self.operation = operation
        self.request = request
        self.path = path
        self._caller = caller
        self.query: Any = None
        self.data = b""  # the body as it arrived
        self.body: Any = None
        self.reserved: str | None = None  # with an Idempotency-Key: the id for what this call creates

    @property
    def caller(self) -> Caller:
        if self._caller is None:
            raise Problem("unauthenticated", "The request carries no API key.")
        return self._caller

    def id_for(self, kind: str) -> str | None:
        """The id that was reserved for what this call creates, so that a repeated call finds it (K4)."""
        return f"{kind}_{self.reserved}" if self.reserved else None

    def answer(self, body: Any = None, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        return answer(self.request, body, status, headers, self.operation.contract)

    def plain(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """A document that is itself and stands in no envelope, whatever the operation's contract."""
        return answer(self.request, body, status, headers, "openwop")


Perform = Callable[[Call], Awaitable[Response]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint. `answers` are the successful statuses and their types, `problems` what else it can say."""

    name: str
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    perform: Perform
    summary: str
    answers: Mapping[int, Any]
    problems: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    auth: Auth = "key"
    query: type[msgspec.Struct] | None = None
    body: Any = None
    body_optional: bool = False
    body_limit: int = BODY_LIMIT
    reads_body: bool = True  # else the performer reads `call.data` itself
    headers: tuple[str, ...] = ()
    sensitive: bool = False
    streams: bool = False
    contract: Contract = "openwop"
    media: str = JSON
    tag: str = "runs"

    @property
    def mutates(self) -> bool:
        return self.method != "GET"

"""One endpoint of the surface: the same data routes, checks, performs and describes it.

The route, the authorisation, the reading of query and body, the idempotency and the OpenAPI document all come
from an `Operation`. It is declared at the function that performs it:

    api = Operations[Host](contract="lafs", tag="agents", scopes=("manifest:read",))

    @api.get("/host/v1/agents", "agents.list", AgentList)
    async def list_agents(host: Host, call: Call) -> AgentList:
        "The agents that runs may name."

The docstring is the summary. A parameter `body` or `query` is read as its type; `body: Thing | None` may be absent. The
function returns the body of the first status that it declares, or a whole `Response`.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import NoneType
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, get_args, get_type_hints
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forestay.kernel import Problem
from forestay.surface.answers import Contract, answer
from forestay.surface.auth import Caller
from forestay.surface.negotiation import JSON
from forestay.surface.reading import BODY_LIMIT
from forestay.surface.sse import EventStream

Auth = Literal["key", "session", "token", "none"]
Method = Literal["GET", "POST", "PUT", "DELETE"]
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Awaitable[object]])


class Query(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The query parameters of an operation; constraints stand in the annotations."""


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A request body: an unknown field is an error."""


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An answer's body: absent fields stay absent."""


class View(Result, frozen=True, omit_defaults=False):
    """An answer's body with every field, whatever its value."""


class Call:
    """One request to an operation, after every check that the operation declares."""

    __slots__ = ("_caller", "body", "closing", "data", "operation", "path", "query", "request", "reserved")

    def __init__(
        self,
        operation: Operation,
        request: Request,
        path: Mapping[str, str],
        caller: Caller | None,
        closing: asyncio.Event,
    ) -> None:
        self.operation = operation
        self.request = request
        self.path = path
        self.closing = closing  # set when the host begins to shut down
        self._caller = caller
        self.query: Any = None
        self.data = b""  # the body as it arrived
        self.body: Any = None
        self.reserved: str | None = None  # with an Idempotency-Key: the id of the object that this call creates

    @property
    def caller(self) -> Caller:
        if self._caller is None:
            raise Problem("unauthenticated", "The request carries no API key.")
        return self._caller

    @property
    def tenant(self) -> str:
        return self.caller.tenant

    def id_for(self, kind: str) -> str | None:
        """Return the id reserved for the object that this call creates, so that a repeated call finds it (K4)."""
        return f"{kind}_{self.reserved}" if self.reserved else None

    def uuid(self) -> str | None:
        """Return the reserved id as a UUID, for objects with UUIDs; see `id_for`."""
        if self.reserved is None:
            return None
        return str(UUID(bytes=hashlib.sha256(self.reserved.encode()).digest()[:16], version=4))

    def answer(self, body: Any = None, status: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
        if status is None:
            status = next(iter(self.operation.answers))
        return answer(self.request, body, status, headers, self.operation.contract)

    def plain(self, body: Any, headers: Mapping[str, str] | None = None, status: int = 200) -> Response:
        """Answer with a document without an envelope, whatever the operation's contract."""
        return answer(self.request, body, status, headers, "openwop")

    def stream(self, frames: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None) -> Response:
        """Answer with server-sent events, until `frames` end, the reader goes or the host shuts down."""
        return EventStream(frames, self.closing, headers)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint. `answers` has the types of its statuses, `problems` the keys of its own refusals."""

    name: str
    method: Method
    path: str
    perform: Callable[..., Awaitable[object]]
    summary: str
    answers: Mapping[int, Any]
    problems: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    operator: bool = False  # only for the host's operator
    auth: Auth = "key"
    query: type[msgspec.Struct] | None = None
    body: Any = None
    body_optional: bool = False
    body_limit: int = BODY_LIMIT
    reads_body: bool = True  # otherwise the performer reads `call.data` itself
    headers: tuple[str, ...] = ()
    sensitive: bool = False
    streams: bool = False
    contract: Contract = "openwop"
    media: str = JSON
    tag: str = "runs"

    @property
    def mutates(self) -> bool:
        return self.method != "GET"


class Details(TypedDict, total=False):
    """The fields of an operation that have a default."""

    problems: tuple[str, ...]
    scopes: tuple[str, ...]
    operator: bool
    auth: Auth
    query: type[msgspec.Struct] | None
    body: Any
    body_optional: bool
    body_limit: int
    reads_body: bool
    headers: tuple[str, ...]
    sensitive: bool
    streams: bool
    contract: Contract
    media: str
    tag: str


class Operations(Generic[T]):
    """Operations declared at functions of a `T` and a `Call`; `common` holds the details that they share."""

    def __init__(self, **common: Unpack[Details]) -> None:
        self.declared: list[Operation] = []
        self._common = common

    def of(self, owner: T) -> list[Operation]:
        """Return the operations, bound to `owner`."""
        return [msgspec.structs.replace(item, perform=functools.partial(item.perform, owner)) for item in self.declared]

    def add(self, method: Method, path: str, name: str, answers: Any, **details: Unpack[Details]) -> Callable[[F], F]:
        """Declare the operation that the decorated function performs; `answers` is a type, or types by status."""

        def declare(function: F) -> F:
            merged: Details = {**self._common, **read_by(function), **details}
            self.declared.append(
                Operation(
                    name=name,
                    method=method,
                    path=path,
                    perform=_given(function),
                    summary=" ".join((function.__doc__ or "").partition("\n\n")[0].split()),
                    answers=answers if isinstance(answers, dict) else {200: answers},
                    **merged,
                )
            )
            return function

        return declare

    def get(self, path: str, name: str, answers: Any, **details: Unpack[Details]) -> Callable[[F], F]:
        return self.add("GET", path, name, answers, **details)

    def post(self, path: str, name: str, answers: Any, **details: Unpack[Details]) -> Callable[[F], F]:
        return self.add("POST", path, name, answers, **details)

    def put(self, path: str, name: str, answers: Any, **details: Unpack[Details]) -> Callable[[F], F]:
        return self.add("PUT", path, name, answers, **details)

    def delete(self, path: str, name: str, answers: Any, **details: Unpack[Details]) -> Callable[[F], F]:
        return self.add("DELETE", path, name, answers, **details)


def read_by(function: Callable[..., object]) -> Details:
    """Return what a function reads of a request, from the types of its parameters `body` and `query`."""
    if not {"body", "query"} & set(inspect.signature(function).parameters):
        return {}
    taken = get_type_hints(function, include_extras=True)
    found: Details = {}
    if "query" in taken:
        found["query"] = taken["query"]
    if "body" in taken:
        kinds = get_args(taken["body"])
        found["body_optional"] = NoneType in kinds
        found["body"] = next(kind for kind in kinds if kind is not NoneType) if NoneType in kinds else taken["body"]
    return found


def _given(function: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """Wrap `function` so that it gets the body and the query that its parameters name."""
    names = [name for name in ("body", "query") if name in inspect.signature(function).parameters]
    if not names:
        return function

    async def perform(owner: object, call: Call) -> object:
        read = {"body": call.body, "query": call.query}
        return await function(owner, call, **{name: read[name] for name in names})

    return perform

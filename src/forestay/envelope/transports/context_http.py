"""`GET /_lafs/context/{ledgerId}` (R30, R31)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from forestay.envelope.ask import read_ask, shape, show
from forestay.envelope.build import success
from forestay.envelope.context import ContextStore, project, read_query
from forestay.envelope.transports.http import RequestId, answering
from forestay.envelope.transports.operations import Said
from forestay.kernel import Clock, Ids, canonical

Owner = Callable[[Request], Awaitable[str]]
OPERATION = "context.get"


def context_routes(
    store: ContextStore,
    owner: Owner,
    *,
    cursor_key: bytes,
    clock: Clock,
    ids: Ids,
    request_id: RequestId | None = None,
) -> list[Route]:
    """Return the route over `store`; `owner` names the caller or raises a Problem, `request_id` names the request."""

    async def get(request: Request) -> Said:
        caller = await owner(request)
        parameters = dict(request.query_params)
        query = read_query(parameters)
        budget = parameters.get("_budget")
        ask = read_ask(parameters if budget is None else {**parameters, "_budget": canonical.decode(budget)})
        held = await store.get(request.path_params["ledger_id"], owner=caller)
        projected = project(held, query, cursor_key)
        envelope = success(
            OPERATION,
            projected.result,
            page=projected.page,
            transport="http",
            request_id=None if request_id is None else request_id(request),
            context_version=projected.context_version,
            clock=clock,
            ids=ids,
        )
        envelope = await shape(envelope, ask, cursor_at=projected.cursor_at)
        return Said(envelope, show(envelope, ask))

    endpoint: Callable[[Request], Awaitable[Response]] = answering(OPERATION, clock, ids, get, request_id)
    return [Route("/_lafs/context/{ledger_id:path}", endpoint, methods=["GET"])]

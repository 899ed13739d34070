"""`/host/v1/contexts`: context ledgers for work in many steps; `/_lafs/context/…` reads them (LAFS R30)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from forestay.envelope import ContextStore, Held, context_routes
from forestay.host import Host
from forestay.kernel import Problem
from forestay.surface.exchange import request_id
from forestay.surface.operations import Body, Call, Operations, View

_HELD = ("context_not_found", "context_unauthorized", "context_expired", "out_of_range")
Operated = Annotated[str, Meta(min_length=1, max_length=128)]


class NewContext(Body, frozen=True):
    objective: Annotated[str, Meta(min_length=1, max_length=4096)]
    constraints: tuple[Any, ...] = ()
    lifetime_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None


class Step(Body, frozen=True):
    """One step: what was done, what it changes, and the version that it was made for (LAFS R26)."""

    operation: Operated
    version: Annotated[int, Meta(ge=0, le=2**53)]
    context_delta: dict[str, Any]


class ContextView(View, frozen=True):
    ledger_id: str
    version: int
    checksum: str
    entry_count: int
    read_at: str


class Contexts:
    """The context ledgers of one host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.store = ContextStore(host.ledger, host.clock, host.ids)


api = Operations[Contexts](scopes=("runs:create",), contract="lafs", tag="contexts")


@api.post("/host/v1/contexts", "contexts.open", {201: ContextView})
async def open_context(contexts: Contexts, call: Call, body: NewContext) -> ContextView:
    """Begin a context ledger: an objective and what must hold throughout."""
    lifetime = None if body.lifetime_seconds is None else body.lifetime_seconds * 1000
    reserved = call.id_for("ctx")
    try:
        held = await contexts.store.open(
            body.objective,
            owner=call.tenant,
            constraints=list(body.constraints),
            lifetime_ms=lifetime,
            ledger_id=reserved,
        )
    except Problem as problem:
        if reserved is None or problem.key != "already_exists":
            raise
        held = await contexts.store.get(reserved, owner=call.tenant)  # this very request began the context (K4)
    return _view(held)


@api.post(
    "/host/v1/contexts/{ledgerId}",
    "contexts.step",
    ContextView,
    problems=(*_HELD, "context_stale", "context_version_invalid", "context_version_conflict"),
)
async def step(contexts: Contexts, call: Call, body: Step) -> ContextView:
    """Add a step that was made for the current version."""
    held = await contexts.store.mutate(
        call.path["ledgerId"],
        body.operation,
        body.context_delta,
        owner=call.tenant,
        version=body.version,
        request_id=request_id(call.request),
    )
    return _view(held)


@api.get(
    "/_lafs/context/{ledgerId}",
    "contexts.read",
    dict[str, Any],
    scopes=("runs:read",),
    problems=(*_HELD, "context_mode_invalid", "context_version_invalid", "context_compacted"),
)
async def read(contexts: Contexts, call: Call) -> Response:
    """A context ledger: full, as a delta, or in summary (LAFS R30)."""
    host = contexts.host

    async def owner(request: Request) -> str:
        return call.tenant

    (route,) = context_routes(
        contexts.store,
        owner,
        cursor_key=host.key_for("contexts"),
        clock=host.clock,
        ids=host.ids,
        request_id=request_id,
    )
    call.request.scope["path_params"] = {"ledger_id": call.path["ledgerId"]}
    answered: Response = await route.endpoint(call.request)
    return answered


def _view(held: Held) -> ContextView:
    return ContextView(
        ledger_id=held.ledger_id,
        version=held.context.version,
        checksum=held.checksum,
        entry_count=held.entry_count,
        read_at=f"/_lafs/context/{held.ledger_id}",
    )

"""`/host/v1/contexts`: context ledgers for work in many steps; `/_lafs/context/…` reads them (LAFS R30)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from forestay.envelope import ContextStore, Held, context_routes
from forestay.host import Host
from forestay.surface.answers import request_id
from forestay.surface.operations import Body, Call, Operation, Result

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


class ContextView(Result, frozen=True, omit_defaults=False):
    ledger_id: str
    version: int
    checksum: str
    entry_count: int
    read_at: str


def operations(host: Host) -> list[Operation]:
    store = ContextStore(host.ledger, host.clock, host.ids)

    async def open_(call: Call) -> Response:
        body: NewContext = call.body
        lifetime = None if body.lifetime_seconds is None else body.lifetime_seconds * 1000
        held = await store.open(
            body.objective, owner=call.caller.tenant, constraints=list(body.constraints), lifetime_ms=lifetime
        )
        return call.answer(_view(held), 201)

    async def step(call: Call) -> Response:
        body: Step = call.body
        held = await store.mutate(
            call.path["ledgerId"],
            body.operation,
            body.context_delta,
            owner=call.caller.tenant,
            version=body.version,
            request_id=request_id(call.request),
        )
        return call.answer(_view(held))

    async def read(call: Call) -> Response:
        tenant = call.caller.tenant

        async def owner(request: Request) -> str:
            return tenant

        (route,) = context_routes(
            store, owner, cursor_key=host.key_for("contexts"), clock=host.clock, ids=host.ids, request_id=request_id
        )
        call.request.scope["path_params"] = {"ledger_id": call.path["ledgerId"]}
        answered: Response = await route.endpoint(call.request)
        return answered

    common: dict[str, Any] = {"contract": "lafs", "tag": "contexts"}
    return [
        Operation(
            name="contexts.open",
            method="POST",
            path="/host/v1/contexts",
            perform=open_,
            summary="Begin a context ledger: an objective and what must hold throughout.",
            scopes=("runs:create",),
            body=NewContext,
            answers={201: ContextView},
            problems=("schema_mismatch",),
            **common,
        ),
        Operation(
            name="contexts.step",
            method="POST",
            path="/host/v1/contexts/{ledgerId}",
            perform=step,
            summary="Add a step that was made for the current version.",
            scopes=("runs:create",),
            body=Step,
            answers={200: ContextView},
            problems=(
                "schema_mismatch",
                "context_not_found",
                "context_unauthorized",
                "context_expired",
                "context_stale",
                "context_version_invalid",
                "context_version_conflict",
                "out_of_range",
            ),
            **common,
        ),
        Operation(
            name="contexts.read",
            method="GET",
            path="/_lafs/context/{ledgerId}",
            perform=read,
            summary="A context ledger: full, as a delta, or in summary (LAFS R30).",
            scopes=("runs:read",),
            answers={200: dict[str, Any]},
            problems=(
                "context_not_found",
                "context_unauthorized",
                "context_expired",
                "context_mode_invalid",
                "context_version_invalid",
                "context_compacted",
                "schema_mismatch",
                "out_of_range",
            ),
            **common,
        ),
    ]


def _view(held: Held) -> ContextView:
    return ContextView(
        ledger_id=held.ledger_id,
        version=held.context.version,
        checksum=held.checksum,
        entry_count=held.entry_count,
        read_at=f"/_lafs/context/{held.ledger_id}",
    )

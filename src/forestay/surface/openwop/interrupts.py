"""Open questions of a run, and answering them by token or by node (OpenWOP §1.1, §1.8, W7)."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from forestay.runs import Interrupt, InterruptView, Resolved
from forestay.surface.operations import Call, Operation, Result
from forestay.surface.services import Services

_REFUSALS = (
    "schema_mismatch",
    "not_found",
    "interrupt_already_resolved",
    "interrupt_cancelled",
    "interrupt_expired",
    "correlation_mismatch",
)


class Interrupts(Result, frozen=True, omit_defaults=False):
    interrupts: list[Interrupt]


def operations(services: Services) -> list[Operation]:
    runs = services.runs

    async def list_(call: Call) -> Response:
        caller = call.caller
        found = await runs.interrupts(call.path["runId"], caller.tenant, caller.name, delegate=caller.delegate)
        return call.answer(Interrupts(interrupts=found))

    async def resolve_node(call: Call) -> Response:
        path, caller = call.path, call.caller
        return call.answer(
            await runs.resolve_by_node(
                path["runId"], path["nodeId"], caller.tenant, call.body, caller.name, delegate=caller.delegate
            )
        )

    async def inspect(call: Call) -> Response:
        return call.answer(await runs.inspect_token(call.path["token"]))

    async def resolve_token(call: Call) -> Response:
        return call.answer(await runs.resolve_by_token(call.path["token"], call.body))

    return [
        Operation(
            name="interrupts.list",
            method="GET",
            path="/v1/runs/{runId}/interrupts",
            perform=list_,
            summary="The open interrupts of a run, with the tokens that answer them.",
            scopes=("approvals:respond",),
            answers={200: Interrupts},
            problems=("not_found",),
            tag="interrupts",
        ),
        Operation(
            name="interrupts.resolve-by-node",
            method="POST",
            path="/v1/runs/{runId}/interrupts/{nodeId}",
            perform=resolve_node,
            summary="Answer the open interrupt of a node.",
            scopes=("approvals:respond",),
            body=dict[str, Any],
            answers={200: Resolved},
            problems=(*_REFUSALS, "permission_denied"),
            tag="interrupts",
        ),
        Operation(
            name="interrupts.inspect",
            method="GET",
            path="/v1/interrupts/{token}",
            perform=inspect,
            summary="What a token would answer.",
            auth="token",
            answers={200: InterruptView},
            problems=("not_found", "interrupt_expired", "interrupt_already_resolved", "interrupt_cancelled"),
            tag="interrupts",
        ),
        Operation(
            name="interrupts.resolve-by-token",
            method="POST",
            path="/v1/interrupts/{token}",
            perform=resolve_token,
            summary="Answer an interrupt; the token is the authority.",
            auth="token",
            body=dict[str, Any],
            answers={200: Resolved},
            problems=(*_REFUSALS, "permission_denied"),
            tag="interrupts",
        ),
    ]

"""The open questions of a run, and their answers by token or by node (OpenWOP §1.1, §1.8, W7)."""

from __future__ import annotations

from typing import Any

from forestay.host import Host
from forestay.runs import Interrupt, InterruptView, Resolved
from forestay.surface.operations import Call, Operations, View

_ENDED = ("interrupt_expired", "interrupt_already_resolved", "interrupt_cancelled")
_REFUSALS = (*_ENDED, "correlation_mismatch", "permission_denied")
api = Operations[Host](scopes=("approvals:respond",), tag="interrupts")
by_token = Operations[Host](auth="token", tag="interrupts")


class Interrupts(View, frozen=True):
    interrupts: list[Interrupt]


@api.get("/v1/runs/{runId}/interrupts", "interrupts.list", Interrupts)
async def list_open(host: Host, call: Call) -> Interrupts:
    """The open interrupts of a run, with the tokens that answer them."""
    caller = call.caller
    found = await host.runs.interrupts(call.path["runId"], caller.tenant, caller.name, delegate=caller.delegate)
    return Interrupts(interrupts=found)


@api.post("/v1/runs/{runId}/interrupts/{nodeId}", "interrupts.resolve-by-node", Resolved, problems=_REFUSALS)
async def resolve_node(host: Host, call: Call, body: dict[str, Any]) -> Resolved:
    """Answer the open interrupt of a node."""
    path, caller = call.path, call.caller
    return await host.runs.resolve_by_node(
        path["runId"], path["nodeId"], caller.tenant, body, caller.name, delegate=caller.delegate
    )


@by_token.get("/v1/interrupts/{token}", "interrupts.inspect", InterruptView, problems=(*_ENDED,))
async def inspect(host: Host, call: Call) -> InterruptView:
    """What a token would answer."""
    return await host.runs.inspect_token(call.path["token"])


@by_token.post("/v1/interrupts/{token}", "interrupts.resolve-by-token", Resolved, problems=_REFUSALS)
async def resolve_token(host: Host, call: Call, body: dict[str, Any]) -> Resolved:
    """Answer an interrupt; the token is the authority."""
    return await host.runs.resolve_by_token(call.path["token"], body)

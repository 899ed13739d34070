"""Deployments of agents (OpenWOP RFC 0082): which version serves on which channel, and its transitions.

A transition is a run that passes gates. The run decides, and records, whether the caller may request it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from forestay.governance import CHANNELS, Deployment, Settled, Transition
from forestay.host import Host
from forestay.kernel import Problem
from forestay.surface.operations import Call, Operations

_PATH = "/v1/agents/{agentId}/deployments"
_TEXT = {"type": ["string", "null"], "minLength": 1}
api = Operations[Host](scopes=("manifest:read",), tag="deployments")
WantedTransition = Annotated[
    Transition,
    Meta(
        extra_json_schema={
            "properties": {
                "version": {"minLength": 1, "maxLength": 64},
                "channel": {"enum": [*(name for name in CHANNELS if name != "latest"), None]},
                "canaryPercent": {"minimum": 0, "maximum": 100},
                "reason": {**_TEXT, "maxLength": 512},
            }
        }
    ),
]


@api.get(_PATH, "deployments.list", list[Deployment])
async def listed(host: Host, call: Call) -> list[Deployment]:
    """The deployment records of an agent, by version."""
    await host.directory.get(call.tenant, call.path["agentId"])
    return await host.deployments.listed(call.tenant, call.path["agentId"])


@api.post(
    _PATH,
    "deployments.transition",
    {200: Deployment, 202: Settled},
    problems=("permission_denied", "eval_gate_unmet", "state_conflict", "out_of_range"),
)
async def transition(host: Host, call: Call, body: WantedTransition) -> Response:
    """Change which version serves; 202 while a person must approve it."""
    caller, run_id = call.caller, call.id_for("run")
    try:
        made = await host.deployments.request(
            call.tenant, call.path["agentId"], body, principal=caller.name, scopes=caller.scopes, run_id=run_id
        )
        run_id = made.run_id
    except Problem as problem:
        if run_id is None or problem.details.get("activeRunId") != run_id:
            raise  # otherwise this very request began the run before the host died (K4)
    settled = await host.deployments.settled(call.tenant, run_id)
    headers = {"Location": f"/v1/runs/{run_id}"}
    if settled.record is None:
        return call.answer(settled, 202, headers)
    return call.answer(settled.record, 200, headers)

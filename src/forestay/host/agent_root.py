"""A run whose root is an agent: `POST /v1/runs {agentId, inputs}` (OpenWOP RFC 0077).

The agent works in the host's own workflow `forestay-agent`, so such a run is durable, replayed and budgeted like any
other. `inputs` is the task and fits the agent's task schema; when `task` is the only key, its value is the task.
`configurable` may name the agent's version (`agentVersion`) or a channel that gives one (`agentChannel`).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from forestay.governance import MEMBER, TASK, AgentDirectory, Staff
from forestay.kernel import Problem, canonical
from forestay.runs import CreateRun, Fact

_NAMES = ("agentId", "agentVersion", "agentChannel", "task")
AGENT_ROOT: dict[str, Any] = {
    **TASK,
    "id": "forestay-agent",
    "name": "Let an agent work",
    "nodes": [
        {
            **TASK["nodes"][0],
            "inputs": {name: {"type": "expression", "expression": f"variables.work.{name}"} for name in _NAMES},
        }
    ],
}
_OPTIONS = ("agentVersion", "agentChannel")


class _Options(msgspec.Struct, frozen=True, rename="camel"):
    """The keys of `configurable` that choose the agent; the other keys are the run's."""

    agent_version: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    agent_channel: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None


class Rooted(msgspec.Struct, frozen=True):
    """The workflow's request for a run of an agent, and the facts to record when the run begins."""

    request: CreateRun
    facts: list[Fact]


class AgentRoots:
    """Turns requests with an agent as their root into requests for a workflow."""

    def __init__(self, directory: AgentDirectory, staff: Staff) -> None:
        self._directory = directory
        self._staff = staff

    async def of(self, request: CreateRun, tenant: str) -> Rooted:
        """Return the request for an agent, or a roster member, of the tenant; raise `not_found` without one."""
        agent_id = request.agent_id or ""
        if request.workflow_id is not None:
            raise Problem("schema_mismatch", "A run has a workflow or an agent as its root, not both.", at="$.agentId")
        options = _options(request.configurable)
        facts: list[Fact] = []
        if agent_id.startswith(MEMBER):
            if options != _Options():
                message = "The roster entry of a member chooses its version."
                raise Problem("schema_mismatch", message, at="$.configurable")
            facts = await self._staff.named(tenant, AGENT_ROOT["id"], [agent_id])
        else:
            await self._directory.get(tenant, agent_id, options.agent_version)
        if not request.inputs:
            raise Problem("schema_mismatch", "The agent has no task.", at="$.inputs", fix='Give {"task": "…"}.')
        work = {
            "agentId": agent_id,
            "agentVersion": options.agent_version,
            "agentChannel": options.agent_channel,
            "task": request.inputs["task"] if set(request.inputs) == {"task"} else request.inputs,
        }
        others = {name: value for name, value in request.configurable.items() if name not in _OPTIONS}
        made = msgspec.structs.replace(
            request, agent_id=None, workflow_id=AGENT_ROOT["id"], inputs={"work": work}, configurable=others
        )
        return Rooted(made, facts)


def _options(configurable: dict[str, Any]) -> _Options:
    try:
        found = msgspec.convert({name: configurable[name] for name in _OPTIONS if name in configurable}, _Options)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$.configurable")
        raise Problem("schema_mismatch", f"{message}.", at=where) from error
    if found.agent_version is not None and found.agent_channel is not None:
        message = "Name a version or a channel of the agent, not both."
        raise Problem("schema_mismatch", message, at="$.configurable.agentChannel")
    return found

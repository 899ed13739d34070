"""Agents: the inventory, the roster, and which version of each serves."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from forestay.console.evaluations import newest
from forestay.console.org_chart import branches, drawn
from forestay.console.render import go, segment
from forestay.console.visit import Visit, form, page, whole
from forestay.governance import Deployment, State, Transition
from forestay.kernel import Problem, canonical

_MEMBERS = 200
_NEXT: dict[State | None, State] = {
    None: "draft",
    "draft": "test",
    "test": "staged",
    "staged": "active",
    "paused": "active",
}


class Placed(msgspec.Struct, frozen=True):
    """A version of an agent and its deployment record; without one until its first promotion."""

    version: str
    record: Deployment | None

    @property
    def verbs(self) -> dict[str, str]:
        """The transitions that are possible now, with the labels of their buttons."""
        state = self.record.state if self.record is not None else None
        if state == "active":
            return {"pause": "Pause", "rollback": "Roll back", "deprecate": "Deprecate"}
        return {"promote": f"Promote to {_NEXT[state]}"} if state in _NEXT else {}

    @property
    def goes_live(self) -> bool:
        """Whether the next promotion makes it active, so that the gates apply."""
        return self.record is not None and _NEXT.get(self.record.state) == "active"


@page("/agents", "agents", "manifest:read")
async def listing(visit: Visit) -> Response:
    """The agents of the tenant, the roster and the org chart."""
    host, tenant = visit.host, visit.tenant
    members = await host.staff.listed(tenant, limit=_MEMBERS)
    departments = branches(await host.staff.chart(tenant), {item.roster_id: item for item in members})
    return visit.page(
        "agents.html",
        agents=await host.directory.listed(tenant),
        members=members,
        departments=departments,
        chart=drawn(departments),
    )


@page("/agents/{agentId}", "agents.show", "manifest:read")
async def show(visit: Visit) -> Response:
    """One agent: its versions, and where each stands."""
    host, agent_id = visit.host, visit.path["agentId"]
    records = {item.version: item for item in await host.deployments.listed(visit.tenant, agent_id)}
    versions = await host.directory.versions(visit.tenant, agent_id)
    known = await newest(visit) if "runs:read" in visit.caller.scopes else []
    evaluations = [item for item in known if item.agent_id == agent_id and item.card is not None]
    return visit.page(
        "agent.html",
        agent=await host.directory.get(visit.tenant, agent_id),
        versions=[Placed(name, records.get(name)) for name in versions],
        shares=await host.deployments.shares(visit.tenant, agent_id),
        gate=host.deployments.gate(agent_id),
        evaluations=evaluations,
        done=visit.asked("done"),
    )


@form("/agents/{agentId}/transition", "agents.transition", "manifest:read")
async def transition(visit: Visit) -> Response:
    """Change which version serves: whether the visitor may is decided, and recorded, by the deployment's run."""
    agent_id, fields, deployments = visit.path["agentId"], visit.form, visit.host.deployments
    given = {
        "version": fields.get("version", ""),
        "transition": fields.get("transition", ""),
        "channel": fields.get("channel") or None,
        "evalRunId": fields.get("evaluation") or None,
        "canaryPercent": whole(share, "share") if (share := fields.get("share", "").strip()) else None,
    }
    try:
        wanted = msgspec.convert(given, Transition)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$")
        raise Problem("schema_mismatch", f"{message}.", at=where) from error
    made = await deployments.request(
        visit.tenant, agent_id, wanted, principal=visit.caller.name, scopes=visit.caller.scopes
    )
    settled = await deployments.settled(visit.tenant, made.run_id)
    if settled.record is None:  # a person must approve it
        return go(f"/runs/{made.run_id}")
    return go(f"/agents/{segment(agent_id)}?done={settled.record.state}")

"""`Deployments`: the serving versions of agents, changed by runs that pass gates (OpenWOP RFC 0082 §E).

Invariants:

- M1  A transition is a run: it checks the caller's scope, then a person's approval and an evaluation if the gate needs
      them, and then makes and records the change. It stops at the first refusal.
- M2  A transition is made once, also after a crash: the change has the identity of the run that made it.
- M3  Without the scope nothing changes: a missing decision denies.
- M4  A canary with a live-shadow score below its bar is rolled back by an ordinary transition.
- M5  A run gets one version of an agent from a channel: the first answer is recorded, and the whole run uses it, even
      when the channel changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from forestay.governance.deployment import (
    CHANNELS,
    LATEST,
    Change,
    Deployment,
    Fleet,
    Transition,
    Verb,
    decide,
    evolve,
    resolve,
    shares,
)
from forestay.governance.journal import Journal
from forestay.kernel import DeploymentGate, Draft, Ledger, Problem, Record, scope_policy, scope_request
from forestay.runs import CreateRun, Execution, Fact, NodeType, RunCreated, Runs, RunStatus, stream_of

TYPE = "forestay.deployment"
_REFUSED = {"forbidden": "permission_denied", "eval_gate_unmet": "eval_gate_unmet"}
SCOPES: dict[Verb, str] = {
    "promote": "deploy:promote",
    "adjust-canary": "deploy:promote",
    "pause": "deploy:pause",
    "deprecate": "deploy:pause",
    "rollback": "deploy:rollback",
}
WORKFLOW: dict[str, Any] = {
    "id": "forestay-deployment",
    "name": "Change a deployment",
    "version": "1.0.0",
    "nodes": [
        {
            "id": "transition",
            "typeId": TYPE,
            "name": "Transition",
            "position": {"x": 0, "y": 0},
            "config": {},
            "inputs": {name: {"type": "variable", "variableName": name} for name in ("agentId", "transition")},
            "outputRole": "primary",
        }
    ],
    "edges": [],
    "triggers": [{"id": "manual", "type": "manual"}],
    "variables": [
        {"name": "agentId", "type": "string", "required": True},
        {"name": "transition", "type": "object", "required": True},
    ],
    "metadata": {},
    "settings": {},
}


async def _nowhere(ctx: Execution) -> dict[str, Any]:
    raise Problem("capability_not_provided", "A deployment needs a host.", requiredCapability=TYPE)


# The node type without a host, for checks of documents.
UNBOUND_DEPLOYMENT = NodeType(type_id=TYPE, execute=_nowhere, summary="Changes which version of an agent serves.")


class Score(msgspec.Struct, frozen=True):
    """The result of an evaluation for a gate: whether it passed, and its score."""

    agent_id: str
    version: str
    passed: bool
    aggregate: float


class Settled(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A transition: its run, the run's status, and the changed record."""

    run_id: str
    status: RunStatus
    record: Deployment | None = None


Exists = Callable[[str, str, str], Awaitable[object]]
"""Checks that a tenant has a version of an agent; a Problem when it has not."""

Scores = Callable[[str, str], Awaitable[Score | None]]
"""Returns the score of a tenant's evaluation run; None for any other run, or before its end."""


class Deployments:
    """The deployments of one ledger. `runs` is a function because the two objects need each other."""

    def __init__(
        self,
        ledger: Ledger,
        gates: Sequence[DeploymentGate],
        *,
        runs: Callable[[], Runs],
        scores: Scores,
        exists: Exists,
    ) -> None:
        self._ledger = ledger
        self._gates = gates
        self._runs = runs
        self._scores = scores
        self._exists = exists
        self._fleets: dict[tuple[str, str], Journal[Fleet]] = {}

    @property
    def type(self) -> NodeType:
        return msgspec.structs.replace(UNBOUND_DEPLOYMENT, execute=self._execute)

    async def listed(self, tenant: str, agent_id: str) -> list[Deployment]:
        """Return the records of an agent, in order of version."""
        return (await self._fleet(tenant, agent_id).value()).listed()

    async def shares(self, tenant: str, agent_id: str) -> dict[str, list[tuple[str, int]]]:
        """Return, for each serving channel, its versions with their shares in percent."""
        fleet = await self._fleet(tenant, agent_id).value()
        found = {channel: shares(fleet, channel) for channel in CHANNELS if channel != LATEST}
        return {channel: parts for channel, parts in found.items() if parts}

    async def pinned(self, tenant: str, agent_id: str, channel: str, run_id: str) -> str:
        """Return the version that a run gets from a channel, resolved once (M5); `no_active_deployment`."""
        key = f"{agent_id}@{channel}"
        fleet = await self._fleet(tenant, agent_id).value()

        def pin(pins: dict[str, str]) -> list[Draft]:
            if key in pins:
                return []
            version = resolve(fleet, channel, run_id)
            if version is None:
                message = f"No version of {agent_id} is active on {channel}."
                raise Problem("no_active_deployment", message, agentId=agent_id, channel=channel)
            return [Draft("deployment.pinned", {"key": key, "version": version})]

        pins = Journal[dict[str, str]](self._ledger, f"pin/{run_id}", {}, _take_pin)
        return (await pins.change(pin))[key]

    async def request(
        self,
        tenant: str,
        agent_id: str,
        wanted: Transition,
        *,
        principal: str,
        scopes: Collection[str],
        run_id: str | None = None,
    ) -> RunCreated:
        """Begin a transition; it is recorded when this returns. An impossible request is refused at once (M1)."""
        await self._exists(tenant, agent_id, wanted.version)
        scope = SCOPES[wanted.transition]
        decision = scope_policy(principal, sorted(scopes), tenant).decide(scope_request(principal, scope, tenant))
        allowed = decision.effect == "allow"
        if allowed:
            decide(await self._fleet(tenant, agent_id).value(), wanted)
        decided = {"principal": principal, "action": scope, "resource": agent_id, "allowed": allowed}
        request = CreateRun(
            workflow_id=WORKFLOW["id"], inputs={"agentId": agent_id, "transition": msgspec.to_builtins(wanted)}
        )
        facts = [Fact("authorization.decided", decided)]
        return await self._runs().create_run(request, tenant, principal, run_id=run_id, facts=facts)

    async def settled(self, tenant: str, run_id: str) -> Settled:
        """Wait until a transition has ended or waits for a person, and return it; a Problem when it was refused."""
        runs = self._runs()
        async for event in runs.follow(run_id, tenant):
            if event.type in ("approval.requested", "run.completed", "run.failed", "run.cancelled"):
                break
        shown = await runs.get_run(run_id, tenant)
        if shown.error is not None:
            key = _REFUSED.get(shown.error.code, "state_conflict")
            raise Problem(key, shown.error.message, runId=run_id)
        record = (shown.outputs or {}).get("record")
        return Settled(run_id, shown.status, None if record is None else msgspec.convert(record, Deployment))

    async def observed(self, tenant: str, agent_id: str, version: str, score: float) -> RunCreated | None:
        """Roll a canary back if its live-shadow score is below its bar (M4)."""
        bar = self.gate(agent_id).auto_rollback
        found = (await self._fleet(tenant, agent_id).value()).get(version)
        if bar is None or score >= bar or found is None or found.state != "active" or found.canary_percent is None:
            return None
        wanted = Transition(version, "rollback", reason="live-shadow-score")
        try:
            return await self.request(tenant, agent_id, wanted, principal="forestay", scopes=["deploy:rollback"])
        except Problem as problem:
            if problem.key != "state_conflict":
                raise
            return None  # no version served before it, or it was rolled back meanwhile

    # The run

    async def _execute(self, ctx: Execution) -> dict[str, Any]:
        agent_id = str(ctx.inputs["agentId"])
        wanted = msgspec.convert(ctx.inputs["transition"], Transition)
        await self._authorised(ctx, agent_id, wanted)
        gate = self.gate(agent_id)
        found = (await self._fleet(ctx.tenant, agent_id).value()).get(wanted.version)
        goes_live = wanted.transition == "promote" and found is not None and found.state in ("staged", "active")
        approved = None
        if gate.approval and (goes_live or (wanted.transition == "rollback" and wanted.reason != "live-shadow-score")):
            approved = await _approve(ctx, agent_id, wanted)
        if goes_live and (gate.evaluation or gate.pass_score is not None):
            await self._check_score(ctx.tenant, agent_id, wanted, gate)
        change = await self._apply(ctx, agent_id, wanted, approved)
        ctx.emit(change.event.type, change.event.payload)
        return {"record": msgspec.to_builtins(change.records[0])}

    async def _authorised(self, ctx: Execution, agent_id: str, wanted: Transition) -> None:
        """Check the decision about the caller, the run's second record; only `request` can write it (M3)."""
        scope = SCOPES[wanted.transition]
        said = await self._ledger.read(stream_of(ctx.run_id), 1, 1)
        decided = said[0].payload if said and said[0].type == "authorization.decided" else {}
        if (decided.get("allowed"), decided.get("action"), decided.get("resource")) != (True, scope, agent_id):
            raise Problem("permission_denied", f"This needs the scope {scope}.", requiredScopes=[scope])

    async def _check_score(self, tenant: str, agent_id: str, wanted: Transition, gate: DeploymentGate) -> None:
        """Refuse unless an evaluation of this version has ended and passed (RFC 0082 §E-3)."""
        score = await self._scores(tenant, wanted.eval_run_id) if wanted.eval_run_id else None
        meant = score is not None and (score.agent_id, score.version) == (agent_id, wanted.version)
        passed = score is not None and meant and score.passed
        if score is not None and gate.pass_score is not None:
            passed = meant and score.aggregate >= gate.pass_score
        if not passed:
            message = "The promotion needs a passed evaluation of this version."
            raise Problem("eval_gate_unmet", message, evalRunId=wanted.eval_run_id)

    async def _apply(self, ctx: Execution, agent_id: str, wanted: Transition, approved: str | None) -> Change:
        """Make the change once; a repeated request returns the same change (M2)."""
        identity = ctx.identity("transition", "deployment")

        async def make() -> Any:
            made: list[Change] = []

            def change(fleet: Fleet) -> list[Draft]:
                if identity in fleet.applied:
                    return []
                made[:] = [_approved(decide(fleet, wanted), approved)]
                return [Draft("deployment.changed", {"id": identity, **msgspec.to_builtins(made[0])})]

            journal = self._fleet(ctx.tenant, agent_id)
            await journal.change(change)
            return msgspec.to_builtins(made[0] if made else await self._made(ctx.tenant, agent_id, identity))

        return msgspec.convert(await ctx.effect("transition", make, provider="deployment"), Change)

    async def _made(self, tenant: str, agent_id: str, identity: str) -> Change:
        """Return a change that an earlier execution wrote."""
        for record in await self._ledger.read(_stream(tenant, agent_id)):
            if record.payload["id"] == identity:
                return msgspec.convert(record.payload, Change)
        raise AssertionError("the fleet knows the transition")

    def gate(self, agent_id: str) -> DeploymentGate:
        """Return what a promotion of this agent to active needs."""
        found = (gate for gate in self._gates if fnmatchcase(agent_id, gate.agent))
        return next(found, DeploymentGate())

    def _fleet(self, tenant: str, agent_id: str) -> Journal[Fleet]:
        known = self._fleets.get((tenant, agent_id))
        if known is None:
            known = Journal(self._ledger, _stream(tenant, agent_id), Fleet(agent_id), _take)
            self._fleets[tenant, agent_id] = known
        return known


def _take(fleet: Fleet, record: Record) -> Fleet:
    change = msgspec.convert(record.payload, Change)
    return evolve(fleet, change.records, record.payload["id"])


def _take_pin(pins: dict[str, str], record: Record) -> dict[str, str]:
    return {**pins, record.payload["key"]: record.payload["version"]}


async def _approve(ctx: Execution, agent_id: str, wanted: Transition) -> str:
    """Ask a person for approval; return the gate's id as evidence."""
    title = f"May {agent_id} {wanted.version} take the transition {wanted.transition}?"
    shown: dict[str, Any] = {"artifactId": f"{agent_id}@{wanted.version}", "artifactType": "deployment", "title": title}
    actions = ["accept", "reject"]
    key = f"{ctx.run_id}:{ctx.node_id}:approval"
    about = {"transition": wanted.transition, "channel": wanted.channel, "canaryPercent": wanted.canary_percent}
    answer: dict[str, Any] = await ctx.interrupt(
        "approval",
        {**shown, "actions": actions, "artifactData": about},
        key=key,
        announce=("approval.requested", {**shown, "actions": actions}),
    )
    if answer.get("action") != "accept":
        raise Problem("permission_denied", "A person rejected this transition.")
    return key


def _approved(change: Change, gate: str | None) -> Change:
    if gate is None:
        return change
    first, *others = change.records
    event = change.event
    if event.type == "deployment.promoted":
        event = msgspec.structs.replace(event, payload={**event.payload, "approvalGateId": gate})
    return Change((msgspec.structs.replace(first, approval_gate_id=gate), *others), event)


def _stream(tenant: str, agent_id: str) -> str:
    return "deployment/" + hashlib.sha256(f"{tenant}\0{agent_id}".encode()).hexdigest()[:32]

"""Scenarios of governance: deployments, budgets, triggers, the roster and the org chart (RFC 0082 to 0087)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from forestay.conformance.profile import agent_platform
from forestay.conformance.scenario import NotApplicable, expect, has, same, scenario
from forestay.conformance.target import Target, answered, refused

_STATES = {"draft", "test", "staged", "active", "paused", "deprecated", "rolled-back"}
_TRIGGERED = {"webhook", "schedule", "queue", "email", "form"}
_AUTHORITY = {"scopes", "canDispatch", "permissions", "authority", "roleGrants", "capabilities"}
_CONTENT = {"body", "prompt", "input", "payload", "apiKey", "secret", "credentials", "token"}
_BUDGET = ["budget.reserved", "budget.consumed", "budget.threshold.crossed", "budget.exhausted"]
_FULL = "agent-platform-full"
_CHART = "/v1/agents/org-chart"
_DISALLOWED = "conformance-disallowed-tool"


@scenario("agent-deployment-shape", "deployments", needs="agents.deployment.supported")
def deployment_shape(target: Target) -> None:
    """What discovery says of deployments is what the contract lets it say."""
    block = target.flag("agents.deployment")
    expect(set(block.get("states") or ()) <= _STATES, "a state is none")
    for name in ("canary", "rollback"):
        expect(isinstance(block.get(name, False), bool), f"{name} is neither true nor false")


@scenario("agent-deployment-lifecycle", "deployments", needs="agents.deployment.supported")
def deployment(target: Target) -> None:
    """A version is promoted; without the right, or before its evaluation, none is."""
    made = target.seam("agents/deployment-transition", {"scenario": "promote"})
    expect(made["allowed"] is True and made["record"]["state"] == "active", "the version is not active")
    expect(target.told(made["runId"], "deployment."), "no event tells the promotion")
    for wanted, error in (("unauthorized", "forbidden"), ("eval-gate-unmet", "eval_gate_unmet")):
        refusal = target.seam("agents/deployment-transition", {"scenario": wanted})
        same((refusal["allowed"], refusal["error"]), (False, error), f"the scenario {wanted}")
        expect(not target.told(refusal["runId"], "deployment.promoted"), f"{wanted}: it is promoted all the same")


@scenario("agent-channel-dispatch", "deployments", needs="agents.deployment.supported")
def channel(target: Target) -> None:
    """A run gets its version from the channel once, and the log says which."""
    target.seam("agents/deployment-transition", {"scenario": "promote"})
    made = target.seam("agents/deployment-transition", {"scenario": "channel-pin", "channel": "stable"})
    (started,) = target.told(made["runId"], "agent.invocation.started")
    same(started["payload"]["resolvedAgentVersion"], made["resolvedAgentVersion"], "the version in the log")
    same(started["payload"]["resolvedChannel"], "stable", "the channel in the log")


@scenario("budget-policy-shape", "budgets", needs="budget.supported")
def budget_shape(target: Target) -> None:
    """What discovery says of budgets is what the contract lets it say; a budget that is none starts nothing."""
    block = target.flag("budget")
    expect(set(block["dimensions"]) <= {"tokens", "cost", "toolCalls", "retries", "model"}, "a dimension is none")
    expect(block["enforce"] in ("hard", "advisory"), f"enforce is {block['enforce']}")
    expect(set(block["scopes"]) <= {"run", "workflow", "agent", "project"}, "a scope is none")
    for wrong in ({"maxTokens": 0}, {"maxCostUsd": -1}, {"onExhaustion": "explode"}, {"maxWallTimeMs": 1}):
        body = {"workflowId": target.workflow("conformance-noop"), "inputs": {}, "configurable": {"budget": wrong}}
        refused(target.post("/v1/runs", body), 400, 422)


@scenario("budget-enforcement", "budgets", needs="budget.supported")
def budget(target: Target) -> None:
    """A run ends at its ceiling in the contract's order; a model that is denied is not called."""
    hard = target.flag("budget.enforce") == "hard"
    made = target.seam("budget/run", {"scenario": "hard-cost-exhaust" if hard else "advisory"})
    told = target.told(made["runId"], "budget.", "cap.breached", "run.failed")
    same([event["type"] for event in told], [*_BUDGET, *(["cap.breached", "run.failed"] if hard else [])], "the order")
    if hard:
        same(told[-1]["payload"]["error"]["code"], "budget_exhausted", "the run's error")
        breached = told[-2]["payload"]
        whole = isinstance(breached["limit"], int) and isinstance(breached["observed"], int)
        expect(whole, "cap.breached has no whole numbers")
    denied = target.seam("budget/run", {"scenario": "model-denied"})
    same((denied["error"], denied["modelCalled"]), ("budget_model_denied", False), "a denied model")


@scenario("trigger-bridge-shape", "triggers", _FULL, "trigger-bridge", needs="triggerBridge.supported")
def trigger_shape(target: Target) -> None:
    """Subscriptions are a bare array of the caller's own, with a source and a state."""
    block = target.flag("triggerBridge")
    expect(set(block.get("sources") or ()) <= _TRIGGERED, "a source is none")
    found = target.read("/v1/trigger-subscriptions")
    expect(isinstance(found, list), "GET /v1/trigger-subscriptions is no bare array")
    for item in found:
        has(item, {"subscriptionId", "source", "state"}, "a subscription")
        expect(item["state"] in ("active", "paused", "failed", "dead-lettered"), f"a state is {item['state']}")
        expect(len(item.get("secretFingerprint", "")) <= 32, "a fingerprint is longer than 32 characters")
        expect("secret" not in item, "a subscription shows its secret")
    refused(target.get("/v1/trigger-subscriptions/no-such-one"), 404)
    refused(target.get("/v1/trigger-subscriptions", key=""), 401)


@scenario("trigger-bridge-delivery", "triggers", _FULL, "trigger-bridge", needs="triggerBridge.supported")
def delivery(target: Target) -> None:
    """An event starts one run that names its delivery; one whose tries are used up starts none."""
    for source in target.flag("triggerBridge.sources") or ():
        made = target.seam("trigger-bridge/deliver", {"scenario": "deliver", "source": source})
        run_id = made.get("deliveryRunId") or made["runId"]
        (attempted,) = target.told(run_id, "trigger.delivery.attempted")
        same(attempted["payload"]["outcome"], "delivered", f"the outcome of a delivery from {source}")
        (started,) = target.told(run_id, "run.started")
        same(started.get("causationId"), attempted["eventId"], "the cause of run.started")
    twice = target.seam("trigger-bridge/deliver", {"scenario": "dedup", "dedupKey": "kit-once"})
    same(twice["deliveredCount"], 1, "how often the same event was delivered")
    dead = target.seam("trigger-bridge/deliver", {"scenario": "exhaust"})
    same(dead["outcome"], "dead-lettered", "the outcome of an event that starts nothing")


@scenario("agent-roster-shape", "roster", needs="agents.roster.supported")
def roster(target: Target) -> None:
    """The roster is listed whole and counted; a member that is not there is 404."""
    scope = target.flag("agents.manifestRuntime.installScope")
    same(target.flag("agents.roster.installScope"), scope, "agents.roster.installScope")
    found = target.read("/v1/agents/roster")
    same(found["total"], len(found["roster"]), "total")
    for entry in found["roster"]:
        has(entry, {"rosterId", "persona", "agentRef", "owner"}, "a member")
        expect(entry["rosterId"].startswith("host:"), "a rosterId does not begin with host:")
        expect(not {"version", "channel"} <= entry["agentRef"].keys(), "a member has a version and a channel")
    refused(target.get("/v1/agents/roster/host:no-such-member"), 404)


@scenario("agent-roster-attribution", "roster", needs="agents.roster.supported")
def attribution(target: Target) -> None:
    """A member's run says so right behind run.started, without content."""
    made = target.seam("roster/fire", {"triggerSource": "schedule"})
    events = target.events(made["runId"])
    same([event["type"] for event in events[:2]], ["run.started", "roster.run.initiated"], "the first two events")
    same(events[1]["payload"]["rosterId"], made["rosterId"], "the member")
    expect(not _CONTENT & events[1]["payload"].keys(), "roster.run.initiated carries content")
    refused(target.post("/v1/host/sample/roster/fire", {}, key=""), 401)


@scenario("agent-org-chart-shape", "roster", needs="agents.orgChart.supported")
def chart(target: Target) -> None:
    """The chart has departments and members, no circle, and no authority."""
    expect(target.flag("agents.roster.supported"), "an org chart without a roster")
    found = target.read(_CHART)
    has(found, {"owner", "departments", "members"}, "the chart", closed=True)
    parents = {item["departmentId"]: item.get("parentDepartmentId") for item in found["departments"]}
    for name in parents:
        seen, at = set[str](), name
        while at is not None and at not in seen:
            seen.add(at)
            at = parents.get(at)
        expect(at is None, f"the department {name} is above itself")
    for item in (*found["departments"], *found["members"]):
        expect(not _AUTHORITY & item.keys(), "a place in the chart carries authority")
    refused(target.get(f"{_CHART}/no-such-department"), 404)


@scenario("agent-org-chart-scoping", "roster", needs="agents.orgChart.supported")
def chart_scoping(target: Target) -> None:
    """Another tenant sees none of the caller's departments."""
    with _charted(target) as mine:
        other = target.read(_CHART, key=target.other())
        expect(other["owner"]["tenantId"] != mine["owner"]["tenantId"], "both tenants have one chart")
        theirs = {item["departmentId"] for item in other["departments"]}
        for department in mine["departments"]:
            name = department["departmentId"]
            same(target.read(f"{_CHART}/{name}")["department"], department, f"the department {name}")
            expect(department not in other["departments"], f"another tenant sees the department {name}")
            if name not in theirs:
                refused(target.get(f"{_CHART}/{name}", key=target.other()), 404)


@scenario("org-position-no-authority-escalation", "roster", needs="agents.orgChart.supported")
def chart_authority(target: Target) -> None:
    """An agent at the head of the chart calls no tool that it could not call before."""
    wanted = {"attemptTool": _DISALLOWED}
    before = target.seam("agents/live-invoke", wanted)
    (started,) = target.told(before["runId"], "agent.invocation.started")
    with _headed(target, started["payload"]["agentId"]):
        after = target.seam("agents/live-invoke", wanted)
    same(after["outcome"], before["outcome"], "what became of the invocation at the head of the chart")
    for made in (before, after):
        called = [event["payload"].get("toolName") for event in target.told(made["runId"], "agent.toolCalled")]
        expect(_DISALLOWED not in called, "a tool that is not on the agent's list was called")


@contextmanager
def _headed(target: Target, agent_id: str) -> Iterator[None]:
    """Make the agent the only head of the caller's chart within the block; needs a host with forestay's own API."""
    chart, name = target.read(_CHART), f"host:kit-{uuid4().hex[:12]}"
    member = {"rosterId": name, "persona": "Head", "agentRef": {"agentId": agent_id}, "owner": chart["owner"]}
    unit = {
        "departmentId": f"kit-{uuid4().hex[:12]}",
        "name": "Everything",
        "roles": [{"roleId": "kit", "name": "Head"}],
    }
    place = {"rosterId": name, "departmentId": unit["departmentId"], "roleId": "kit", "reportsTo": None}
    under = [{**item, "reportsTo": item["reportsTo"] or name} for item in chart["members"]]
    headed = {**chart, "departments": [*chart["departments"], unit], "members": [place, *under]}
    if target.ask("PUT", f"/host/v1/roster/{name}", json=member).status_code >= 300:
        raise NotApplicable("the host takes no member as forestay does")
    try:
        answered(target.ask("PUT", "/host/v1/org-chart", json=headed), 200)
        yield
        answered(target.ask("PUT", "/host/v1/org-chart", json=chart), 200)
    finally:
        target.ask("DELETE", f"/host/v1/roster/{name}")


@contextmanager
def _charted(target: Target) -> Iterator[dict[str, Any]]:
    """Yield the caller's chart; an empty one gets a department within the block, on a host with forestay's own API."""
    empty = target.read(_CHART)
    if empty["departments"]:
        yield empty
        return
    unit = {"departmentId": f"kit-{uuid4().hex[:12]}", "name": "Kit", "roles": [{"roleId": "lead", "name": "Lead"}]}
    if target.ask("PUT", "/host/v1/org-chart", json={**empty, "departments": [unit]}).status_code != 200:
        raise NotApplicable("the chart has no department that could be seen, and the host takes none")
    try:
        yield target.read(_CHART)
    finally:
        target.ask("PUT", "/host/v1/org-chart", json=empty)


@scenario("agent-platform-profile", "profile", "agent-platform", "agent-platform-full")
def platform(target: Target) -> None:
    """What the host says of its own platform is what follows from its document."""
    found = agent_platform(target.document)
    told = target.flag("agents.platformProfile") or target.flag("extensions.forestay.agentPlatform")
    if told is not None:
        level = told.get("level") if isinstance(told, dict) else told
        same(level, found.level, "the level that the host says it has")
    if found.level == "none":
        raise NotApplicable(f"the host lacks {', '.join(found.missing_terms)}")

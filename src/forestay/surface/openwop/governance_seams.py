"""Test seams of the governance families under `/v1/host/sample/`: each drives the production path (OpenWOP §2)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from forestay.agents import ASSISTANT
from forestay.host import Host
from forestay.kernel import Problem
from forestay.runs import CreateRun, RunSnapshot
from forestay.surface.operations import Body, Call, Operations, Result

_PATH = "/v1/host/sample"
_MODEL = "mock:usage-only"
_TOKENS = 1000
api = Operations[Host](tag="seams", scopes=("runs:create",))

QUESTION: dict[str, Any] = {
    "id": "sample-question",
    "name": "Ask a model once",
    "version": "1.0.0",
    "nodes": [
        {
            "id": "ask",
            "typeId": "core.ai.callPrompt",
            "name": "Ask",
            "position": {"x": 0, "y": 0},
            "config": {"prompt": "Say yes."},
            "inputs": {},
        }
    ],
    "edges": [],
    "triggers": [{"id": "manual", "type": "manual"}],
    "variables": [],
    "metadata": {},
    "settings": {},
}


STEP: dict[str, Any] = {
    **QUESTION,
    "id": "sample-step",
    "name": "One step",
    "nodes": [
        {
            "id": "step",
            "typeId": "core.noop",
            "name": "Step",
            "position": {"x": 0, "y": 0},
            "config": {},
            "inputs": {},
        }
    ],
}


class RosterFire(Body, frozen=True):
    roster_id: Annotated[str, Meta(max_length=128)] | None = None
    trigger_source: Literal["schedule", "webhook", "queue", "email", "form"] = "schedule"
    as_work_item: bool = False


class RosterFired(Result, frozen=True):
    run_id: str
    roster_id: str
    trigger_subscription_id: str | None = None


class BudgetScenario(Body, frozen=True):
    scenario: Literal["hard-cost-exhaust", "model-denied", "advisory"]


class BudgetRun(Result, frozen=True):
    run_id: str
    outcome: str
    model_called: bool
    error: str | None = None


@api.post(f"{_PATH}/budget/run", "seams.budget", BudgetRun, problems=("capability_not_provided",))
async def budget(host: Host, call: Call, body: BudgetScenario) -> BudgetRun:
    """Run a question under a budget that has no room for it, or that denies its model (RFC 0084)."""
    enforce = host.config.budgets.enforce
    if body.scenario != "model-denied" and (body.scenario == "advisory") != (enforce == "advisory"):
        message = f"The budgets of this host are {enforce}."
        raise Problem("capability_not_provided", message, requiredCapability=f"budget:{body.scenario}")
    policy = {"modelDeny": ["*"]} if body.scenario == "model-denied" else _short(host)
    mock = {"id": "usage-only", "config": {"usage": {"inputTokens": _TOKENS, "outputTokens": 0}}}
    ended = await _run(host, call, QUESTION, configurable={"budget": policy, "mockProvider": mock})
    events = await host.runs.events(ended.run_id, call.tenant)
    return BudgetRun(
        run_id=ended.run_id,
        outcome=ended.status,
        model_called=any(event.type == "provider.usage" for event in events),
        error=ended.error.code if ended.error is not None else None,
    )


@api.post(f"{_PATH}/roster/fire", "seams.roster", RosterFired, problems=("not_found", "state_conflict"))
async def fire(host: Host, call: Call, body: RosterFire) -> RosterFired:
    """Start a workflow of a member's portfolio as a trigger would (RFC 0086); without a member, a sample one. A work
    item goes through the queue of a subscription."""
    member = body.roster_id or await _sample_member(host, call)
    entry = await host.staff.get(call.tenant, member)
    if not entry.workflows:
        raise Problem("not_found", f"{entry.persona} has no workflow.", rosterId=member)
    if body.as_work_item:
        return await _work_item(host, call, member, entry.workflows[0])
    made = await host.staff.fire(call.tenant, member, entry.workflows[0], body.trigger_source)
    await host.runs.wait(made.run_id, call.tenant)
    return RosterFired(run_id=made.run_id, roster_id=member)


async def _work_item(host: Host, call: Call, member: str, workflow_id: str) -> RosterFired:
    triggers, tenant = host.triggers, call.tenant
    made = await triggers.subscriptions.subscribe(tenant, "queue", workflow_id, roster_id=member)
    offered = await triggers.offer(tenant, made.subscription_id, "work-item", {})
    await triggers.deliver_due()
    await triggers.subscriptions.remove(tenant, made.subscription_id)
    run_id = (await triggers.delivery(tenant, offered.delivery_id)).run_id
    if run_id is None:
        raise Problem("state_conflict", "The work item started no run.", rosterId=member)
    await host.runs.wait(run_id, tenant)
    return RosterFired(run_id=run_id, roster_id=member, trigger_subscription_id=made.subscription_id)


async def _sample_member(host: Host, call: Call) -> str:
    await host.runs.put_workflow(STEP, tenant=call.tenant)
    entry = {
        "rosterId": "host:sample",
        "persona": "Sample",
        "agentRef": {"agentId": ASSISTANT},
        "owner": {"tenantId": call.tenant},
        "workflows": [STEP["id"]],
    }
    return (await host.staff.put(call.tenant, entry)).roster_id


def _short(host: Host) -> dict[str, Any]:
    """Return a budget that the question exceeds: of cost if the mock model has a price, else of tokens."""
    cost = host.budgets.cost(_MODEL, _TOKENS, 0)
    limit: dict[str, Any] = {"maxTokens": _TOKENS // 2} if not cost else {"maxCostUsd": cost / 2_000_000}
    return {**limit, "thresholdPercent": 50}


async def _run(host: Host, call: Call, document: dict[str, Any], **request: Any) -> RunSnapshot:
    """Store a seam's workflow for the caller's tenant, run it and wait for its end."""
    await host.runs.put_workflow(document, tenant=call.tenant)
    wanted = CreateRun(workflow_id=document["id"], **request)
    made = await host.runs.create_run(wanted, call.tenant, call.caller.principal, trusted=True)
    return await host.runs.wait(made.run_id, call.tenant)

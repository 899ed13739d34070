"""One of everything that a tenant can have, with a mark in every field that can carry one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

MARK = "whispered-by-acme"
AGENT, SUITE, ROSTER = "vendor.acme.tide", "acme.evals.tide", "host:acme"
WORKFLOW: dict[str, Any] = {
    "id": "acme-flow",
    "name": MARK,
    "version": "1.0.0",
    "nodes": [
        {
            "id": "gate",
            "typeId": "core.approvalGate",
            "name": "gate",
            "position": {"x": 0, "y": 0},
            "config": {"title": MARK, "actions": ["accept", "reject"]},
            "inputs": {},
        }
    ],
    "edges": [],
    "triggers": [{"id": "manual", "type": "manual"}],
    "variables": [{"name": "note", "type": "string"}],
    "metadata": {},
    "settings": {},
}
PACK = {
    "name": "vendor.acme",
    "version": "1.0.0",
    "agents": [{"agentId": AGENT, "persona": MARK, "modelClass": "general", "systemPrompt": MARK}],
}
TASK = {"taskId": "t", "input": MARK, "expected": {"kind": "golden", "match": {"strategy": "exact", "value": MARK}}}
Made = Callable[[str, str, Any], Awaitable[Any]]


async def furnish(acme: httpx.AsyncClient) -> dict[str, str]:
    """Make one of everything; the ids, by the names that routes have for them."""

    async def made(method: str, path: str, body: Any) -> Any:
        answer = await acme.request(method, path, json=body)
        assert answer.status_code < 300, (path, answer.text)
        found = answer.json()
        return found["result"] if "_meta" in found else found

    return {**await _worked(acme, made), **await _governed(made), **await _talked(made)}


async def _worked(acme: httpx.AsyncClient, made: Made) -> dict[str, str]:
    """A workflow, a run that waits, and what starts or hears of runs."""
    await made("PUT", "/v1/workflows/acme-flow", WORKFLOW)
    run_body = {"workflowId": "acme-flow", "inputs": {"note": MARK}, "tags": [MARK], "metadata": {"why": MARK}}
    run_id = (await made("POST", "/v1/runs", run_body))["runId"]
    for _ in range(200):
        if (await acme.get(f"/v1/runs/{run_id}")).json()["status"] == "waiting-approval":
            break
        await asyncio.sleep(0.02)
    correction = {"signal": {"kind": "correction", "correction": MARK}}
    await made("POST", f"/v1/runs/{run_id}/annotations", correction)
    hook = await made("POST", "/v1/webhooks", {"url": f"https://example.com/{MARK}", "events": ["run.completed"]})
    schedule_body = {"workflowId": "acme-flow", "cron": "0 3 * * *", "tags": [MARK]}
    schedule = await made("POST", "/v1/schedules", schedule_body)
    queue = await made("POST", "/host/v1/trigger-subscriptions", {"source": "queue", "workflowId": "acme-flow"})
    event = {"eventId": MARK, "inputs": {"note": MARK}}
    delivery = await made("POST", queue["binding"]["path"], event)
    return {
        "runId": run_id,
        "nodeId": "gate",
        "workflowId": "acme-flow",
        "webhookId": hook["webhookId"],
        "scheduleId": schedule["scheduleId"],
        "subscriptionId": queue["subscription"]["subscriptionId"],
        "deliveryId": delivery["deliveryId"],
    }


async def _governed(made: Made) -> dict[str, str]:
    """Agents and all that they live in."""
    await made("POST", "/host/v1/agent-packs", PACK)
    await made("POST", f"/v1/agents/{AGENT}/deployments", {"version": "1.0.0", "transition": "promote"})
    suite = {"suiteId": SUITE, "version": "1.0.0", "modes": ["golden"], "tasks": [TASK]}
    await made("POST", "/host/v1/eval-suites", suite)
    template = {"templateId": "t.acme", "version": "1.0.0", "kind": "user", "text": MARK, "description": MARK}
    await made("POST", "/v1/prompts", template)
    owner = {"tenantId": "acme"}
    entry = {"rosterId": ROSTER, "persona": MARK, "agentRef": {"agentId": AGENT}, "owner": owner}
    await made("PUT", f"/host/v1/roster/{ROSTER}", {**entry, "workflows": ["acme-flow"]})
    place = {"departmentId": "acme-department", "roleId": "lead"}
    department = {"departmentId": "acme-department", "name": MARK, "roles": [{"roleId": "lead", "name": MARK}]}
    member = {"rosterId": ROSTER, **place, "reportsTo": None}
    await made("PUT", "/host/v1/org-chart", {"owner": owner, "departments": [department], "members": [member]})
    memory = await made("POST", "/host/v1/memory", {"memoryRef": MARK, "content": MARK})
    secret = {"value": MARK, "audiences": ["api.example.com"]}
    await made("PUT", "/host/v1/credentials/acme-credential", secret)
    key = await made("POST", "/host/v1/keys", {"name": MARK})
    return {
        "agentId": AGENT,
        "suite": f"{SUITE}@1.0.0",
        "templateId": "t.acme",
        "rosterId": ROSTER,
        "departmentId": "acme-department",
        "memoryId": memory["memoryId"],
        "credentialId": "acme-credential",
        "keyId": key["description"]["keyId"],
    }


async def _talked(made: Made) -> dict[str, str]:
    """A session with the relay, a conversation and a context."""
    session = await made("POST", "/crp/sessions", {"app_id": MARK})
    await made("POST", f"/crp/sessions/{session['session_id']}/ingest", {"text": f"The {MARK} is secret."})
    context = await made("POST", "/host/v1/contexts", {"objective": MARK, "constraints": [MARK]})
    conversation = await made("POST", "/host/v1/sessions", {"name": MARK})
    return {
        "sessionId": session["session_id"],
        "conversation": conversation["sessionId"],
        "ledgerId": context["ledgerId"],
    }


async def answered(acme: httpx.AsyncClient) -> dict[str, str]:
    """An answer of the host's own model."""
    body = {"model": "core.forestay.assistant", "input": MARK}
    made = await acme.post("/openai/v1/responses", json=body)
    assert made.status_code == 200, made.text
    return {"responseId": made.json()["id"]}

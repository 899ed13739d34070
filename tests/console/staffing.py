"""A house with agents in it: versions with a canary, members in a chart, two evaluations, a budget, a dead letter."""

from __future__ import annotations

from typing import Any

from tests.console.served import QUESTION, Served

AGENT = "vendor.house.desk"
OWNER = {"tenantId": "default"}


def staffed(host: Served) -> list[str]:
    """Fill the host; the pages that show it."""

    def send(method: str, path: str, body: Any) -> Any:
        done = host.api.request(method, path, json=body)
        assert done.status_code < 300, done.text
        return done.json()

    manifest = {"agentId": AGENT, "persona": "Desk", "modelClass": "general", "systemPrompt": "Help."}
    for version, share in (("1.0.0", {}), ("2.0.0", {"canaryPercent": 20})):
        send("POST", "/host/v1/agent-packs", {"name": AGENT, "version": version, "agents": [manifest]})
        for more in ({}, {}, {}, {"channel": "stable", **share}):
            wanted = {"version": version, "transition": "promote", **more}
            send("POST", f"/v1/agents/{AGENT}/deployments", wanted)
    departments = [{"departmentId": "house", "name": "House", "roles": [{"roleId": "head", "name": "Head"}]}]
    departments += [{"departmentId": "desk", "name": "Desk", "roles": [], "parentDepartmentId": "house"}]
    member = {"rosterId": "host:bo", "persona": "Bo", "agentRef": {"agentId": AGENT}, "owner": OWNER}
    send("PUT", "/host/v1/roster/host:bo", member)
    place = {"rosterId": "host:bo", "departmentId": "house", "roleId": "head", "reportsTo": None}
    send("PUT", "/host/v1/org-chart", {"owner": OWNER, "departments": departments, "members": [place]})
    match = {"kind": "golden", "match": {"strategy": "regex", "value": ".*"}}
    suite = {"suiteId": "house.evals.desk", "version": "1.0.0", "modes": ["golden"]}
    tasks = [{"taskId": "hello", "input": "Say hello.", "expected": match}]
    send("POST", "/host/v1/eval-suites", {**suite, "tasks": tasks})
    asked = {"mode": "eval", "evalSuiteRef": "house.evals.desk@1.0.0", "agentId": AGENT}
    first, second = [send("POST", "/v1/runs", asked)["runId"] for _ in range(2)]
    for run_id in (first, second):
        host.until(run_id, "run.completed")
    limited = {
        "workflowId": "harbour",
        "inputs": {"question": QUESTION},
        "configurable": {"budget": {"maxTokens": 9999}},
    }
    run_id = send("POST", "/v1/runs", limited)["runId"]
    host.until(run_id, "agent.toolCalled")  # its tool may wait for the answer that another run has asked for
    queue = {"source": "queue", "workflowId": "harbour", "retryPolicy": {"maxAttempts": 1}}
    send("POST", send("POST", "/host/v1/trigger-subscriptions", queue)["result"]["binding"]["path"], {"eventId": "e"})
    send("POST", "/host/v1/memory", {"memoryRef": "notes", "content": "The Aurora lies at berth 7.", "tags": ["t"]})
    return [
        "/agents",
        f"/agents/{AGENT}",
        "/evaluations",
        f"/evaluations/compare?first={first}&second={second}",
        "/budgets",
        "/triggers",
        "/memory",
        "/prompts",
        "/credentials",
    ]

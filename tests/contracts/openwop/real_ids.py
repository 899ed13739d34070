"""Hooks for schemathesis: what a document cannot say, requests that are meant to be right get from here.

Half of the requests about a run, a workflow or a schedule are about one that is there. A cron expression, a time zone,
an expression, a cursor, a scope, a change of a context and a workflow's graph have a grammar or an origin that OpenAPI
has no words for: requests that fit the schema get real ones, so that everything else about them is still checked. An
answer to a question gets one that is open. No request revokes a key that the suite needs.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

import httpx
import schemathesis

from tests.contracts.openwop.documents import DOCUMENTS

_KNOWN: dict[str, list[str]] = json.loads(os.environ.get("FORESTAY_KNOWN_IDS", "{}"))
_SPARE: list[str] = json.loads(os.environ.get("FORESTAY_SPARE_KEYS", "[]"))
_CRONS = ["0 0 1 1 *", "*/5 9-17 * * 1-5", "30 4 1,15 * 5", "0 12 * * MON"]
_ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
_EXPRESSIONS = ["status", "size(variables) == 0", "null", "1 + 1", "'a' in ['a', 'b']", "nodes.start.output"]
_SCOPES = {"read": "docs/**", "write": "out/**,notes.md", "http": "example.com", "env": "LANG"}
_DELTAS: list[dict[str, Any]] = [
    {"append": {"decisions": ["at noon"]}},
    {"set": {"objective": "Move the boats"}},
    {"update": {"state.tide": "high"}},
]
_OWN = {document["id"]: document for document in DOCUMENTS.values()}
_WAITING = "suite-approval"  # asks at the node `gate`
_count = 0


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any = None) -> None:
    global _count
    _count += 1
    label = f"{case.operation.method.upper()} {case.operation.path}"
    if label == "DELETE /host/v1/keys/{keyId}" and case.path_parameters and _SPARE:
        # It finds the suite's own keys in the list of keys: only spare ones, and keys that are not there, are revoked.
        case.path_parameters["keyId"] = _SPARE[_count % len(_SPARE)] if _count % 2 else f"key_{_count}"
    if case.meta is not None and case.meta.generation.mode.is_negative:  # what is wrong on purpose stays wrong
        return
    if case.headers and "Idempotency-Key" in case.headers:
        # Used twice it gives the first answer again, also when what that created was deleted since.
        case.headers["Idempotency-Key"] = f"suite-{uuid.uuid4()}"
    _say_what_is_unsaid(label, case)
    _govern(label, case)
    if case.meta is None or case.meta.phase.name != "stateful":  # that one goes on with what it made itself
        _name_what_is_there(label, case)
    if label == "PUT /v1/workflows/{workflowId}":
        id = case.path_parameters["workflowId"]
        case.body = _OWN.get(id) or {**list(_OWN.values())[_count % len(_OWN)], "id": id}


def _name_what_is_there(label: str, case: Any) -> None:
    if _count % 2 == 0 or not case.path_parameters:
        return
    for name, ids in _KNOWN.items():
        if name in case.path_parameters:
            case.path_parameters[name] = ids[_count // 2 % len(ids)]
    if label == "POST /v1/runs/{runId}/interrupts/{nodeId}":
        case.path_parameters.update(runId=_asking(), nodeId="gate")
        case.body = {"resumeValue": {"action": ("accept", "reject")[_count // 2 % 2]}}


def _say_what_is_unsaid(label: str, case: Any) -> None:
    body, query = case.body, case.query
    if label == "POST /v1/runs" and isinstance(body, dict):
        for name in ("mode", "evalSuiteRef", "agentId"):  # a capability that is off is 501, as the contract says
            body.pop(name, None)
        _run(body)
    if label.endswith(("/v1/schedules", "/v1/schedules/{scheduleId}")) and isinstance(body, dict):
        body["cron"], body["timezone"] = _CRONS[_count % len(_CRONS)], _ZONES[_count % len(_ZONES)]
        _run(body)
    if label.endswith(":backfill") and isinstance(body, dict):
        body["from"], body["to"] = "2026-01-01T00:00:00Z", f"2026-01-0{1 + _count % 3}T00:00:00Z"
    if label == "GET /v1/runs/{runId}/query" and query:
        query["expression"] = _EXPRESSIONS[_count % len(_EXPRESSIONS)]
    if label == "GET /v1/runs" and query:
        query.pop("cursor", None)
    if label == "POST /host/v1/grants" and isinstance(body, dict):
        body["scope"] = _SCOPES.get(body["capability"], "")
    if label == "POST /host/v1/contexts/{ledgerId}" and isinstance(body, dict):
        body["contextDelta"], body["version"] = _DELTAS[_count % len(_DELTAS)], 0


_AGENT = {"agentId": "vendor.sweep.agent", "persona": "A", "modelClass": "general", "systemPrompt": "Help."}
_MATCH = {"kind": "golden", "match": {"strategy": "contains", "value": "a"}}
_TASK = {"taskId": "one", "input": "Say a.", "expected": _MATCH}
# Documents with rules between their parts: one of each that holds.
_DOCUMENTS: dict[str, dict[str, Any]] = {
    "POST /host/v1/agent-packs": {"name": "vendor.sweep", "version": "1.0.0", "agents": [_AGENT]},
    "POST /host/v1/eval-suites": {
        "suiteId": "sweep.evals.one",
        "version": "1.0.0",
        "modes": ["golden"],
        "tasks": [_TASK],
    },
    "PUT /host/v1/org-chart": {"owner": {"tenantId": "default"}, "departments": [], "members": []},
    "PUT /host/v1/roster/{rosterId}": {
        "rosterId": "host:sweep",
        "persona": "S",
        "agentRef": {"agentId": "core.forestay.assistant"},
        "owner": {"tenantId": "default"},
    },
}


def _govern(label: str, case: Any) -> None:
    body = case.body
    if label in _DOCUMENTS:
        case.body = _DOCUMENTS[label]
    if label == "PUT /host/v1/roster/{rosterId}":
        case.path_parameters["rosterId"] = "host:sweep"
    if not isinstance(body, dict):
        return
    if label == "POST /v1/agents/{agentId}/deployments" and body.get("transition") == "adjust-canary":
        body["canaryPercent"] = 10
    if label.endswith("/agents/deployment-transition"):
        body.pop("agentId", None)
    if label.endswith("/budget/run"):
        body["scenario"] = "model-denied"  # which of the others there is depends on the host
    if label.endswith("/agents/eval-run"):
        body.pop("modes", None)  # which of them there are depends on the host
    if label.endswith("/trigger-bridge/deliver"):
        body["source"] = "queue"  # which of the others there are depends on the host
    if label == "POST /host/v1/trigger-subscriptions":
        body["workflowId"] = _KNOWN["workflowId"][0]
        body.pop("rosterId", None)


def _asking() -> str:
    """A new run that waits for an answer."""
    headers = {"Authorization": f"Bearer {os.environ['FORESTAY_SUITE_KEY']}"}
    with httpx.Client(base_url=os.environ["FORESTAY_SUITE_URL"], headers=headers, trust_env=False) as http:
        run_id: str = http.post("/v1/runs", json={"workflowId": _WAITING}).json()["runId"]
        while http.get(f"/v1/runs/{run_id}").json()["status"] != "waiting-approval":
            http.get(f"/v1/runs/{run_id}/events/poll", params={"timeout": 1})
    return run_id


def _run(body: dict[str, Any]) -> None:
    # What the inputs must be, the workflow says: one that takes any, or one that is not there.
    body["workflowId"] = _KNOWN["workflowId"][0] if _count % 2 else f"not-there-{_count}"
    if isinstance(body.get("configurable"), dict):  # for test keys
        body["configurable"].pop("mockProvider", None)

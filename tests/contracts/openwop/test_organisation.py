"""The inventory (RFC 0072, RFC 0074), the roster (RFC 0086) and the org chart (RFC 0087) of a host that says it has
them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, refused

AUTHORITY = ("scopes", "canDispatch", "permissions", "authority", "roleGrants", "capabilities")
CONTENT = ("body", "prompt", "input", "payload", "apiKey", "secret", "credentials", "token")


def support(name: str, **fields: Any) -> dict[str, Any]:
    manifest = {"agentId": f"vendor.suite.{name}", "persona": "Support", "modelClass": "general"}
    return {**manifest, "systemPromptRef": "prompts/support.md", "toolAllowlist": [], **fields}


def pack(name: str, version: str = "1.0.0", *agents: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": f"vendor.suite.pack-{name}",
        "version": version,
        "agents": list(agents) or [support(name)],
        "files": {"prompts/support.md": "Help the person who asks. CANARY-PROMPT"},
    }


@pytest.fixture(scope="module")
def tenant(api: Api) -> str:
    return str(api.run(api.start("noop"))["owner"]["tenant"])


@pytest.fixture
def install(api: Api, capabilities: dict[str, Any]) -> Callable[..., str]:
    """Installs a pack of a new agent; gives the agent's id."""
    if not capabilities.get("agents", {}).get("manifestRuntime", {}).get("supported"):
        pytest.skip("this host does not run manifest agents")

    def make(*versions: str) -> str:
        name = f"a{uuid.uuid4().hex[:10]}"
        for version in versions or ("1.0.0",):
            answer = api.post("/host/v1/agent-packs", pack(name, version))
            assert answer.status_code == 201, answer.text
        return f"vendor.suite.{name}"

    return make


def hire(api: Api, tenant: str, agent_id: str, **fields: Any) -> dict[str, Any]:
    entry = {
        "rosterId": f"host:{uuid.uuid4().hex[:12]}",
        "persona": "Sally",
        "agentRef": {"agentId": agent_id},
        "owner": {"tenantId": tenant},
        "workflows": [api.workflow("noop")],
        **fields,
    }
    answer = api.http.put(f"/host/v1/roster/{entry['rosterId']}", json=entry)
    assert answer.status_code == 200, answer.text
    return entry


def agent_flow(api: Api, ref: dict[str, Any]) -> str:
    """A workflow with one node that is the agent `ref`."""
    name = f"suite-agent-{uuid.uuid4().hex[:10]}"
    node = {
        "id": "agent", "typeId": "core.agent", "name": "Agent", "position": {"x": 0, "y": 0},
        "config": {"task": "Say hello."}, "inputs": {}, "agent": ref,
    }  # fmt: skip
    document = {
        "id": name, "name": "Agent", "version": "1.0.0", "nodes": [node], "edges": [],
        "triggers": [{"id": "manual", "type": "manual"}], "variables": [], "metadata": {}, "settings": {},
    }  # fmt: skip
    answer = api.http.put(f"/v1/workflows/{name}", json=document)
    assert answer.status_code in (200, 201), answer.text
    return name


def run_flow(api: Api, name: str) -> dict[str, Any]:
    made = api.post("/v1/runs", {"workflowId": name})
    assert made.status_code == 201, made.text
    return api.wait(made.json()["runId"])


# The inventory


def test_discovery_ties_the_families_together(capabilities: dict[str, Any]) -> None:
    agents = capabilities["agents"]
    if "roster" in agents:
        assert agents["roster"]["installScope"] == agents["manifestRuntime"]["installScope"]
    if "orgChart" in agents:
        assert agents["roster"]["supported"] is True


def test_an_installed_agent_is_listed_without_its_prompt(api: Api, install: Callable[..., str]) -> None:
    agent_id = install("1.0.0", "1.10.0", "1.9.0")
    body = api.get("/v1/agents").json()
    assert set(body) == {"agents", "total"} and body["total"] == len(body["agents"])
    ids = [item["agentId"] for item in body["agents"]]
    assert ids == sorted(ids)
    found = next(item for item in body["agents"] if item["agentId"] == agent_id)
    assert (found["packVersion"], found["hasHandoffSchemas"], found["toolAllowlist"]) == ("1.10.0", False, [])
    assert api.get(f"/v1/agents/{agent_id}").json() == found
    assert "CANARY-PROMPT" not in api.get("/v1/agents").text
    assert "memoryDegraded" not in found and "degradedMemoryDimensions" not in found


def test_an_agent_of_another_tenant_is_not_there(api: Api, install: Callable[..., str]) -> None:
    agent_id = install()
    other = api.caller("other")
    assert agent_id not in {item["agentId"] for item in other.get("/v1/agents").json()["agents"]}
    refused(other.get(f"/v1/agents/{agent_id}"), 404, "not_found")
    refused(api.caller("").get("/v1/agents"), 401, "unauthenticated")
    refused(api.caller("reader").get("/v1/agents"), 403, "forbidden")


def test_a_memory_that_the_host_has_not_is_said(api: Api, install: Callable[..., str]) -> None:
    name = f"m{uuid.uuid4().hex[:10]}"
    document = pack(name, "1.0.0", support(name, memoryShape={"conversation": True, "longTerm": True}))
    assert api.post("/host/v1/agent-packs", document).status_code == 201
    found = api.get(f"/v1/agents/vendor.suite.{name}").json()
    assert (found["memoryDegraded"], found["degradedMemoryDimensions"]) == (True, ["read", "write"])


def test_a_pack_version_never_changes_and_an_agent_has_one_pack(api: Api, install: Callable[..., str]) -> None:
    name = f"p{uuid.uuid4().hex[:10]}"
    document = pack(name)
    assert api.post("/host/v1/agent-packs", document).status_code == 201
    assert api.post("/host/v1/agent-packs", document).status_code == 201
    changed = {**document, "files": {"prompts/support.md": "Something else."}}
    assert api.post("/host/v1/agent-packs", changed).status_code == 409
    stolen = {**pack(f"{name}x"), "agents": document["agents"]}
    assert api.post("/host/v1/agent-packs", stolen).status_code == 409
    own = {**pack(f"{name}y"), "agents": [support(name, agentId="core.forestay.assistant")]}
    assert api.post("/host/v1/agent-packs", own).status_code == 409


@pytest.mark.parametrize(
    "change",
    [
        {"agents": []},
        {"version": "new"},
        {"files": {}},
        {"agents": [support("x", systemPromptRef="../secret.md")]},
        {"agents": [support("x", agentId="host:x")]},
        {"extra": 1},
    ],
)
def test_what_is_no_pack_is_refused_with_its_place(
    api: Api, install: Callable[..., str], change: dict[str, Any]
) -> None:
    answer = api.post("/host/v1/agent-packs", {**pack(f"b{uuid.uuid4().hex[:8]}"), **change})
    assert answer.status_code in (400, 422), answer.text
    assert "agent_invalid" in answer.text or "$" in answer.text


def test_an_installed_agent_works_in_a_run(api: Api, install: Callable[..., str]) -> None:
    agent_id = install("1.0.0", "2.0.0")
    for ref in ({"agentId": agent_id}, {"agentId": agent_id, "version": "1.0.0"}):
        run = run_flow(api, agent_flow(api, ref))
        assert run["status"] == "completed", run
        started = next(item for item in api.events(run["runId"]) if item["type"] == "agent.invocation.started")
        assert started["payload"]["agentId"] == agent_id
        assert "resolvedAgentVersion" not in started["payload"]
    run = run_flow(api, agent_flow(api, {"agentId": agent_id, "version": "3.0.0"}))
    assert run["status"] == "failed"
    other = api.caller("other")
    assert run_flow(other, agent_flow(other, {"agentId": agent_id}))["status"] == "failed"


# The roster


def test_the_roster_is_listed_and_read(api: Api, tenant: str, install: Callable[..., str]) -> None:
    entry = hire(api, tenant, install())
    body = api.get("/v1/agents/roster").json()
    assert set(body) == {"roster", "total"} and body["total"] == len(body["roster"])
    assert entry in body["roster"]
    assert api.get(f"/v1/agents/roster/{entry['rosterId']}").json() == entry
    line = {"rosterId": entry["rosterId"], "persona": "Sally", "workflows": entry["workflows"]}
    assert api.get(f"/v1/agents/{entry['agentRef']['agentId']}").json()["roster"] == [line]
    page = api.get("/v1/agents/roster", params={"limit": 1}).json()
    assert page["total"] == len(page["roster"]) == 1
    after = api.get("/v1/agents/roster", params={"after": entry["rosterId"]}).json()["roster"]
    assert all(item["rosterId"] > entry["rosterId"] for item in after)


def test_a_member_of_another_tenant_is_not_there(api: Api, tenant: str, install: Callable[..., str]) -> None:
    entry = hire(api, tenant, install())
    other = api.caller("other")
    refused(other.get(f"/v1/agents/roster/{entry['rosterId']}"), 404, "not_found")
    assert entry["rosterId"] not in other.get("/v1/agents/roster").text
    assert other.http.put(f"/host/v1/roster/{entry['rosterId']}", json=entry).status_code == 403
    refused(api.caller("").get("/v1/agents/roster"), 401, "unauthenticated")
    assert api.caller("reader").http.put(f"/host/v1/roster/{entry['rosterId']}", json=entry).status_code == 403


def test_what_is_no_member_is_refused(api: Api, tenant: str, install: Callable[..., str]) -> None:
    entry = hire(api, tenant, install())
    path = f"/host/v1/roster/{entry['rosterId']}"
    for change in (
        {"rosterId": "host:someone-else"},
        {"agentRef": {"agentId": "vendor.suite.nobody"}},
        {"agentRef": {**entry["agentRef"], "version": "9.0.0"}},
        {"agentRef": {**entry["agentRef"], "version": "1.0.0", "channel": "stable"}},
        {"workflows": ["no-such-workflow"]},
        {"scopes": ["deploy:promote"]},
        {"persona": ""},
    ):
        assert api.http.put(path, json={**entry, **change}).status_code in (400, 422), change
    assert api.get(f"/v1/agents/roster/{entry['rosterId']}").json() == entry


def attributed(api: Api, run_id: str) -> dict[str, Any]:
    """The payload of the attribution, which stands right behind the start, once and without content."""
    events = api.events(run_id)
    assert [item["type"] for item in events[:2]] == ["run.started", "roster.run.initiated"]
    assert [item["type"] for item in events].count("roster.run.initiated") == 1
    payload: dict[str, Any] = events[1]["payload"]
    assert not set(CONTENT) & set(payload)
    return payload


def test_a_run_addressed_to_a_member_is_its_run(api: Api, tenant: str, install: Callable[..., str]) -> None:
    agent_id = install()
    entry = hire(api, tenant, agent_id)
    name = agent_flow(api, {"agentId": entry["rosterId"]})
    run = run_flow(api, name)
    assert run["status"] == "completed", run
    told = attributed(api, run["runId"])
    assert told == {
        "rosterId": entry["rosterId"], "persona": "Sally", "agentId": agent_id, "workflowId": name,
        "triggerSource": "run-api",
    }  # fmt: skip
    started = next(item for item in api.events(run["runId"]) if item["type"] == "agent.invocation.started")
    assert started["payload"]["agentId"] == agent_id
    assert (run["outputs"]["rosterId"], run["outputs"]["persona"]) == (entry["rosterId"], "Sally")
    fork = api.post(f"/v1/runs/{run['runId']}:fork", {"mode": "replay"}).json()
    api.wait(fork["runId"])
    assert attributed(api, fork["runId"]) == told
    refused(api.post("/v1/runs", {"workflowId": agent_flow(api, {"agentId": "host:nobody"})}), 404, "not_found")


def test_a_schedule_works_for_the_member_who_has_the_workflow(
    api: Api, tenant: str, install: Callable[..., str], capabilities: dict[str, Any]
) -> None:
    if "schedule" not in capabilities["agents"]["roster"].get("portfolioTriggerSources", ()):
        pytest.skip("schedules start nobody's work here")
    agent_id = install()
    name = agent_flow(api, {"agentId": agent_id})
    entry = hire(api, tenant, agent_id, workflows=[name])
    made = api.post("/v1/schedules", {"workflowId": name, "cron": "0 0 1 1 *", "timezone": "UTC"})
    assert made.status_code == 201, made.text
    moments = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
    path = f"/v1/schedules/{made.json()['scheduleId']}:backfill"
    (run,) = api.post(path, moments).json()["runs"]
    api.wait(run["runId"])
    told = attributed(api, run["runId"])
    assert (told["rosterId"], told["triggerSource"]) == (entry["rosterId"], "schedule")
    answer = api.http.put(f"/host/v1/roster/{entry['rosterId']}", json={**entry, "enabled": False})
    assert answer.status_code == 200
    assert api.get(f"/v1/agents/roster/{entry['rosterId']}").json()["enabled"] is False
    moments = {"from": "2025-01-01T00:00:00Z", "to": "2025-01-01T00:00:00Z"}
    refused(api.post(path, moments), 409, "conflict")


def test_the_seam_fires_a_portfolio(api: Api, tenant: str, install: Callable[..., str]) -> None:
    seam = "/v1/host/sample/roster/fire"
    refused(api.caller("").post(seam, {}), 401, "unauthenticated")
    fired = api.post(seam, {"triggerSource": "schedule"})
    assert fired.status_code == 200, fired.text
    assert attributed(api, fired.json()["runId"])["rosterId"] == fired.json()["rosterId"]
    entry = hire(api, tenant, install())
    fired = api.post(seam, {"rosterId": entry["rosterId"], "triggerSource": "webhook"}).json()
    assert attributed(api, fired["runId"])["triggerSource"] == "webhook"
    refused(api.caller("other").post(seam, {"rosterId": entry["rosterId"]}), 404, "not_found")


# The org chart


def chart_of(tenant: str, boss: str, worker: str) -> dict[str, Any]:
    role = {"roleId": "lead", "name": "Lead"}
    return {
        "owner": {"tenantId": tenant},
        "departments": [
            {"departmentId": "growth", "name": "Growth", "roles": [role]},
            {
                "departmentId": "mail", "name": "Mail", "parentDepartmentId": "growth",
                "roles": [{"roleId": "writer", "name": "Writer"}],
            },
        ],
        "members": [
            {"rosterId": boss, "departmentId": "growth", "roleId": "lead", "reportsTo": None},
            {"rosterId": worker, "departmentId": "mail", "roleId": "writer", "reportsTo": boss},
        ],
    }  # fmt: skip


def test_the_chart_shows_departments_and_their_responsibilities(
    api: Api, tenant: str, install: Callable[..., str]
) -> None:
    agent_id = install()
    boss = hire(api, tenant, agent_id, workflows=[api.workflow("chain")])
    worker = hire(api, tenant, agent_id)
    chart = chart_of(tenant, boss["rosterId"], worker["rosterId"])
    answer = api.http.put("/host/v1/org-chart", json=chart)
    assert answer.status_code == 200, answer.text
    assert api.get("/v1/agents/org-chart").json() == chart
    view = api.get("/v1/agents/org-chart/growth").json()
    assert set(view) == {"department", "members", "responsibilities"}
    assert view["responsibilities"] == [*boss["workflows"], *worker["workflows"]]
    own = api.get("/v1/agents/org-chart/growth", params={"recursive": "false"}).json()
    assert [item["rosterId"] for item in own["members"]] == [boss["rosterId"]]
    for item in (*chart["departments"], *chart["members"], view, *view["members"]):
        assert not set(AUTHORITY) & set(item)
    refused(api.get("/v1/agents/org-chart/nowhere"), 404, "not_found")
    other = api.caller("other").get("/v1/agents/org-chart").json()
    assert (other["departments"], other["members"]) == ([], [])
    refused(api.caller("other").get("/v1/agents/org-chart/growth"), 404, "not_found")
    assert api.http.delete(f"/host/v1/roster/{worker['rosterId']}").status_code == 409


def test_a_chart_with_a_circle_or_an_authority_is_refused(api: Api, tenant: str, install: Callable[..., str]) -> None:
    agent_id = install()
    boss, worker = (hire(api, tenant, agent_id)["rosterId"] for _ in range(2))
    before = api.get("/v1/agents/org-chart").json()
    circle = chart_of(tenant, boss, worker)
    circle["members"][0]["reportsTo"] = worker
    powerful = chart_of(tenant, boss, worker)
    powerful["members"][0]["scopes"] = ["deploy:promote"]
    stranger = chart_of(tenant, boss, "host:nobody")
    for chart in (circle, powerful, stranger, chart_of("someone-else", boss, worker)):
        assert api.http.put("/host/v1/org-chart", json=chart).status_code in (400, 403, 422), chart
    assert api.get("/v1/agents/org-chart").json() == before


def test_position_gives_no_authority(api: Api, tenant: str, install: Callable[..., str]) -> None:
    """Everything that decides about authority says the same before and after somebody becomes the boss."""
    agent_id = install()
    boss, worker = (hire(api, tenant, agent_id)["rosterId"] for _ in range(2))
    flow = agent_flow(api, {"agentId": boss})

    def decided(tool: str) -> Any:
        about = {"subject": agent_id, "capability": "tool", "on": tool}
        return api.get("/host/v1/policy/decision", params=about).json().get("result")

    def standing() -> list[Any]:
        wanted = {"version": "1.0.0", "transition": "promote"}
        denied = api.caller("reader").post(f"/v1/agents/{agent_id}/deployments", wanted)
        run = run_flow(api, flow)
        tools = [item for item in api.events(run["runId"]) if item["type"] == "agent.toolCalled"]
        allowed = api.get(f"/v1/agents/{agent_id}").json()["toolAllowlist"]
        return [decided("bash"), decided("read"), denied.status_code, run["status"], tools, allowed]

    before = standing()
    assert before[0]["effect"] == "deny" and before[2] == 403
    assert api.http.put("/host/v1/org-chart", json=chart_of(tenant, boss, worker)).status_code == 200
    assert standing() == before

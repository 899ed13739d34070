"""Deployments of agents (RFC 0082) of a host that says it has them: gates, channels, canaries, rollback, the pin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, refused
from tests.contracts.openwop.test_organisation import agent_flow, hire, install, run_flow, tenant

__all__ = ["install", "tenant"]  # fixtures
CONTENT = ("manifest", "prompt", "systemPrompt", "content", "credential", "secret")
SEAM = "/v1/host/sample/agents/deployment-transition"


@pytest.fixture(autouse=True)
def _offered(capabilities: dict[str, Any]) -> None:
    if not capabilities.get("agents", {}).get("deployment", {}).get("supported"):
        pytest.skip("this host has no deployments")


def move(api: Api, agent_id: str, version: str, verb: str = "promote", **fields: Any) -> dict[str, Any]:
    answer = api.post(f"/v1/agents/{agent_id}/deployments", {"version": version, "transition": verb, **fields})
    assert answer.status_code == 200, answer.text
    return {**answer.json(), "run": answer.headers["location"].rpartition("/")[2]}


def live(api: Api, agent_id: str, version: str, **fields: Any) -> dict[str, Any]:
    for state in ("draft", "test", "staged"):
        assert move(api, agent_id, version)["state"] == state
    return move(api, agent_id, version, channel="stable", **fields)


def resolved(api: Api, run_id: str) -> tuple[Any, Any]:
    started = next(item for item in api.events(run_id) if item["type"] == "agent.invocation.started")
    return started["payload"].get("resolvedAgentVersion"), started["payload"].get("resolvedChannel")


def test_a_version_climbs_to_active_and_each_step_is_told(api: Api, install: Callable[..., str]) -> None:
    agent_id = install("1.0.0")
    path = f"/v1/agents/{agent_id}/deployments"
    assert api.get(path).json() == []
    made = live(api, agent_id, "1.0.0")
    run_id = made.pop("run")
    assert made == {"agentId": agent_id, "version": "1.0.0", "state": "active", "channels": ["stable"]}
    assert api.get(path).json() == [made]
    events = {item["type"]: item["payload"] for item in api.events(run_id)}
    assert events["authorization.decided"]["allowed"] is True
    promoted = events["deployment.promoted"]
    assert (promoted["toVersion"], promoted["toState"]) == ("1.0.0", "active")
    assert not set(CONTENT) & set(promoted)


def test_without_the_scope_nothing_changes_and_the_denial_is_on_record(api: Api, install: Callable[..., str]) -> None:
    agent_id = install()
    path = f"/v1/agents/{agent_id}/deployments"
    made = api.post("/host/v1/keys", {"name": "no-deploy", "scopes": ["manifest:read", "deploy:pause", "runs:read"]})
    weak = Api(api.url, {"weak": made.json()["result"]["apiKey"]}, "weak")
    wanted = {"version": "1.0.0", "transition": "promote"}
    details = refused(weak.post(path, wanted), 403, "forbidden")
    events = api.events(details["runId"])
    (decided,) = [item["payload"] for item in events if item["type"] == "authorization.decided"]
    assert (decided["allowed"], decided["action"]) == (False, "deploy:promote")
    assert not [item for item in events if item["type"].startswith("deployment.")]
    weak.close()
    assert api.get(path).json() == []
    refused(api.caller("").post(path, wanted), 401, "unauthenticated")
    refused(api.caller("other").post(path, wanted), 404, "not_found")
    refused(api.caller("other").get(path), 404, "not_found")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"version": "1.0.0"}, 400),
        ({"version": "1.0.0", "transition": "launch"}, 400),
        ({"version": "1.0.0", "transition": "promote", "canaryPercent": 101}, 400),
        ({"version": "1.0.0", "transition": "promote", "channel": "latest"}, 400),
        ({"version": "1.0.0", "transition": "promote", "force": True}, 400),
        ({"version": "9.9.9", "transition": "promote"}, 404),
        ({"version": "1.0.0", "transition": "pause"}, 404),
    ],
)
def test_a_transition_that_cannot_be_is_refused(
    api: Api, install: Callable[..., str], body: dict[str, Any], status: int
) -> None:
    agent_id = install()
    assert api.post(f"/v1/agents/{agent_id}/deployments", body).status_code == status
    assert api.get(f"/v1/agents/{agent_id}/deployments").json() == []


def test_a_run_keeps_the_version_that_its_channel_gave(api: Api, install: Callable[..., str]) -> None:
    agent_id = install("1.0.0", "2.0.0")
    flow = agent_flow(api, {"agentId": agent_id, "channel": "stable"})
    early = run_flow(api, flow)
    assert (early["status"], early["error"]["code"]) == ("failed", "no_active_deployment")
    live(api, agent_id, "1.0.0")
    run = run_flow(api, flow)
    assert run["status"] == "completed", run
    assert resolved(api, run["runId"]) == ("1.0.0", "stable")
    live(api, agent_id, "2.0.0")
    assert resolved(api, run_flow(api, flow)["runId"]) == ("2.0.0", "stable")
    fork = api.post(f"/v1/runs/{run['runId']}:fork", {"mode": "replay"}).json()
    api.wait(fork["runId"])
    assert resolved(api, fork["runId"]) == ("1.0.0", "stable")
    latest = run_flow(api, agent_flow(api, {"agentId": agent_id, "channel": "latest"}))
    assert resolved(api, latest["runId"]) == ("2.0.0", "latest")


def test_a_rollback_brings_the_version_before_back(api: Api, install: Callable[..., str]) -> None:
    agent_id = install("1.0.0", "2.0.0")
    live(api, agent_id, "1.0.0")
    live(api, agent_id, "2.0.0")
    made = move(api, agent_id, "2.0.0", "rollback", reason="slow")
    assert (made["state"], made["rollbackPointer"]) == ("rolled-back", "1.0.0")
    told = [item["payload"] for item in api.events(made["run"]) if item["type"] == "deployment.rolled-back"]
    assert told == [
        {
            "agentId": agent_id,
            "fromVersion": "2.0.0",
            "toVersion": "1.0.0",
            "rollbackPointer": "1.0.0",
            "reason": "slow",
        }
    ]
    flow = agent_flow(api, {"agentId": agent_id, "channel": "stable"})
    assert resolved(api, run_flow(api, flow)["runId"])[0] == "1.0.0"


def test_a_canary_takes_its_share_and_no_more(api: Api, install: Callable[..., str]) -> None:
    agent_id = install("1.0.0", "2.0.0")
    live(api, agent_id, "1.0.0")
    assert live(api, agent_id, "2.0.0", canaryPercent=0)["canaryPercent"] == 0
    flow = agent_flow(api, {"agentId": agent_id, "channel": "stable"})
    assert {resolved(api, run_flow(api, flow)["runId"])[0] for _ in range(3)} == {"1.0.0"}
    made = move(api, agent_id, "2.0.0", "adjust-canary", canaryPercent=100)
    assert [item["payload"] for item in api.events(made["run"]) if item["type"] == "deployment.canary.adjusted"] == [
        {"agentId": agent_id, "version": "2.0.0", "fromPercent": 0, "toPercent": 100}
    ]
    assert resolved(api, run_flow(api, flow)["runId"])[0] == "2.0.0"


def test_a_reference_has_a_version_or_a_channel(api: Api, install: Callable[..., str]) -> None:
    agent_id = install()
    flow = agent_flow(api, {"agentId": agent_id, "channel": "stable"})
    document = api.get(f"/v1/workflows/{flow}").json()
    document["nodes"][0]["agent"]["version"] = "1.0.0"
    document["version"] = "2.0.0"
    refused(api.http.put(f"/v1/workflows/{flow}", json=document), 400, "validation_error")


def test_a_member_works_with_the_version_of_its_channel(api: Api, tenant: str, install: Callable[..., str]) -> None:
    agent_id = install("1.0.0", "2.0.0")
    live(api, agent_id, "1.0.0")
    entry = hire(api, tenant, agent_id, agentRef={"agentId": agent_id, "channel": "stable"})
    run = run_flow(api, agent_flow(api, {"agentId": entry["rosterId"]}))
    assert resolved(api, run["runId"]) == ("1.0.0", "stable")


def test_the_seam_promotes_refuses_and_pins(api: Api) -> None:
    refused(api.caller("").post(SEAM, {"scenario": "promote"}), 401, "unauthenticated")
    promoted = api.post(SEAM, {"scenario": "promote"}).json()
    assert promoted["allowed"] is True and promoted["record"]["state"] == "active"
    for scenario, error in (("unauthorized", "forbidden"), ("eval-gate-unmet", "eval_gate_unmet")):
        answer = api.post(SEAM, {"scenario": scenario}).json()
        assert (answer["allowed"], answer["error"]) == (False, error)
        assert not [item for item in api.events(answer["runId"]) if item["type"] == "deployment.promoted"]
    pin = api.post(SEAM, {"scenario": "channel-pin", "channel": "stable"}).json()
    assert pin["resolvedAgentVersion"] == resolved(api, pin["runId"])[0] == promoted["record"]["version"]

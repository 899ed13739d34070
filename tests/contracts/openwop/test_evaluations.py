"""Evaluations of agents (RFC 0081) of a host that says it has them, and the gate that they open (RFC 0082 §E-3)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, refused
from tests.contracts.openwop.test_organisation import install

__all__ = ["install"]  # a fixture
CANARY = "CANARY-TASK-77"


@pytest.fixture(autouse=True)
def _offered(capabilities: dict[str, Any]) -> None:
    if not capabilities.get("agents", {}).get("evalSuite", {}).get("supported"):
        pytest.skip("this host has no evaluations")


def task(name: str, value: str, **fields: Any) -> dict[str, Any]:
    match = {"strategy": "regex", "value": value}
    return {"taskId": name, "input": f"Say hello. {CANARY}", "expected": {"kind": "golden", "match": match}, **fields}


def keep(api: Api, *tasks: dict[str, Any], **fields: Any) -> str:
    """Store a suite of these tasks; its reference."""
    suite = {"suiteId": f"suite.evals.s{uuid.uuid4().hex[:10]}", "version": "1.0.0", "modes": ["golden", "regression"]}
    answer = api.post("/host/v1/eval-suites", {**suite, "tasks": list(tasks), **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["result"]["ref"])


def evaluate(api: Api, ref: str, agent_id: str, **options: Any) -> dict[str, Any]:
    body = {"mode": "eval", "evalSuiteRef": ref, "agentId": agent_id, "configurable": options}
    made = api.post("/v1/runs", body)
    assert made.status_code == 201, made.text
    return api.wait(made.json()["runId"])


def test_each_task_is_scored_and_the_summary_has_no_content(
    api: Api, install: Callable[..., str], capabilities: dict[str, Any]
) -> None:
    ref = keep(api, task("any", ".*"), task("none", "^no such answer$"))
    run = evaluate(api, ref, install(), evalModes=["golden"])
    assert run["status"] == "completed", run
    events = api.events(run["runId"])
    told = [(item["type"], item["payload"]) for item in events if item["type"].startswith("eval.")]
    assert [type for type, _ in told] == ["eval.started", "eval.scored", "eval.scored", "eval.completed"]
    assert [payload["score"] for _, payload in told[1:3]] == [1.0, 0.0]
    assert told[0][1]["taskCount"] == told[3][1]["taskCount"] == 2
    answer = api.get(f"/v1/runs/{run['runId']}/eval-summary")
    card = answer.json()
    assert (card["aggregateScore"], card["passed"], card["passedCount"]) == (0.5, False, 1)
    assert CANARY not in answer.text and CANARY not in str(told)
    assert len(run["childRuns"]) == 2
    assert "golden" in capabilities["agents"]["evalSuite"]["modes"]


def test_a_summary_is_of_an_evaluation_that_has_ended(api: Api) -> None:
    run_id = api.start("noop")
    api.wait(run_id)
    refused(api.get(f"/v1/runs/{run_id}/eval-summary"), 404, "not_found")
    refused(api.get("/v1/runs/run_none/eval-summary"), 404, "not_found")
    refused(api.caller("").get(f"/v1/runs/{run_id}/eval-summary"), 401, "unauthenticated")


def test_what_cannot_be_evaluated_starts_nothing(api: Api, install: Callable[..., str]) -> None:
    agent_id, ref = install(), keep(api, task("any", ".*"))
    for body, status in (
        ({"agentId": agent_id}, 400),
        ({"evalSuiteRef": ref}, 400),
        ({"evalSuiteRef": "suite.evals.none@1.0.0", "agentId": agent_id}, 404),
        ({"evalSuiteRef": ref, "agentId": "vendor.suite.nobody"}, 404),
        ({"evalSuiteRef": ref, "agentId": agent_id, "configurable": {"evalModes": ["live-shadow"]}}, 400),
        ({"evalSuiteRef": ref, "agentId": agent_id, "configurable": {"evalModes": ["regression"]}}, 400),
        ({"evalSuiteRef": ref, "agentId": agent_id, "configurable": {"evalTrials": 0}}, 400),
        ({"evalSuiteRef": ref, "agentId": agent_id, "configurable": {"agentVersion": "9.0.0"}}, 404),
    ):
        assert api.post("/v1/runs", {"mode": "eval", **body}).status_code == status, body
    other = api.caller("other").post("/v1/runs", {"mode": "eval", "evalSuiteRef": ref, "agentId": agent_id})
    refused(other, 404, "not_found")


def test_a_suite_without_the_mode_is_refused(api: Api) -> None:
    answer = api.post("/v1/runs", {"workflowId": api.workflow("noop"), "evalSuiteRef": "x"})
    assert (answer.status_code, answer.json()["details"]["at"]) == (400, "$.evalSuiteRef")


def test_a_suite_that_is_none_is_refused(api: Api) -> None:
    suite = {"suiteId": "suite.evals.bad", "version": "1.0.0", "modes": ["golden"], "tasks": [task("a", ".*")]}
    twice = {"toolResponses": [{"tool": "read", "response": 1}, {"tool": "read", "response": 2}]}
    for change in (
        {"tasks": []},
        {"modes": ["dancing"]},
        {"tasks": [task("a", ".*"), task("a", ".*")]},
        {"tasks": [task("a", "(")]},
        {"tasks": [task("a", ".*", fixtures=twice)]},
        {"suiteId": "bad"},
        {"extra": True},
    ):
        assert api.post("/host/v1/eval-suites", {**suite, **change}).status_code in (400, 422), change


def test_a_task_has_the_tools_of_its_fixtures_alone(api: Api) -> None:
    """The model that comes with the host calls a tool whose description fits; the suite answers for it."""
    fixtures = {"toolResponses": [{"tool": "read", "response": "The tide is at noon."}]}
    ref = keep(api, task("told", ".*", fixtures=fixtures), task("bare", ".*"))
    run = evaluate(api, ref, "core.forestay.assistant", evalModes=["golden"])
    assert run["status"] == "completed", run
    for child in run["childRuns"]:
        called = [item["payload"] for item in api.events(child["runId"]) if item["type"] == "agent.toolCalled"]
        assert {item["toolName"] for item in called} <= {"read", "forestay:read"}


def test_a_regression_is_measured_against_its_baseline(api: Api, install: Callable[..., str]) -> None:
    agent_id, ref = install(), keep(api, task("any", ".*"))
    first = evaluate(api, ref, agent_id, evalModes=["golden"])
    second = evaluate(api, ref, agent_id, evalModes=["regression"], baselineRunId=first["runId"])
    card = api.get(f"/v1/runs/{second['runId']}/eval-summary").json()
    assert card["regression"] == {"baselineRunId": first["runId"], "scoreDelta": 0.0}


def test_a_promotion_waits_for_an_evaluation_that_passed(api: Api, install: Callable[..., str]) -> None:
    """With the seams, one agent's promotions need an evaluation: of that agent, of that version, and passed."""
    gated = "local.sample.gated"
    seam = "/v1/host/sample/agents/deployment-transition"
    answer = api.post(seam, {"scenario": "eval-gate-unmet"})
    assert answer.status_code == 200, answer.text
    staged = [item for item in api.get(f"/v1/agents/{gated}/deployments").json() if item["state"] == "staged"]
    version = staged[-1]["version"]
    good, bad = keep(api, task("any", ".*")), keep(api, task("none", "^no such answer$"))
    path, wanted = f"/v1/agents/{gated}/deployments", {"version": version, "transition": "promote", "channel": "stable"}
    failed = evaluate(api, bad, gated, evalModes=["golden"], agentVersion=version)
    other = evaluate(api, good, install(), evalModes=["golden"])
    passed = evaluate(api, good, gated, evalModes=["golden"], agentVersion=version)
    fork = api.post(f"/v1/runs/{passed['runId']}:fork", {"mode": "replay"}).json()
    api.wait(fork["runId"])
    for run in (failed, other, fork):  # what a fork says of itself opens no gate
        refused(api.post(path, {**wanted, "evalRunId": run["runId"]}), 403, "eval_gate_unmet")
    refused(api.post(path, wanted), 403, "eval_gate_unmet")
    made = api.post(path, {**wanted, "evalRunId": passed["runId"]})
    assert made.status_code == 200, made.text
    assert (made.json()["state"], made.json()["evalRunId"]) == ("active", passed["runId"])


def test_the_seam_evaluates_an_agent(api: Api) -> None:
    seam = "/v1/host/sample/agents/eval-run"
    refused(api.caller("").post(seam, {}), 401, "unauthenticated")
    refused(api.post(seam, {"modes": ["rubric", "dancing"]}), 400, "validation_error")
    made = api.post(seam, {"taskCount": 3}).json()
    assert made["status"] == "completed"
    scores = [item["payload"]["score"] for item in api.events(made["runId"]) if item["type"] == "eval.scored"]
    assert scores == [1.0, 0.0, 1.0]
    assert api.get(f"/v1/runs/{made['runId']}/eval-summary").json()["passedCount"] == 2

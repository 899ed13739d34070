"""Budgets (RFC 0084) of a host that says it has them: reserved, consumed, crossed, exhausted, and the run's end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, refused

# What no `budget.*` event may hold (§F).
CONTENT = ("price", "pricing", "rateCard", "rate", "credential", "prompt", "content", "model")
ORDER = [
    "budget.reserved",
    "budget.consumed",
    "budget.threshold.crossed",
    "budget.exhausted",
    "cap.breached",
    "run.failed",
]


@pytest.fixture(autouse=True)
def _offered(capabilities: dict[str, Any]) -> None:
    if not capabilities.get("budget", {}).get("supported"):
        pytest.skip("this host has no budgets")


def ask(api: Api, budget: Any, tokens: int = 60) -> dict[str, Any]:
    """A run that asks a mock model once, which says that it used so many tokens."""
    mock = {"id": "usage-only", "config": {"usage": {"inputTokens": tokens, "outputTokens": 0}}}
    tester = api.caller("test")
    run_id = tester.start("prompt", configurable={"budget": budget, "mockProvider": mock})
    return tester.wait(run_id)


def told(api: Api, run: dict[str, Any], *types: str) -> list[tuple[str, Any]]:
    return [(item["type"], item["payload"]) for item in api.events(run["runId"]) if item["type"].startswith(types)]


def test_discovery_says_which_dimensions_and_scopes_hold(capabilities: dict[str, Any]) -> None:
    budget = capabilities["budget"]
    assert set(budget) <= {"supported", "dimensions", "enforce", "scopes"}
    assert set(budget["dimensions"]) <= {"tokens", "cost", "toolCalls", "retries", "model"}
    assert budget["enforce"] in ("hard", "advisory")
    assert "run" in budget["scopes"]


def test_a_run_within_its_budget_is_told_what_it_used(api: Api) -> None:
    run = ask(api, {"maxTokens": 1000})
    assert run["status"] == "completed"
    events = told(api, run, "budget.")
    assert events == [
        ("budget.reserved", {"effectiveBudget": {"maxTokens": 1000}, "scope": "run"}),
        ("budget.consumed", {"dimension": "tokens", "consumed": 60, "limit": 1000, "remaining": 940}),
    ]


def test_a_hard_ceiling_ends_the_run_in_the_contracts_order(api: Api, capabilities: dict[str, Any]) -> None:
    if capabilities["budget"]["enforce"] != "hard":
        pytest.skip("this host only advises")
    run = ask(api, {"maxTokens": 50, "thresholdPercent": 80})
    assert (run["status"], run["error"]["code"]) == ("failed", "budget_exhausted")
    events = told(api, run, "budget.", "cap.breached", "run.failed")
    assert [type for type, _ in events] == ORDER
    said = dict(events)
    assert said["budget.threshold.crossed"]["percent"] == 80
    assert said["cap.breached"] == {"kind": "budget-tokens", "limit": 50, "observed": 60}
    for type, payload in events:
        assert type == "run.failed" or not set(CONTENT) & set(payload)


def test_a_denied_model_is_refused_before_the_call(api: Api, capabilities: dict[str, Any]) -> None:
    if "model" not in capabilities["budget"]["dimensions"]:
        pytest.skip("this host does not refuse models")
    for policy in ({"modelDeny": ["*"]}, {"modelAllow": ["no-such-model"]}, {"modelAllow": ["*"], "modelDeny": ["*"]}):
        run = ask(api, policy)
        assert (run["status"], run["error"]["code"]) == ("failed", "budget_model_denied")
        assert told(api, run, "provider.usage", "output.chunk") == []


@pytest.mark.parametrize(
    "budget", [{"maxWallTimeMs": 1}, {"maxTokens": 0}, {"maxCostUsd": -1}, {"onExhaustion": "x"}, []]
)
def test_a_budget_that_is_none_is_400_and_starts_nothing(api: Api, budget: Any) -> None:
    body = {"workflowId": api.workflow("chain"), "configurable": {"budget": budget}}
    refused(api.post("/v1/runs", body), 400, "validation_error")


def test_a_fork_reads_its_budget_from_the_log(api: Api) -> None:
    run = ask(api, {"maxTokens": 1000})
    tester = api.caller("test")
    answer = tester.post(f"/v1/runs/{run['runId']}:fork", {"mode": "replay"})
    assert answer.status_code == 201, answer.text
    fork = tester.wait(answer.json()["runId"])
    assert told(api, fork, "budget.") == told(api, run, "budget.")


SEAM = "/v1/host/sample/budget/run"


def test_the_seam_drives_a_run_into_its_ceiling(api: Api, capabilities: dict[str, Any]) -> None:
    refused(api.caller("").post(SEAM, {"scenario": "model-denied"}), 401, "unauthenticated")
    refused(api.post(SEAM, {"scenario": "free"}), 400, "validation_error")
    hard = capabilities["budget"]["enforce"] == "hard"
    answer = api.post(SEAM, {"scenario": "hard-cost-exhaust" if hard else "advisory"})
    assert answer.status_code == 200, answer.text
    made = answer.json()
    run = {"runId": made["runId"]}
    types = [type for type, _ in told(api, run, "budget.", "cap.breached", "run.failed")]
    assert types == (ORDER if hard else ORDER[:4])
    assert made["modelCalled"] is True
    assert made.get("error") == ("budget_exhausted" if hard else None)


def test_the_seam_has_a_denied_model_refused_before_the_call(api: Api, capabilities: dict[str, Any]) -> None:
    if "model" not in capabilities["budget"]["dimensions"]:
        pytest.skip("this host does not refuse models")
    made = api.post(SEAM, {"scenario": "model-denied"}).json()
    assert (made["error"], made["modelCalled"]) == ("budget_model_denied", False)


def test_people_see_what_each_account_spent(api: Api) -> None:
    run = ask(api, {"maxTokens": 1000})
    found = api.get("/host/v1/budgets", params={"scope": "run", "limit": 200})
    if found.status_code == 404:
        pytest.skip("the accounts are forestay's own operation")
    accounts = {item["account"]: item for item in found.json()["result"]["accounts"]}
    assert accounts[f"run/{run['runId']}"]["spent"] == {"tokens": 60}
    assert accounts[f"run/{run['runId']}"]["held"] == {}
    others = api.caller("other").get("/host/v1/budgets").json()["result"]["accounts"]
    assert f"run/{run['runId']}" not in {item["account"] for item in others}
    assert api.caller("no_scopes").get("/host/v1/budgets").status_code == 403

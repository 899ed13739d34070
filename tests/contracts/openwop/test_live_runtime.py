"""Agents that work (RFC 0077), in a node and as the root of a run, on a host that says it has a live runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, refused
from tests.contracts.openwop.test_organisation import install, pack, support, tenant

__all__ = ["install", "tenant"]  # fixtures
SEAM = "/v1/host/sample/agents/live-invoke"
CONTENT = {"prompt", "result", "body", "input", "output", "secret", "arguments"}


@pytest.fixture(autouse=True)
def _offered(capabilities: dict[str, Any]) -> None:
    if not capabilities.get("agents", {}).get("liveRuntime", {}).get("supported"):
        pytest.skip("this host has no live runtime")


def work(api: Api, agent_id: str, inputs: Any = None, **options: Any) -> dict[str, Any]:
    """A run whose root is the agent."""
    body = {"agentId": agent_id, "inputs": inputs or {"task": "Say hello."}, "configurable": options}
    made = api.post("/v1/runs", body)
    assert made.status_code == 201, made.text
    return api.wait(made.json()["runId"])


def told(api: Api, run_id: str) -> list[dict[str, Any]]:
    return [item for item in api.events(run_id) if item["type"].startswith("agent.")]


def invoked(api: Api, **scenario: Any) -> dict[str, Any]:
    answer = api.post(SEAM, scenario)
    if answer.status_code == 404:
        pytest.skip("this host was started without its seams")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_agent_is_the_root_of_a_run(api: Api, install: Callable[..., str]) -> None:
    agent_id = install("1.0.0", "2.0.0")
    run = work(api, agent_id)
    assert (run["status"], run["outputs"]["agentId"]) == ("completed", agent_id)
    started = told(api, run["runId"])[0]
    assert (started["type"], started["payload"]["source"]) == ("agent.invocation.started", "run-api")
    assert work(api, agent_id, agentVersion="1.0.0")["status"] == "completed"
    failed = work(api, agent_id, agentChannel="stable")
    assert failed["error"]["code"] == "no_active_deployment"


@pytest.mark.parametrize("source", ["run-api", "workflow-node"])
def test_every_source_has_the_same_bracket(api: Api, capabilities: dict[str, Any], source: str) -> None:
    assert source in capabilities["agents"]["liveRuntime"]["sources"]
    found = invoked(api, source=source)
    events = told(api, found["runId"])
    assert [item["type"] for item in events] == [
        "agent.invocation.started",
        "agent.promptResolved",
        "agent.reasoned",
        "agent.decided",
        "agent.invocation.completed",
    ]
    first, last = events[0]["payload"], events[-1]["payload"]
    assert (first["source"], last["outcome"]) == (source, "completed")
    assert first["invocationId"] == last["invocationId"] == found["invocationId"]
    assert not CONTENT & {key for item in events for key in item["payload"]}


@pytest.mark.parametrize("source", ["run-api", "workflow-node"])
def test_a_result_that_does_not_fit_is_not_shipped(api: Api, source: str) -> None:
    good = invoked(api, source=source, returnSchemaRef="schemas/answer.json")
    assert told(api, good["runId"])[-1]["payload"]["schemaValidated"] is True
    bad = invoked(api, source=source, forceInvalidResult=True)
    assert bad["outcome"] == "failed"
    assert told(api, bad["runId"])[-1]["payload"].get("schemaValidated") is not True
    assert api.run(bad["runId"])["status"] == "failed"


def test_a_tool_that_is_not_on_the_list_is_not_called(api: Api) -> None:
    found = invoked(api, attemptTool="conformance-disallowed-tool")
    names = [item["type"] for item in told(api, found["runId"])]
    assert "agent.toolCalled" not in names
    assert names.count("agent.reasoned") == 2  # the model asked for it, and was asked again


@pytest.mark.parametrize(("action", "outcome"), [("accept", "completed"), ("reject", "escalated")])
def test_an_answer_that_is_unsure_is_confirmed_by_a_person(api: Api, action: str, outcome: str) -> None:
    tester = api.caller("test")
    schema = {"type": "object", "required": ["answer"], "properties": {"confidence": {"type": "number"}}}
    unsure = support("unsure", confidence={"defaultThreshold": 0.6}, forestay={"returnSchema": schema})
    assert tester.post("/host/v1/agent-packs", pack("unsure", "1.0.0", unsure)).status_code == 201
    mock = {"id": "stream-text", "config": {"tokens": ['{"answer": "perhaps", "confidence": 0.5}']}}
    body = {"agentId": unsure["agentId"], "inputs": {"task": "Is it?"}, "configurable": {"mockProvider": mock}}
    run_id = tester.post("/v1/runs", body).json()["runId"]
    node = tester.wait(run_id, "waiting-approval")["currentNodeId"]
    answered = tester.post(f"/v1/runs/{run_id}/interrupts/{node}", {"resumeValue": {"action": action}})
    assert answered.status_code == 200, answered.text
    assert tester.wait(run_id)["outputs"]["outcome"] == outcome
    assert told(tester, run_id)[-1]["payload"]["outcome"] == outcome


def test_a_model_that_the_run_names_is_the_one_that_answers(api: Api, install: Callable[..., str]) -> None:
    assert work(api, install(), model="local")["status"] == "completed"
    unknown = work(api, install(), model="no-such-model")
    assert unknown["status"] == "failed"


def test_a_member_as_the_root_is_attributed(api: Api, tenant: str, install: Callable[..., str]) -> None:
    entry = {
        "rosterId": "host:rooted",
        "persona": "Ruth",
        "agentRef": {"agentId": install()},
        "owner": {"tenantId": tenant},
    }
    assert api.http.put("/host/v1/roster/host:rooted", json=entry).status_code == 200
    run = work(api, "host:rooted")
    assert run["outputs"]["persona"] == "Ruth"
    second = api.events(run["runId"])[1]
    assert (second["type"], second["payload"]["rosterId"]) == ("roster.run.initiated", "host:rooted")
    smuggled = {"work": {"agentId": "host:rooted", "task": "Say hello."}}
    made = api.post("/v1/runs", {"workflowId": "forestay-agent", "inputs": smuggled})
    assert api.wait(made.json()["runId"])["status"] == "failed"  # whose run it is was not said when it began


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"agentId": "local.not.there", "inputs": {"task": "x"}}, 404),
        ({"agentId": "host:nobody", "inputs": {"task": "x"}}, 404),
        ({"agentId": "core.forestay.assistant", "inputs": {}}, 400),
        ({"agentId": "core.forestay.assistant", "workflowId": "forestay-ask", "inputs": {"task": "x"}}, 400),
        ({"agentId": "core.forestay.assistant", "inputs": {"task": "x"}, "configurable": {"agentVersion": 1}}, 400),
        ({"agentId": "core.forestay.assistant", "inputs": {"task": "x"}, "configurable": {"agentVersion": "9"}}, 404),
        (
            {
                "agentId": "core.forestay.assistant",
                "inputs": {"task": "x"},
                "configurable": {"agentVersion": "1", "agentChannel": "stable"},
            },
            400,
        ),
    ],
)
def test_a_root_that_cannot_be_is_refused(api: Api, body: dict[str, Any], status: int) -> None:
    refused(api.post("/v1/runs", body), status, "not_found" if status == 404 else "validation_error")

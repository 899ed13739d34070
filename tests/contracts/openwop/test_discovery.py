"""What the host says of itself (OpenWOP §1.3, W6, W15)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from forestay.conformance import profiles
from tests.contracts.openwop.conftest import Api, refused
from tests.contracts.openwop.documents import node, variable, workflow

REFERENCE = os.environ.get("FORESTAY_REFERENCE") or Path(__file__).parents[4] / "shared" / "reference"
SCHEMAS = Path(REFERENCE) / "openwop" / "schemas"


def test_discovery_needs_no_key_and_may_be_cached(api: Api) -> None:
    answer = api.caller("").get("/.well-known/openwop")
    assert answer.status_code == 200
    assert "max-age=" in answer.headers["cache-control"]
    assert answer.json() == api.get("/.well-known/openwop").json()


def test_discovery_has_the_required_members(capabilities: dict[str, Any]) -> None:
    assert capabilities["protocolVersion"].startswith("1.")
    assert all(isinstance(item, str) for item in capabilities["supportedEnvelopes"])
    assert all(isinstance(value, int) for value in capabilities["schemaVersions"].values())
    for name in ("clarificationRounds", "schemaRounds", "envelopesPerTurn"):
        assert isinstance(capabilities["limits"][name], int) and capabilities["limits"][name] >= 0


def test_health_needs_no_key(api: Api) -> None:
    for path, status in (("/healthz", "healthy"), ("/readyz", "ready")):
        answer = api.caller("").get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": status})


def test_families_stand_at_the_root(capabilities: dict[str, Any]) -> None:
    assert "capabilities" not in capabilities
    assert capabilities["replay"]["supported"] is True


def test_discovery_holds_against_the_contract_schema(capabilities: dict[str, Any]) -> None:
    path = SCHEMAS / "capabilities.schema.json"
    if not path.exists():
        pytest.skip("the contract's schemas are not here")
    schema = json.loads(path.read_text())
    files = [json.loads(file.read_text()) for file in SCHEMAS.glob("*.json")]
    registry: Any = Registry().with_resources([(item["$id"], Resource.from_contents(item)) for item in files])
    jsonschema.Draft202012Validator(schema, registry=registry).validate(capabilities)


def test_w6_what_is_advertised_answers(api: Api, capabilities: dict[str, Any]) -> None:
    paths = api.get("/v1/openapi.json").json()["paths"]
    assert ("replay" in capabilities) == ("/v1/runs/{runId}:fork" in paths)
    assert ("webhooks" in capabilities) == ("/v1/webhooks" in paths)
    assert ("debugBundle" in capabilities) == ("/v1/runs/{runId}/debug-bundle" in paths)
    assert ("scheduling" in capabilities) == ("/v1/schedules" in paths)


def test_a_profile_that_follows_from_the_document_is_kept(api: Api, capabilities: dict[str, Any]) -> None:
    found = profiles(capabilities)
    run_id = api.start("noop")
    api.wait(run_id)
    for mode in capabilities["replay"]["modes"] if "replay-fork" in found else ():
        assert api.post(f"/v1/runs/{run_id}:fork", {"mode": mode, "fromSeq": 0}).status_code == 201
    if "interrupts" in found:
        asked = api.start("clarification")
        api.wait(asked, "waiting-input")
        assert [item["kind"] for item in api.get(f"/v1/runs/{asked}/interrupts").json()["interrupts"]] == [
            "clarification"
        ]
    for name in capabilities["fixtures"] if "fixtures" in found else ():
        assert api.get(f"/v1/workflows/{name}").status_code == 200
    assert "node-packs" in found or api.get("/v1/packs/some-pack").status_code in (404, 501)


def test_an_unchanged_document_is_304(api: Api) -> None:
    headers = api.get("/.well-known/openwop").headers
    tag = headers["etag"]
    assert headers.get("capabilities-etag", tag) == tag
    assert api.get("/.well-known/openwop", headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize(
    ("family", "path"),
    [
        ("feedback", "/v1/runs/run_x/annotations"),
        ("prompts", "/v1/prompts"),
        ("packs", "/v1/packs/some-pack"),
        ("workspace", "/v1/host/workspace/files/a/b.txt"),
        ("triggerBridge", "/v1/trigger-subscriptions"),
        ("mcp", "/v1/mcp"),
        ("a2a", "/v1/a2a"),
    ],
)
def test_w15_families_that_are_off_say_so(api: Api, capabilities: dict[str, Any], family: str, path: str) -> None:
    if (capabilities.get(family) or {}).get("supported"):
        pytest.skip("this host has it")
    refused(api.get(path), 501, "capability_not_provided")
    refused(api.caller("").get(path), 401, "unauthenticated")


def test_w23_what_agents_can_do_is_advertised_and_done(api: Api, capabilities: dict[str, Any]) -> None:
    """A supervisor sends a worker, variables go in and come back, and it decides again."""
    agents = capabilities.get("agents") or {}
    if not any(agents.get(name) for name in ("orchestrator", "dispatch", "dispatchMapping")):
        pytest.skip("this host has none of them")
    plan = [{"kind": "next-worker", "nextWorkerIds": ["suite-worker"]}, {"kind": "terminate", "reason": "done"}]
    worker = workflow(
        "suite-worker",
        node("made", "core.transform", {"outputs": {"word": "'berth ' + variables.ship"}}),
        variables=[variable("ship", "string")],
    )
    parent = workflow(
        "suite-supervised",
        node("lead", "core.orchestrator.supervisor", {"mockDispatchPlan": plan}),
        node("send", "core.dispatch", {"inputMapping": {"ship": "name"}, "outputMapping": {"found": "word"}}),
        variables=[variable("name", "string", defaultValue="Aurora"), variable("found", "string")],
        edges=[
            {"id": "e1", "sourceNodeId": "lead", "targetNodeId": "send"},
            {"id": "e2", "sourceNodeId": "send", "targetNodeId": "lead"},
        ],
    )
    for document in (worker, parent):
        assert api.http.put(f"/v1/workflows/{document['id']}", json=document).status_code in (200, 201)
    run_id = api.post("/v1/runs", {"workflowId": parent["id"]}).json()["runId"]
    run = api.wait(run_id)
    assert (run["status"], run["variables"]["found"]) == ("completed", "berth Aurora")
    events = api.events(run_id)
    decided = [item["payload"]["decision"]["kind"] for item in events if item["type"] == "runOrchestrator.decided"]
    assert decided == ["next-worker", "terminate"] and agents["orchestrator"] is True
    (child,) = {item["payload"]["childRunId"] for item in events if item["type"] == "node.dispatched"}
    assert api.run(child)["inputs"] == {"ship": "Aurora"}
    assert agents["dispatch"] is agents["dispatchMapping"] is True


def test_the_http_client_says_what_it_takes(api: Api, capabilities: dict[str, Any]) -> None:
    client = capabilities.get("httpClient") or {}
    if not client.get("supported"):
        pytest.skip("this host calls nobody")
    assert client["ssrfGuard"] is True and client["maxResponseBodyBytes"] > 0 and client["methods"]
    for method in (*client["methods"], "TRACE"):
        config = {"method": method, "url": "https://example.com/"}
        checked = api.post("/v1/workflows:check", workflow("suite-calls", node("call", "core.http", config))).json()
        assert checked["valid"] is (method in client["methods"]), (method, checked)
